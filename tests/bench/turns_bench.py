#!/usr/bin/env python3
"""Tokens a second of conversations whose tools take as long as their turns, over those of tools that answer at once.

    tests/bench/turns_bench.py build/release/app/paceline [--rounds 3]

One rank with --slots slots and many times as many conversations of four turns of equal length (no end tokens). A worker
answers at once, or after as long as a turn took when none waited; the arms take turns. Sampled tokens a second are those
between the times when 5 % and 80 % of all were there, for a run's last conversations cannot fill its slots. KV that was
stored and fetched, in MiB, says how it waited. Needs h5py.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import h5py
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TURNS = 4
TURN = 64  # tokens
WORKER = """
import json, sys, time
for line in sys.stdin:
    asked = json.loads(line)
    answer = {"id": asked["id"]}
    if not asked.get("close"):
        time.sleep(float(sys.argv[1]))
        answer |= {"done": True} if asked["turn"] == int(sys.argv[2]) - 1 else {"observation": [40, 41, 42, 43]}
    print(json.dumps(answer), flush=True)
"""


def rate(run: pathlib.Path) -> tuple[float, float]:
    """Sampled tokens a second between 5 % and 80 % of them, and the requests of a step meanwhile."""
    with h5py.File(run / "telemetry.h5") as file:
        steps = file["ranks/0/steps"]
        durations, counts = steps["duration"][:], steps["requests"][:]
        end = steps["start"][:] + durations
        tokens = steps["decode_tokens"][:].astype(np.int64) - steps["drafted"][:] + steps["accepted"][:]
    done = np.cumsum(tokens)
    first, last = np.searchsorted(done, [0.05 * done[-1], 0.8 * done[-1]])
    requests = np.average(counts[first:last], weights=durations[first:last])
    return float((done[last] - done[first]) / (end[last] - end[first])), float(requests)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paceline")
    parser.add_argument("--slots", type=int, default=16)
    parser.add_argument("--waves", type=int, default=16, help="conversations for each slot")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        worker, prompts = work / "worker.py", work / "prompts.jsonl"
        worker.write_text(WORKER)
        lines = [{"uid": str(i), "prompt_tokens": list(range(40, 72))} for i in range(options.slots * options.waves)]
        prompts.write_text("".join(json.dumps(line) + "\n" for line in lines))

        def measured(seconds: float, number: int) -> tuple[tuple[float, float], dict]:
            run = work / f"run-{number}"
            settings = {
                "prompts.path": prompts, "prompts.samples": 1, "sampling.ignore_eos": "true", "engine.threads": 1,
                "engine.backend": "cpu", "sampling.max_tokens": TURNS * (TURN + 32), "engine.max_batch": options.slots,
                "environment.method": "command", "environment.max_turns": TURNS, "environment.max_tokens_turn": TURN,
                "environment.workers": 2 * options.slots, "output.directory": run,
                "environment.command": f"[{sys.executable}, -S, -E, {worker}, {seconds:.4f}, {TURNS}]",
            }
            words = [w for key, value in settings.items() for w in ("--set", f"{key}={value}")]
            subprocess.run([str(ROOT / "tests/mpi/launch.sh"), "1", options.paceline, "rollout",
                            str(ROOT / "configs/quickstart.yaml"), *words], check=True, capture_output=True)
            said = subprocess.run([options.paceline, "report", str(run), "--json"], check=True, capture_output=True)
            return rate(run), json.loads(said.stdout)["runs"][0]

        measured(0, 0)
        ratios = []
        for number in range(options.rounds):
            (at_once, full), _ = measured(0, 2 * number + 1)
            turn = TURN * options.slots / at_once
            (waiting, filled), said = measured(turn, 2 * number + 2)
            ratios.append(waiting / at_once)
            kv = said["stored_kv"]
            print(f"at once {at_once:.0f} tokens/s; after {1e3 * turn:.0f} ms, as long as a turn, {waiting:.0f}: "
                  f"{ratios[-1]:.3f}; requests of a step {full:.1f}, {filled:.1f}; waits {said['turns']['wait_seconds']['p50'] * 1e3:.0f} ms (median), KV stored "
                  f"{kv['stored_bytes'] / 2**20:.0f} MiB, fetched {(kv['memory_bytes'] + kv['disk_bytes']) / 2**20:.0f}",
                  flush=True)
        print(f"median {statistics.median(ratios):.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
