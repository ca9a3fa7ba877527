#!/usr/bin/env python3
"""What ranks that run dry give the next step: pregeneration_bench.py PACELINE WORK [OPTION...].

WORK is of a grpo.py run. A resident job of two ranks of one thread is asked for --steps of its policies in turn, each with
the same prompts under noise of its own; the next step is announced before (NAME.upcoming), as a trainer does that has no
new weights yet. Three responses of one length, one at a time a rank: a rank has nothing to do while the other says the last
one, for a third of the step or so. Suffix trees draft, with history of all steps; with pregeneration also from what ranks that had run dry
said ahead. Digests of both are equal at every step. From the second step on: seconds from the first step of any rank to
the last response's end, seconds of the last tenth of the responses, tokens a decoding step of a request, and how many
tokens a step had been pregenerated: medians over --repeats jobs in turns, summed or meant over steps. Needs h5py and numpy.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np

from rollouts import LAUNCH, ROOT

sys.path.insert(0, str(ROOT / "io" / "python"))
from paceline_reader import Steps


def figures(directory: Path) -> dict:
    with h5py.File(directory / "telemetry.h5") as telemetry:
        made = [rank["steps"] for rank in telemetry["ranks"].values() if len(rank["steps/start"])]
        rows = sum(float((s["decode_tokens"][:] - s["drafted"][:]).sum()) for s in made)
        accepted = sum(float(s["accepted"][:].sum()) for s in made)
        kinds = telemetry["requests/kind"]
        ends = np.sort(telemetry["requests/time"][:][kinds[:] == kinds.attrs["finished"]])
        return {"seconds": float(ends[-1] - min(s["start"][0] for s in made)),
                "tail": float(ends[-1] - ends[len(ends) * 9 // 10 - 1]),
                "tokens": rows + accepted, "rows": rows, "pregenerated": float(telemetry["summary/pregenerated"][:].sum())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="paceline")
    parser.add_argument("work", type=Path, help="of grpo.py")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--prompts", type=int, default=3)
    parser.add_argument("--samples", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=1500)
    parser.add_argument("--requests", type=int, default=1, help="in a batch of a rank")
    parser.add_argument("--policy", default="fixed")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--set", dest="settings", action="append", default=[], help="for all jobs")
    arguments = parser.parse_args()
    work = arguments.work.resolve()
    arms = {"history": "false", "and pregenerated": "true"}
    made: dict[str, list[list[dict]]] = {arm: [] for arm in arms}  # [arms][repeats][steps]
    digests: dict[int, str] = {}
    with tempfile.TemporaryDirectory() as name:
        prompts = Path(name) / "prompts.jsonl"
        prompts.write_text("".join((work / "step-000.jsonl").read_text().splitlines(keepends=True)[: arguments.prompts]))

        def request(step: int) -> dict:
            return {"model": {"path": str(work / f"policy-{step:03}"), "weight_version": step}, "sampling": {"seed": step}}

        for repeat in range(arguments.repeats):
            for arm in list(arms)[::1 if repeat % 2 == 0 else -1]:
                settings = [f"prompts.path={prompts}", f"prompts.samples={arguments.samples}",
                            f"sampling.max_tokens={arguments.tokens}", "sampling.ignore_eos=true", f"engine.max_batch={arguments.requests}",
                            "engine.threads=1", "speculation.drafters=[{method: suffix}]",
                            f"speculation.policy={arguments.policy}", "speculation.history=auto",
                            f"speculation.pregenerate={arms[arm]}", *arguments.settings]
                folder = Path(name) / f"{arms[arm]}-{repeat}"
                found = []
                with Steps.launch(ROOT / "configs/quickstart.yaml", folder, [str(LAUNCH), "2"], arguments.program,
                                  settings) as steps:
                    for step in range(arguments.steps):
                        if step + 1 < arguments.steps:
                            announced = request(step + 1)
                            del announced["model"]["path"]  # no new weights yet
                            steps.announce(f"step-{step + 1:03}", announced)
                        steps.submit(f"step-{step:03}", request(step), timeout=300)
                        output = folder / f"step-{step:03}"
                        digest = subprocess.run([arguments.program, "digest", str(output)], capture_output=True, text=True,
                                                check=True).stdout
                        if digests.setdefault(step, digest) != digest:
                            sys.exit(f"{arm}, step {step}: another digest")
                        found.append(figures(output))
                made[arm].append(found)
    print("                   seconds a step  over history's   tail, s  tokens a step  pregenerated a step")
    later = range(1, arguments.steps)
    for arm, runs in made.items():
        def middle(what: str, step: int) -> float:
            return statistics.median(run[step][what] for run in runs)

        def mean(what: str) -> float:
            return statistics.mean(middle(what, step) for step in later)

        ratio = statistics.median(sum(run[step]["seconds"] for step in later) / sum(other[step]["seconds"] for step in later)
                                  for run, other in zip(runs, made["history"]))
        pace = sum(middle("tokens", step) for step in later) / sum(middle("rows", step) for step in later)
        ahead = statistics.mean(middle("pregenerated", step - 1) for step in later)
        print(f"{arm:18} {mean('seconds'):14.3f} {ratio:15.2f} {mean('tail'):9.3f} {pace:14.2f} {ahead:20.0f}", flush=True)


if __name__ == "__main__":
    main()
