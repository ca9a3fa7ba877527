#!/usr/bin/env python3
"""What it is worth to know how drafts did in earlier runs: history_bench.py PACELINE [OPTION...].

A first rollout leaves its drafters' rates beside the profile. A second one, of other prompts under another seed, starts
from them; the same one without them has to find out. For its first tenth, and for the whole: tokens accepted of those
drafted, tokens a step and seconds, of both, and the ratio of the seconds. Ranks of one thread, --requests together. The
first tenth of a rank ends with the step in which it has committed a tenth of its tokens; seconds are the mean of the
ranks'. Medians of runs in turns. Needs h5py.
"""

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np

from rollouts import LAUNCH, ROOT, embedded_prompts, id_prompts, rollout

CONFIG = ROOT / "configs/quickstart.yaml"


def figures(_: h5py.File, steps: list, seconds: float) -> dict:
    found: dict[str, list[float]] = {}
    for group in steps:
        columns = {name: group[name][:].astype(np.float64) for name in
                   ("start", "duration", "decode_tokens", "drafted", "accepted")}
        tokens = np.cumsum(columns["decode_tokens"] - columns["drafted"] + columns["accepted"])
        for part, share in (("tenth", 0.1), ("whole", 1.0)):
            count = int(np.searchsorted(tokens, share * tokens[-1])) + 1
            here = {name: column[:count] for name, column in columns.items()}
            for name, value in (("drafted", here["drafted"].sum()), ("accepted", here["accepted"].sum()),
                                ("tokens", tokens[min(count, len(tokens)) - 1]), ("steps", len(here["start"])),
                                ("seconds", here["start"][-1] + here["duration"][-1] - here["start"][0])):
                found.setdefault(f"{part} {name}", []).append(float(value))
    return {"seconds": seconds, **{name: statistics.mean(values) for name, values in found.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="paceline")
    parser.add_argument("--pair", help="a folder with target and draft (default: the embedded pair)")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--requests", default="2,8,32")
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    pair = Path(arguments.pair).resolve() if arguments.pair else ROOT / "configs/models"

    print("requests  history   first tenth: accepted, %  tokens/step  seconds  |  whole: accepted, %  tokens/step  seconds"
          "  |  seconds by known over unknown: tenth, whole")
    with tempfile.TemporaryDirectory() as folder:
        for requests in [int(n) for n in arguments.requests.split(",")]:
            lines = id_prompts(2 * requests) if arguments.pair else embedded_prompts(2 * requests)
            first, second = Path(folder) / "first.jsonl", Path(folder) / "second.jsonl"
            first.write_text("".join(lines[:requests]))
            second.write_text("".join(lines[requests:]))
            costs, known = Path(folder) / "unknown.yaml", Path(folder) / "known.yaml"
            base = [f"model.path={pair / 'target'}", "prompts.samples=1", "engine.threads=1", "sampling.ignore_eos=true",
                    f"sampling.max_tokens={arguments.tokens}", f"sampling.min_tokens={arguments.tokens}",
                    "speculation.mode=coupled",
                    "speculation.drafters=[{method: suffix}, {method: model, path: %s}]" % (pair / "draft")]
            sets = [word for s in [*base, f"prompts.path={first}"] for word in ("--set", s)]
            done = subprocess.run([str(LAUNCH), str(arguments.ranks), arguments.program, "profile", str(CONFIG), "--output",
                                   str(costs), "--seconds", "5", *sets], capture_output=True, text=True, check=False)
            if done.returncode != 0:
                sys.exit(done.stdout + done.stderr)
            shutil.copy(costs, known)
            rollout(arguments.program, [*base, f"prompts.path={first}", f"engine.profile={known}"], figures, arguments.ranks)
            if not known.with_suffix(".drafts.yaml").exists():
                sys.exit("the first run left no history")
            base += [f"prompts.path={second}", "speculation.keep_history=false"]
            arms = {"unknown": costs, "known": known}
            results: dict[str, list[dict]] = {name: [] for name in arms}
            for repeat in range(arguments.repeats):
                for name in list(arms)[::1 if repeat % 2 == 0 else -1]:
                    settings = [*base, f"engine.profile={arms[name]}", f"sampling.seed={repeat + 2}"]
                    results[name].append(rollout(arguments.program, settings, figures, arguments.ranks))
            for name, runs in results.items():
                row = f"{requests:8}  {name:8}"
                for part in ("tenth", "whole"):
                    accepted, per_step, seconds = (statistics.median(values) for values in zip(*(
                        (100 * r[f"{part} accepted"] / max(1, r[f"{part} drafted"]),
                         r[f"{part} tokens"] / r[f"{part} steps"], r[f"{part} seconds"]) for r in runs)))
                    row += f"  {accepted:23.1f}  {per_step:11.2f}  {seconds:7.4f}  |"
                ratios = [statistics.median(r[f"{part} seconds"] / u[f"{part} seconds"]
                                            for r, u in zip(runs, results["unknown"])) for part in ("tenth", "whole")]
                print(f"{row}  {ratios[0]:.2f}, {ratios[1]:.2f}", flush=True)


if __name__ == "__main__":
    main()
