#!/usr/bin/env python3
"""Seer's evaluation (sections 6.2 to 6.4) in simulation: seer_bench.py PACELINE [OPTION...].

The three workloads of its table 5 (configs/simulated/seer-*.yaml), each on as many H800 GPUs as there; --scale N
takes an N-th of the prompts and of the instances. Table 6's ladder: prompts dealt out to instances, which preempt
by recomputing, as veRL on vLLM does; then requests in chunks; then those first whose siblings became long; then
drafts of what siblings said; then also of what earlier steps of the training said, by which suffix trees have half
of the tokens right that they would miss (measured from a real training's third step on, training_bench.py). Beside
it what figures 10 and 11 compare with. Columns: tokens a second over the baseline's, and the paper's; seconds from
the end of the ninth tenth of the responses to that of the last (figure 8), and these over the baseline's, and the
paper's; the share of the time that instances spent in steps; of KV memory that was in use; tokens whose KV was
computed again; requests that changed instances, as of rebalancing, and those that waited between chunks. Accepted:
mean tokens of a request's step; over bound: seconds over the larger lower bound. Needs h5py.
"""

import argparse
import re
import sys
import tempfile
from functools import partial
from pathlib import Path

import h5py

from simulations import add_runs, in_order, simulate

MODELS = {"moonlight": 4, "qwen2-vl-72b": 16, "kimi-k2": 32}  # nodes, as the configurations have them
PROMPTS = {"moonlight": 400, "qwen2-vl-72b": 600, "kimi-k2": 800}
PLAIN = ["speculation.mode=plain"]
ARMS = {  # settings
    "baseline": [*PLAIN, "schedule.policy=group", "schedule.chunk=grow"],
    "+ divided rollout": [*PLAIN, "schedule.policy=no_context"],
    "+ context": PLAIN,
    "+ grouped drafting": [],
    "+ earlier steps": ["simulation.workload.history=0.5"],
    "divided, moves at ends alone": [*PLAIN, "schedule.policy=no_context", "schedule.rebalance=false"],
    "context, moves at ends alone": [*PLAIN, "schedule.rebalance=false"],
    "oracle, moves at ends alone": [*PLAIN, "schedule.policy=oracle", "schedule.rebalance=false"],
    "oracle": [*PLAIN, "schedule.policy=oracle"],
    "context, chunks that grow": [*PLAIN, "schedule.chunk=auto"],
    "first come": [*PLAIN, "schedule.policy=fcfs"],
    "drafts of 8 always": ["speculation.policy=fixed", "speculation.max_length=8"],
    "drafts without servers": ["speculation.drafters=[{method: suffix, servers: 0}]"],
}
# Speed over the baseline's: table 6; of others figures 10 and 11, which have Qwen2-VL-72B alone.
PAPER = {
    "moonlight": {"+ divided rollout": "1.27", "+ context": "1.33", "+ grouped drafting": "1.77"},
    "qwen2-vl-72b": {"+ divided rollout": "1.31", "+ context": "1.44", "+ grouped drafting": "1.87",
                     "oracle": "1.52", "drafts of 8 always": "1.48", "drafts without servers": "1.71"},
    "kimi-k2": {"+ divided rollout": "1.35", "+ context": "1.47", "+ grouped drafting": "1.77"},
}
# Its tail over the baseline's (figures 8 and 10).
TAIL = {"qwen2-vl-72b": {"+ divided rollout": "0.94", "+ context": "0.13"}}


def telemetry_of(folder: Path, blocks: int, seconds: float) -> tuple[float, int, int, float]:
    """Share of KV memory in use, tokens computed again, requests that waited between chunks, tokens a step."""
    with h5py.File(folder / "telemetry.h5") as telemetry:
        used = rows = committed = 0.0
        for rank in telemetry["ranks"].values():
            steps = rank["steps"]
            used += float((steps["kv_blocks_used"][:] * steps["duration"][:]).sum())
            decode, drafted = steps["decode_tokens"][:].sum(), steps["drafted"][:].sum()
            rows += float(decode - drafted)
            committed += float(decode - drafted + steps["accepted"][:].sum())
        kinds = telemetry["requests/kind"]
        resumed = int((kinds[:] == kinds.attrs["resumed"]).sum())
        recomputed = int(telemetry["summary/recomputed"][:].sum())
        return used / (blocks * len(telemetry["ranks"]) * seconds), recomputed, resumed, committed / rows


def run(program: str, model: str, settings: list[str]) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        row, said = simulate(program, f"seer-{model}", settings, "--output", folder)
        blocks = int(re.search(r"(\d+) KV blocks", said).group(1))
        bound = float(re.search(r"takes ([\d.]+) times the larger", said).group(1))
        used, recomputed, resumed, pace = telemetry_of(Path(folder), blocks, float(row[0]))
        return {"seconds": float(row[0]), "tail": float(row[2]), "busy": float(row[3]), "moves": int(row[5]),
                "digest": row[7], "used": used, "recomputed": recomputed, "resumed": resumed, "pace": pace,
                "bound": bound}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="paceline")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--scale", type=int, default=1, help="an N-th of the prompts and instances")
    parser.add_argument("--arms", default="", help="those alone that this regular expression is found in; and the baseline")
    add_runs(parser)
    arguments = parser.parse_args()
    tables = [(model, seed) for model in arguments.models.split(",") for seed in range(1, arguments.seeds + 1)]
    baseline = next(iter(ARMS))
    names = [name for name in ARMS if name == baseline or re.search(arguments.arms, name)]

    def of_arm(model: str, seed: int, name: str) -> dict:
        return run(arguments.program, model,
                   [f"simulation.nodes={MODELS[model] // arguments.scale}", f"sampling.seed={seed}",
                    f"simulation.workload.prompts={PROMPTS[model] // arguments.scale}", *arguments.settings, *ARMS[name]])

    results = in_order(arguments.jobs, [partial(of_arm, *table, name) for table in tables for name in names])
    for model, seed in tables:
        print(f"{model} / {arguments.scale}, seed {seed} {' '.join(arguments.settings)}\n{'':30}seconds   speed (paper's)    "
              "tail, of the baseline's (paper's)  busy, %  KV, %  computed again   moves  waited  accepted  over bound",
              flush=True)
        first: dict = {}
        for name in names:
            r = next(results)
            first = first or r
            if r["digest"] != first["digest"]:
                sys.exit(f"{name}: another digest than the baseline")
            print(f"{name:30}{r['seconds']:7.0f} {first['seconds'] / r['seconds']:7.2f} "
                  f"({PAPER[model].get(name, ''):4}) {r['tail']:10.0f} {r['tail'] / first['tail']:9.2f} "
                  f"({TAIL.get(model, {}).get(name, ''):4}) {r['busy']:22.1f} {100 * r['used']:6.1f} "
                  f"{r['recomputed']:15} {r['moves']:7} {r['resumed']:7} {r['pace']:9.2f} {r['bound']:11.2f}", flush=True)


if __name__ == "__main__":
    main()
