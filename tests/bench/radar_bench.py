#!/usr/bin/env python3
"""RADAR's stop beside fixed numbers of calls: radar_bench.py PACELINE --stop DIR [OPTION...]. Needs h5py.

The embedded target on one rank and one thread: plain decoding, the draft model's chains, the head's dynamic trees grown by
a fixed number of calls (EAGLE-2's depth of 6, then EAGLE-3's), and by as many as the stop policy says. All trees are
verified with --total rows at most, the root's included. Runs take turns, each seed forwards or backwards; figures are
medians over seeds, of the steps that have no rows of prompts and as many requests as the batch: tokens a second over plain
decoding of the same seed, tokens and calls a cycle (a request's part of a step). `draft, %` is the share of those steps'
time that drafting takes. With --figures FILE the distributions of calls and of accepted tokens at batch 1 are written as
JSON: the paper's figure 2.
"""

import argparse
import json
import statistics
import tempfile
from collections import Counter
from pathlib import Path

import h5py
import numpy as np

from rollouts import ROOT, embedded_prompts, rollout

MODELS = ROOT / "configs/models"


def drafting(drafter: str, length: int, paths: int, most: int) -> list[str]:
    return [f"speculation.drafters=[{drafter[:-1]}, max_tokens: {most}}}]", "speculation.policy=fixed", "speculation.mode=coupled",
            f"speculation.max_length={length}", f"speculation.paths={paths}"]


def figures_of(batch: int):
    def figures(_telemetry: h5py.File, steps: list, _seconds: float) -> dict:
        s = {name: steps[0][name][:] for name in ("requests", "prefill_tokens", "accepted", "draft_calls", "duration",
                                                  "draft_duration")}
        full = (s["prefill_tokens"] == 0) & (s["requests"] == batch)
        requests, accepted, calls = (s[name][full].astype(int) for name in ("requests", "accepted", "draft_calls"))
        return {
            "rate": float((requests + accepted).sum() / s["duration"][full].sum()),
            "tokens": float((requests + accepted).sum() / requests.sum()),
            "calls": float(calls.sum() / requests.sum()),
            "drafting": float(s["draft_duration"][full].sum() / s["duration"][full].sum()),
            "by_accepted": Counter(accepted.tolist()),
            "by_calls": Counter(calls.tolist()),
        }
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="paceline")
    parser.add_argument("--stop", required=True, help="the stop policy")
    parser.add_argument("--target", help="the same function at other costs (pad_target.py)")
    parser.add_argument("--head", default=str(MODELS / "eagle3"))
    parser.add_argument("--noise", default="false", help="whether trees are ranked under the target's noise")
    parser.add_argument("--batches", default="1,4")
    parser.add_argument("--temperatures", default="1,0")
    parser.add_argument("--total", type=int, default=60)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=256, help="of a response at most")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--figures", type=Path)
    arguments = parser.parse_args()
    head = "{method: eagle3, path: %s, noise: %s%s}" % (arguments.head, arguments.noise, "%s")
    most = arguments.total - 1

    def tree(length: int, stop: str = "") -> list[str]:
        return drafting(head % stop, length, 10, min(most, 10 * length))

    arms = {
        "plain": [],
        "draft model, 8": drafting("{method: model, path: %s}" % (MODELS / "draft"), 8, 1, 8),
        "EAGLE-2's depth, 6": tree(6),
        "EAGLE-3, 2 calls": tree(2),
        "EAGLE-3, 4 calls": tree(4),
        "EAGLE-3, 8 calls": tree(8),
        "RADAR": tree(8, ", stop: %s" % arguments.stop),
    }
    shown = {}
    print("batch  T  arm                 tokens/s  speedup  min-max    tokens a cycle  calls a cycle  draft, %")
    for batch in [int(b) for b in arguments.batches.split(",")]:
        for temperature in arguments.temperatures.split(","):
            base = [f"engine.max_batch={batch}", f"sampling.temperature={temperature}", "engine.kv_memory=64MiB",
                    f"sampling.max_tokens={arguments.tokens}", f"prompts.samples={batch}"]
            if arguments.target:
                base.append(f"model.path={arguments.target}")
            results: dict[str, list[dict]] = {name: [] for name in arms}
            with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as prompts:
                prompts.writelines(embedded_prompts(arguments.prompts))
                prompts.flush()
                base.append(f"prompts.path={prompts.name}")
                for repeat in range(arguments.repeats):
                    for name in list(arms) if repeat % 2 == 0 else list(arms)[::-1]:
                        results[name].append(rollout(arguments.program, [*base, *arms[name], f"sampling.seed={repeat + 1}"],
                                                     figures_of(batch), ranks=1))
            for name, runs in results.items():
                ratios = [r["rate"] / plain["rate"] for r, plain in zip(runs, results["plain"])]
                mean = {key: statistics.median(r[key] for r in runs) for key in ("rate", "tokens", "calls", "drafting")}
                print(f"{batch:5} {temperature:>2}  {name:18} {mean['rate']:9.0f} {statistics.median(ratios):8.2f}  "
                      f"{min(ratios):4.2f}-{max(ratios):4.2f} {mean['tokens']:15.2f} {mean['calls']:14.2f} "
                      f"{100 * mean['drafting']:9.1f}", flush=True)
                if batch == 1:
                    shown[f"{name}, T = {temperature}"] = {
                        key: np.array([sum((r[key] for r in runs), Counter())[i] for i in range(9)]).tolist()
                        for key in ("by_calls", "by_accepted")}
    if arguments.figures:
        arguments.figures.write_text(json.dumps(shown, indent=2) + "\n")


main()
