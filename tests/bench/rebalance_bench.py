#!/usr/bin/env python3
"""What moving requests to groups that run dry is worth, and what it costs where nothing is to be won:
rebalance_bench.py PACELINE [OPTION...].

Rollouts of the embedded model on ranks of one thread, with schedule.rebalance and without, in turn. All
requests are leased at once, half to each of two groups:

  skewed    the first group gets prompts with long responses (Collatz), the second those with short ones
  mixed     both get the same kinds of prompts: what is left is chance
  even      every response has as many tokens: nothing is to be won

Times are from the first step of any rank to the end of the last. Needs h5py.
"""

import argparse
import itertools
import json
import statistics
import tempfile
from pathlib import Path

import h5py

from rollouts import ROOT, rollout


def prompts_of(kinds: list[str], count: int) -> list[str]:
    lines = (ROOT / "configs/prompts/unseen.jsonl").read_text().splitlines()
    chosen = [line for line in lines if json.loads(line)["data_source"].split("/")[1] in kinds]
    return chosen[:count]


def write_workload(name: str, prompts: int, path: Path) -> None:
    """So many prompts for each group."""
    if name == "skewed":
        lines = prompts_of(["collatz"], prompts) + prompts_of(["binary", "decimal"], prompts)
    else:
        half = (prompts + 1) // 2
        long, short = prompts_of(["collatz"], 2 * half), prompts_of(["binary", "decimal"], 2 * half)
        lines = [line for pair in zip(long, short) for line in pair][:2 * prompts]
    path.write_text("\n".join(lines) + "\n")


def figures(telemetry: h5py.File, steps: list, seconds: float) -> dict:
    return {
        "seconds": seconds,
        "busy": [float(s["duration"][:].sum()) for s in steps],
        "moved": int(telemetry["summary/moved"][:].sum()),
        "positions": int(telemetry["summary/positions_transferred"][:].sum()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="paceline")
    parser.add_argument("--against", help="another build, with rebalancing, as a third arm")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--batches", default="64,16,4", help="requests of each group (default 64,16,4)")
    parser.add_argument("--workloads", default="skewed,mixed,even")
    parser.add_argument("--set", action="append", default=[], help="further settings of all arms")
    arguments = parser.parse_args()
    arms = [("stays", arguments.program, "false"), ("rebalanced", arguments.program, "true")]
    if arguments.against:
        arms.append(("against", arguments.against, "true"))

    print("workload  batch  arm         seconds  ratio   min-max    busy, % of ranks    moved  positions sent")
    batches = [int(b) for b in arguments.batches.split(",")]
    for workload, batch in itertools.product(arguments.workloads.split(","), batches):
        samples = min(8, batch)
        results: dict[str, list[dict]] = {name: [] for name, _, _ in arms}
        with tempfile.NamedTemporaryFile(suffix=".jsonl") as prompts:
            write_workload(workload, batch // samples, Path(prompts.name))
            for repeat in range(arguments.repeats):
                settings = [f"prompts.path={prompts.name}", f"sampling.seed={repeat + 1}",
                            f"prompts.samples={samples}", *arguments.set]
                if workload == "even":
                    settings += ["sampling.max_tokens=384", "sampling.min_tokens=384"]
                for name, program, rebalance in arms[::1 if repeat % 2 == 0 else -1]:
                    results[name].append(
                        rollout(program, [*settings, f"schedule.rebalance={rebalance}"], figures))
        for name, _, _ in arms:
            runs = results[name]
            seconds = statistics.median(r["seconds"] for r in runs)
            ratios = [r["seconds"] / base["seconds"] for r, base in zip(runs, results["stays"])]
            busy = [100 * statistics.median(r["busy"][rank] / r["seconds"] for r in runs) for rank in range(2)]
            print(f"{workload:8} {batch:6}  {name:10} {seconds:8.3f} {statistics.median(ratios):6.2f} "
                  f"{min(ratios):5.2f}-{max(ratios):.2f}    {busy[0]:6.1f} {busy[1]:6.1f}    "
                  f"{statistics.median(r['moved'] for r in runs):8.0f} "
                  f"{statistics.median(r['positions'] for r in runs):15.0f}", flush=True)


if __name__ == "__main__":
    main()
