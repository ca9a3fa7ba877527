#!/usr/bin/env python3
"""SpecActor's comparison (sections 5.2 and 5.4) in simulation: specactor_bench.py PACELINE [OPTION...].

256 H100-class GPUs in verifier groups of TP 4 generate 8,192 (GRPO-32B-20K) or 16,384 (DAPO-32B-20K) responses of 20 K
tokens at most with Qwen2.5-32B (configs/simulated/specactor-lognormal.yaml, fitted to the paper's baseline, or --config
specactor, lengths of DeepSeek-R1). The arms are the paper's; those that it does not tune are not tuned here: "vanilla"
drafts 5 tokens always, as vLLM does by default. Beside each is how much sooner it ends than plain decoding, and what
the paper has. The last two arms go past it: suffix trees hold what earlier steps of the training said to the same
prompts, and have half of the tokens right by it that they would miss. This is the share measured from a real training's
third step on (training_bench.py).
"""

import argparse
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

from rollouts import ROOT
from simulations import add_runs, in_order, sets, simulate

MODELS = ROOT / "configs/simulated/models"
NODES = 32
STATIC = ["speculation.best_of_n=false"]
VANILLA = [*STATIC, "speculation.mode=coupled", "speculation.policy=fixed", "speculation.max_length=5"]
PIECES = ["speculation.window=planned"]  # drafts are sent by windows, and none is for outcomes
CHAINS = ["speculation.outcomes=false"]
MOVING = ["schedule.rebalance=true", "layout.tail_tp=1"]
JOINING = ["schedule.rebalance=true"]
EARLIER = [f"speculation.drafters=[{{method: model, path: {MODELS}/Qwen2.5-0.5B}}, "
           f"{{method: model, path: {MODELS}/Qwen2.5-1.5B}}, {{method: suffix}}]",
           "simulation.workload.acceptance=[0.8,0.84,0.412]", "simulation.workload.history=0.5"]
ARMS = {  # settings, speed by plain's in the paper
    "plain (veRL)": ([*STATIC, "speculation.mode=plain"], "1"),
    "plain, twice the GPUs": ([*STATIC, "speculation.mode=plain", "twice"], "1.0-1.1"),
    "vanilla coupled, 0.5B": ([*VANILLA, f"speculation.drafters=[{{method: model, path: {MODELS}/Qwen2.5-0.5B}}]", "first"],
                              "1.03 (DAPO)"),
    "vanilla coupled, n-gram": ([*VANILLA, "speculation.drafters=[{method: ngram}]", "last"], "about 1"),
    "decoupled, Algorithm 1": ([*STATIC, *PIECES], "1.3"),
    "SpecActor: and best of N": (PIECES, "2.0-2.4"),
    "tokens one by one": ([*STATIC, *CHAINS], ""),
    "and requests move": ([*STATIC, *CHAINS, *MOVING], ""),
    "and groups join": ([*STATIC, *CHAINS, *JOINING], ""),
    "and drafts for outcomes": ([*STATIC, *JOINING], ""),
    "and best of N: all": (JOINING, ""),
    "plain, moves, joins": ([*STATIC, *JOINING, "speculation.mode=plain"], ""),
    "coupled by costs, moves, joins": ([*STATIC, *JOINING, "speculation.mode=coupled"], ""),
    "auto, moves, joins": ([*STATIC, *JOINING, "speculation.mode=auto"], ""),
    "coupled, freed ranks draft": ([*JOINING, "speculation.mode=auto", "layout.drafters=0"], ""),
    "all, and earlier steps": ([*JOINING, *EARLIER], ""),
    "coupled, and earlier steps": ([*STATIC, *JOINING, *EARLIER, "speculation.mode=coupled"], ""),
}


def planned_window(program: str, path: Path, settings: list[str]) -> str:
    """Of the windows that drafter ranks may send at a time the one that is foreseen to be the fastest."""
    settings = [s for s in settings if "planned" not in s]
    foreseen = {}
    for window in range(2, 9):
        words = sets([*settings, f"speculation.window={window}"])
        done = subprocess.Popen([program, "simulate", str(path), *words], stdout=subprocess.DEVNULL,
                                stderr=subprocess.PIPE, text=True)
        for line in done.stderr:
            if speed := re.match(r"\s+\* +(\d+) ", line):
                foreseen[window] = int(speed.group(1))
                break
        done.kill()
    if not foreseen:
        sys.exit("no window is planned: " + " ".join(settings))
    return str(max(foreseen, key=foreseen.get))


def run(program: str, config: str, settings: list[str]) -> tuple[list[str], list[str]]:
    """The table's row; both lower bounds, and the seconds over the larger. "first" and "last" among the settings: of
    the configuration's drafters one alone drafts, with its acceptance."""
    path = ROOT / f"configs/simulated/{config}.yaml"
    acceptance = re.search(r"acceptance: \[(.*)\]", path.read_text())
    own = {"first": 0, "last": -1}
    settings = [f"simulation.workload.acceptance=[{acceptance.group(1).split(',')[own[s]].strip()}]" if s in own else s
                for s in settings if s not in own or acceptance]
    if any("planned" in s for s in settings):
        window = planned_window(program, path, settings)
        settings = [s.replace("planned", window) for s in settings]
    row, said = simulate(program, config, settings)
    return row, list(re.search(r"bounds: ([\d.]+) s .*, ([\d.]+) s .* takes ([\d.]+) times the larger", said).groups())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="paceline")
    parser.add_argument("--config", default="specactor-lognormal", help="of configs/simulated: the workload")
    parser.add_argument("--prompts", default="512,1024", help="of 16 responses each")
    parser.add_argument("--scale", type=int, default=1, help="an N-th of the prompts and of the GPUs")
    parser.add_argument("--arms", default="", help="those alone that this regular expression is found in; and plain")
    add_runs(parser)
    arguments = parser.parse_args()
    nodes = NODES // arguments.scale
    tables = [(int(prompts), seed) for prompts in arguments.prompts.split(",") for seed in range(1, arguments.seeds + 1)]
    plain_arm = next(iter(ARMS))
    names = [name for name in ARMS if name == plain_arm or re.search(arguments.arms, name)]

    def of_arm(prompts: int, seed: int, name: str) -> tuple[list[str], list[str]]:
        settings = ARMS[name][0]
        return run(arguments.program, arguments.config,
                   [f"simulation.nodes={2 * nodes if 'twice' in settings else nodes}", f"sampling.seed={seed}",
                    f"simulation.workload.prompts={prompts // arguments.scale}",
                    *(s for s in settings if s != "twice"), *arguments.settings])

    results = in_order(arguments.jobs, [partial(of_arm, *table, name) for table in tables for name in names])
    for prompts, seed in tables:
        print(f"{16 * prompts // arguments.scale} responses, {8 * nodes} GPUs, seed {seed} "
              f"{' '.join(arguments.settings)}\n{'':30} rollout s   tail s  busy, %: verifiers drafters  races  "
              "bounds s: longest, work  over bound  speed (paper's)", flush=True)
        plain = 0.0
        for name in names:
            row, (longest, work, over) = next(results)
            plain = plain or float(row[0])
            print(f"{name:30} {float(row[0]):9.1f} {float(row[2]):8.1f} {row[3]:>19} {row[4]:>8} {row[6]:>6} "
                  f"{longest:>16} {work:>6} {over:>11} {plain / float(row[0]):7.2f} ({ARMS[name][1]})", flush=True)


if __name__ == "__main__":
    main()
