#!/usr/bin/env python3
"""The tail of a rollout by what is done about it: tail_bench.py PACELINE [OPTION...].

The same requests, a few long ones among short ones, on ranks of one thread in every arm: plain without and with
rebalancing, coupled and decoupled drafts, both without and with groups that race once they run dry (best-of-N). Two
methods draft: the suffix tree of a prompt's siblings and the embedded draft model. Costs come from one `paceline
profile`, made before. Runs go in turns; the table has medians, and ratios to plain decoding with rebalancing. "Last 10
%" is from the end of the ninth tenth of the requests to that of the last; "busy" the share of the time from the first
step to the last end that ranks of a role spent in steps. Needs h5py.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np

from rebalance_bench import write_workload
from rollouts import LAUNCH, ROOT, rollout

CONFIG = ROOT / "configs/quickstart.yaml"
DRAFTERS = "speculation.drafters=[{method: suffix}, {method: model, path: %s}]" % (ROOT / "configs/models/draft")

COUPLED = ["speculation.mode=coupled", DRAFTERS]
DECOUPLED = ["speculation.mode=decoupled", "layout.drafters=1", DRAFTERS]
RACES = "speculation.best_of_n=true"
ARMS: dict[str, list[str]] = {
    "plain, nothing moves": ["schedule.rebalance=false"],
    "plain": [],
    "coupled": COUPLED,
    "coupled, races": [*COUPLED, RACES],
    "decoupled": DECOUPLED,
    "decoupled, races": [*DECOUPLED, RACES],
}


def figures(telemetry: h5py.File, steps: list, seconds: float) -> dict:
    requests = telemetry["requests"]
    ends = np.sort(requests["time"][:][requests["kind"][:] == requests["kind"].attrs["finished"]])
    busy: dict[int, list[float]] = {}
    for group in steps:
        if len(group["start"]):
            busy.setdefault(int(group["role"][0]), []).append(float(group["duration"][:].sum()) / seconds)
    return {
        "seconds": seconds,
        "tail": ends[-1] - ends[int(0.9 * len(ends)) - 1],
        "verifiers": statistics.mean(busy.get(0, [0.0])),
        "drafters": statistics.mean(busy.get(2, [0.0])),
        "raced": int(telemetry["summary/raced"][:].sum()),
        "foretold": int(telemetry["summary/foretold"][:].sum()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="paceline")
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--workload", default="mixed", choices=["mixed", "skewed"], help="as of rebalance_bench.py")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--arms", default="", help="those alone that have one of these words, by comma")
    arguments = parser.parse_args()
    words = arguments.arms.split(",")
    arms = {name: s for name, s in ARMS.items()
            if name == "plain" or any(word in name for word in words)}

    with tempfile.TemporaryDirectory() as folder:
        prompts, costs = Path(folder) / "prompts.jsonl", Path(folder) / "costs.yaml"
        samples = 8
        write_workload(arguments.workload, arguments.requests // (2 * samples), prompts)
        base = [f"prompts.path={prompts}", f"prompts.samples={samples}", "engine.threads=1"]
        sets = [word for s in [*base, DRAFTERS, "speculation.mode=coupled"] for word in ("--set", s)]
        done = subprocess.run([str(LAUNCH), "2", arguments.program, "profile", str(CONFIG), "--output", str(costs),
                               "--seconds", "5", *sets], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(done.stdout + done.stderr)
        base += [f"engine.profile={costs}", "speculation.keep_history=false"]
        for ranks in [int(n) for n in arguments.ranks.split(",")]:
            print(f"{ranks} ranks, {arguments.requests} requests\n{'':32} seconds  ratio   min-max    last 10 %  "
                  "busy, %: verifiers, drafters  tokens by racers, said first")
            results: dict[str, list[dict]] = {name: [] for name in arms}
            for repeat in range(arguments.repeats):
                for name in list(arms)[::1 if repeat % 2 == 0 else -1]:
                    settings = [*base, *arms[name], f"sampling.seed={repeat + 1}"]
                    results[name].append(rollout(arguments.program, settings, figures, ranks))
            for name, runs in results.items():
                ratios = [r["seconds"] / plain["seconds"] for r, plain in zip(runs, results["plain"])]
                median = {key: statistics.median(r[key] for r in runs) for key in runs[0]}
                print(f"{name:32} {median['seconds']:7.3f} {statistics.median(ratios):6.2f} {min(ratios):5.2f}-"
                      f"{max(ratios):.2f} {median['tail']:12.3f} {100 * median['verifiers']:19.1f} "
                      f"{100 * median['drafters']:9.1f} {median['raced']:13.0f} {median['foretold']:10.0f}", flush=True)


if __name__ == "__main__":
    main()
