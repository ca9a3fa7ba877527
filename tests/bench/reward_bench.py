#!/usr/bin/env python3
"""How much of scoring is hidden behind the rollout: reward_bench.py PACELINE [OPTION...].

The same requests of the embedded model on ranks of one thread: not scored, scored by matching, and by workers that
take 5, 20 and 100 ms for a response, asleep (as one who asks a judge) or at work (as one who runs code, on cores that
the ranks use too; nice: behind them). Runs go in turns. "Rollout" is from the first step of any rank to the end of the last, as a ratio to
runs that are not scored; "hidden" the share of scoring before that end; "after" the seconds from it until all was
scored; "workers" those of each rank. Needs h5py.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np

from rollouts import rollout

WORKER = '''import json, sys, time
seconds, busy = float(sys.argv[1]), sys.argv[2] != "asleep"
for line in sys.stdin:
    request = json.loads(line)
    end = time.process_time() + seconds
    if not busy: time.sleep(seconds)
    while busy and time.process_time() < end: pass
    print(json.dumps({"id": request["id"], "score": len(request["response"]) % 2}), flush=True)
'''
MATCH = ["reward.method=match", "reward.rule=regex", r"reward.pattern='####\s*(.*?)\s*$'"]


def arms_of(worker: Path, milliseconds: list[int], workers: list[int]) -> dict[str, list[str]]:
    arms = {"not scored": [], "match": MATCH}
    for count in workers:
        for how in ("asleep", "busy", "nice"):
            for ms in milliseconds:
                before = 'nice, -n, "19", ' if how == "nice" else ""
                command = f"reward.command=[{before}{sys.executable}, {worker}, {ms / 1000}, {how}]"
                arms[f"{ms} ms {how}, {count} workers"] = ["reward.method=command", command, f"reward.workers={count}"]
    return arms


def figures(telemetry: h5py.File, steps: list, seconds: float) -> dict:
    last = max(group["start"][-1] + group["duration"][-1] for group in steps if len(group["start"]))
    scores = telemetry["scores"]
    start, duration = scores["start"][:], scores["duration"][:]
    hidden = np.clip(last - start, 0, duration).sum() / duration.sum() if len(start) else 1.0
    return {
        "seconds": seconds,
        "tokens": int(telemetry["summary/response_tokens"][:].sum()),
        "scoring": float(duration.sum()),
        "hidden": float(hidden),
        "after": max(0.0, float((start + duration).max() - last)) if len(start) else 0.0,
        "missing": int((scores["outcome"][:] != 0).sum()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="paceline")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--milliseconds", default="5,20,100")
    parser.add_argument("--workers", default="2,8")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--arms", default="", help="those alone that have one of these words, by comma")
    arguments = parser.parse_args()
    numbers = [[int(n) for n in text.split(",")] for text in (arguments.milliseconds, arguments.workers)]
    with tempfile.TemporaryDirectory() as folder:
        worker = Path(folder) / "worker.py"
        worker.write_text(WORKER)
        words = arguments.arms.split(",")
        arms = {name: settings for name, settings in arms_of(worker, *numbers).items()
                if name == "not scored" or any(word in name for word in words)}
        base = [f"prompts.samples={arguments.samples}", "engine.backend=cpu"]
        results: dict[str, list[dict]] = {name: [] for name in arms}
        for repeat in range(arguments.repeats):
            for name in list(arms)[:: 1 if repeat % 2 == 0 else -1]:
                settings = [*base, *arms[name], f"sampling.seed={repeat + 1}"]
                results[name].append(rollout(arguments.program, settings, figures, arguments.ranks))
        print(f"{arguments.ranks} ranks, {32 * arguments.samples} responses\n"
              f"{'':26} rollout, s  ratio   min-max    scoring, s  hidden, %  after, s  missing")
        for name, runs in results.items():
            ratios = [r["seconds"] / plain["seconds"] for r, plain in zip(runs, results["not scored"])]
            median = {key: statistics.median(r[key] for r in runs) for key in runs[0]}
            print(f"{name:26} {median['seconds']:10.3f} {statistics.median(ratios):6.2f} {min(ratios):5.2f}-"
                  f"{max(ratios):.2f} {median['scoring']:12.3f} {100 * median['hidden']:10.1f} {median['after']:9.2f} "
                  f"{median['missing']:8.0f}", flush=True)


if __name__ == "__main__":
    main()
