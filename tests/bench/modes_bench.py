#!/usr/bin/env python3
"""Plain, coupled and decoupled decoding on the same cores: modes_bench.py PACELINE [OPTION...].

Two ranks of one thread in every arm: plain and coupled decode on both, decoupled on one, for which the other drafts with
the same model. --batch counts the requests of both groups together, so a decoupled run's one group has all of them. Every
response has --tokens tokens; prompts are the embedded model's own, or rows of ids for another pair. Seconds are from the
first step of any rank to the end of the last; ratios are of tokens a second over plain decoding, medians of runs in
turns; "steady" is the same with each group's seconds by itself, from its own first step. Needs h5py.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

import h5py

from rollouts import ROOT, embedded_prompts, id_prompts, rollout


def figures(telemetry: h5py.File, steps: list, seconds: float) -> dict:
    verifies = [s for s in steps if len(s["role"]) and s["role"][0] == 0]
    total = {name: sum(int(s[name][:].sum()) for s in verifies) for name in ("drafted", "accepted", "late")}
    tokens = dict(zip(telemetry["summary/rank"][:], telemetry["summary/response_tokens"][:]))
    spans = {rank: steps[rank] for rank, count in tokens.items() if count > 0}
    return {
        "rate": int(sum(tokens.values())) / seconds,
        # Each group by its own clock: without what one began later or ended sooner than another.
        "steady": sum(int(tokens[rank]) / (s["start"][-1] + s["duration"][-1] - s["start"][0])
                      for rank, s in spans.items()),
        "steps": sum(len(s["start"]) for s in verifies),
        "wasted": int(telemetry["summary/wasted"][:].sum()),
        "most_wasted": int(telemetry["summary/most_wasted"][:].max()),
        **total,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="paceline")
    parser.add_argument("--pair", help="a folder with target and draft (default: the embedded pair)")
    parser.add_argument("--batches", default="1,4,16")
    parser.add_argument("--windows", default="4,8")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--policies", default="goodput,fixed")
    arguments = parser.parse_args()
    pair = Path(arguments.pair) if arguments.pair else ROOT / "configs/models"
    draft = "speculation.drafters=[{method: model, path: %s}]" % (pair / "draft")

    print("batch  arm                        tokens/s  ratio   min-max     steady  accepted, %  late, %  most wasted")
    for batch in [int(b) for b in arguments.batches.split(",")]:
        base = [f"model.path={pair / 'target'}", "prompts.samples=1", "sampling.ignore_eos=true",
                f"sampling.max_tokens={arguments.tokens}", f"sampling.min_tokens={arguments.tokens}"]
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as prompts:
            prompts.writelines(id_prompts(batch) if arguments.pair else embedded_prompts(batch))
            prompts.flush()
            base.append(f"prompts.path={prompts.name}")
            arms = {"plain": []}
            for policy in arguments.policies.split(","):
                arms[f"coupled, {policy}"] = [draft, f"speculation.policy={policy}"]
                for window in arguments.windows.split(","):
                    arms[f"decoupled, {policy}, w={window}"] = [
                        draft, f"speculation.policy={policy}", "layout.drafters=1", f"speculation.window={window}"]
            results: dict[str, list[dict]] = {name: [] for name in arms}
            for repeat in range(arguments.repeats):
                order = list(arms) if repeat % 2 == 0 else list(arms)[::-1]
                for name in order:
                    results[name].append(
                        rollout(arguments.program, [*base, *arms[name], f"sampling.seed={repeat + 1}"],
                                figures))
        for name, runs in results.items():
            ratios = [r["rate"] / plain["rate"] for r, plain in zip(runs, results["plain"])]
            steady = statistics.median(r["steady"] / plain["steady"] for r, plain in zip(runs, results["plain"]))
            share = 100 * statistics.median(r["accepted"] / max(1, r["drafted"]) for r in runs)
            late = 100 * statistics.median(r["late"] / max(1, r["steps"]) for r in runs)
            print(f"{batch:5}  {name:25} {statistics.median(r['rate'] for r in runs):9.0f} "
                  f"{statistics.median(ratios):6.2f}  {min(ratios):5.2f}-{max(ratios):.2f}  {steady:9.2f} {share:12.1f} "
                  f"{late:8.1f} {max(r['most_wasted'] for r in runs):12}", flush=True)


if __name__ == "__main__":
    main()
