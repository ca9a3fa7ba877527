#!/usr/bin/env python3
"""The papers' baselines in simulation: baseline_bench.py PACELINE [OPTION...].

Each workload of configs/simulated that is a paper's, as the system that the paper compares with runs it: SpecActor's by
static plain decoding (veRL), Seer's by prompts dealt out whole and preemption (veRL on vLLM). Beside each figure is
what the paper says of it, with its section or figure; nothing where it says nothing. Lengths and acceptance are fitted
to these (configs/simulated/README.md). --scale N takes an N-th of the prompts and nodes. Needs h5py.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np

from rollouts import ROOT

STATIC = ["speculation.mode=plain", "speculation.best_of_n=false", "layout.tail_tp=1"]
GROUPS = ["speculation.mode=plain", "schedule.policy=group", "schedule.chunk=grow"]
# configuration: (nodes, prompts, settings, what the paper says by column)
WORKLOADS = {
    "specactor-lognormal": (32, 512, STATIC, {"twice": "1.04-1.11 (5.2)"}),
    "specactor-lognormal, DAPO": (32, 1024, STATIC, {"idle": "50 (fig. 2a)", "large": "20 (1)",
                                                     "twice": "1.04-1.11 (5.2)"}),
    "seer-moonlight": (4, 400, GROUPS, {"tail": "to 50 (6.2.2)"}),
    "seer-qwen2-vl-72b": (16, 600, GROUPS, {"tail": "50 (fig. 3)"}),
    "seer-kimi-k2": (32, 800, GROUPS, {"tail": "less (6.2.2)"}),
}
LARGE = 64  # requests of a worker: SpecActor's "large batch"


def simulate(program: str, config: str, settings: list[str]) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        sets = [word for s in settings for word in ("--set", s)]
        path = ROOT / f"configs/simulated/{config}.yaml"
        done = subprocess.run([program, "simulate", str(path), "--output", folder, *sets], capture_output=True,
                              text=True, check=False)
        if done.returncode != 0:
            sys.exit(" ".join(sets) + "\n" + done.stderr[-2000:])
        row = re.split(r"\s+", done.stdout.splitlines()[1].strip())
        seconds, tail, busy = float(row[0]), float(row[2]), float(row[3])
        bound = float(re.search(r"takes ([\d.]+) times the larger", done.stderr).group(1))
        with h5py.File(Path(folder) / "telemetry.h5") as telemetry:
            requests = telemetry["requests"]
            lengths = requests["tokens"][:][requests["kind"][:] == requests["kind"].attrs["finished"]]
            # Seconds of steps of a large batch, of all groups, over the groups' whole time.
            groups, large = 0, 0.0
            for rank in telemetry["ranks"].values():
                steps = rank["steps"]
                batch = steps["requests"][:]
                if not batch.any():  # not a group's leader
                    continue
                groups += 1
                large += float(steps["duration"][:][batch >= LARGE].sum())
    return {"seconds": seconds, "bound": bound, "tail": 100 * tail / seconds, "idle": 100 - busy,
            "large": 100 * large / (groups * seconds), "mean": float(lengths.mean()),
            "median": float(np.median(lengths)), "longest": int(lengths.max())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="paceline")
    parser.add_argument("--scale", type=int, default=1, help="an N-th of the prompts and nodes")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--twice", action="store_true", help="SpecActor's on twice the GPUs, too")
    parser.add_argument("--workloads", default="", help="those alone that this regular expression is found in")
    parser.add_argument("--set", dest="settings", action="append", default=[], help="for all")
    arguments = parser.parse_args()
    columns = {"seconds": "rollout s", "bound": "over bound", "tail": "last 10 %, %", "idle": "idle, %",
               "large": f">= {LARGE}, %", "mean": "mean tokens", "median": "median", "longest": "longest"}
    print(f"{'workload':27} seed" + "".join(f"{title:>26}" for title in columns.values()), flush=True)
    for name, (nodes, prompts, settings, paper) in WORKLOADS.items():
        if not re.search(arguments.workloads, name):
            continue
        config = name.split(",")[0]
        for seed in range(1, arguments.seeds + 1):
            base = [f"simulation.workload.prompts={prompts // arguments.scale}", f"sampling.seed={seed}", *settings,
                    *arguments.settings]
            r = simulate(arguments.program, config, [f"simulation.nodes={nodes // arguments.scale}", *base])
            said = {column: f"({paper[column]})" if column in paper else "" for column in columns}
            print(f"{name:27} {seed:4}" + "".join(
                f"{r[column]:9.{2 if column == 'bound' else 0}f} {said[column]:16}" for column in columns), flush=True)
            if arguments.twice and "twice" in paper:
                twice = simulate(arguments.program, config, [f"simulation.nodes={2 * nodes // arguments.scale}", *base])
                faster = r["seconds"] / twice["seconds"]
                print(f"{'  on twice the GPUs':32}{faster:9.2f} times as fast ({paper['twice']})", flush=True)


if __name__ == "__main__":
    main()
