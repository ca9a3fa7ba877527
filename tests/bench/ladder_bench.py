#!/usr/bin/env python3
"""What each way to draft is worth over a training: ladder_bench.py PACELINE WORK [OPTION...].

WORK is of a grpo.py run: its policies, and its drafters if it trained one along (--train-drafter). Each of its policies in
turn answers the same prompts, as where prompts come back at every step, under a seed and a weight version of its own, on
one rank of one thread. An arm is a way to draft; that all arms' digests are equal at every step is checked. Tokens a step
are those of a request's decoding steps; seconds go from the first step of each rollout to the end of its last, medians of
--repeats in turns, summed over all rollouts. The arm `foreseen` asks what idle ranks could give at most: its history also
has all responses of the step by the weights of the step before, under the step's own noise, which is not counted. The last
--seldom prompts are asked at every --period-th step alone, so that their newest texts are so old. By age in steps: how
often the likeliest token of drafts from earlier steps was right, and how many tokens these were of all that were said.
With --folder the same command goes on where it was stopped. Needs h5py and numpy.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from rollouts import LAUNCH, ROOT
from steps_bench import ages_of, figures

SUFFIX = "{method: suffix}"


def newest(work: Path, kind: str, step: int, first: Path) -> Path:
    """The drafter that a step began with: the last one handed over before it."""
    there = [path for path in work.glob(f"{kind}-???") if int(path.name[-3:]) <= step]
    return max(there, default=first)


class Ladder:
    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        self.said, self.folder, self.work = arguments, folder, arguments.work.resolve()
        self.arms = arguments.arms.split(",")
        self.lines = (self.work / "step-000.jsonl").read_text().splitlines(keepends=True)[: arguments.prompts]
        self.notes = folder / "figures.jsonl"
        self.made: dict[tuple, dict] = {}  # by repeat, step and arm
        if self.notes.exists():
            for line in self.notes.read_text().splitlines():
                try:
                    note = json.loads(line)
                except json.JSONDecodeError:
                    continue  # it was stopped while it wrote
                self.made[note["repeat"], note["step"], note["arm"]] = note
        self.digests = {key[1]: note["digest"] for key, note in self.made.items() if key[0] == 0}

    def drafters(self, arm: str, step: int) -> str:
        models = ROOT / "configs/models"
        if arm.startswith("draft"):
            path = newest(self.work, "drafter", step, models / "draft") if arm.endswith("along") else models / "draft"
            return f"[{SUFFIX}, {{method: model, path: {path}}}]"
        if arm.startswith("head"):
            path = newest(self.said.heads, "head", step, models / "eagle3") if arm.endswith("along") else models / "eagle3"
            return f"[{SUFFIX}, {{method: eagle3, path: {path}, noise: true}}]"
        return f"[{SUFFIX}]"

    def roll_out(self, arm: str, step: int, weights: int, output: Path) -> None:
        shutil.rmtree(output, ignore_errors=True)  # of an earlier repeat, or cut short
        output.parent.mkdir(parents=True, exist_ok=True)
        prompts = self.folder / f"prompts-{step:03}.jsonl"
        often = len(self.lines) if step % self.said.period == 0 else len(self.lines) - self.said.seldom
        prompts.write_text("".join(self.lines[:often]))
        settings = [f"model.path={self.work}/policy-{weights:03}", f"model.weight_version={step}", f"sampling.seed={step}",
                    f"sampling.temperature={self.said.temperature}", f"prompts.path={prompts}",
                    f"prompts.samples={self.said.samples}", f"sampling.max_tokens={self.said.tokens}",
                    f"engine.max_batch={self.said.requests}", "engine.threads=1",
                    f"speculation.drafters={self.drafters(arm, step)}", f"speculation.policy={self.said.policy}"]
        if arm == "plain":
            settings.append("speculation.mode=plain")
        elif arm != "suffix":
            settings.append(f"speculation.history={output.parent}")
        sets = [word for s in settings for word in ("--set", s)]
        done = subprocess.run([str(LAUNCH), "1", self.said.program, "rollout", str(ROOT / "configs/quickstart.yaml"),
                               "--output", str(output), *sets], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(done.stdout + done.stderr)

    def make(self, repeat: int, step: int, arm: str) -> None:
        output = self.folder / arm.replace(" ", "-") / f"step-{step:03}"
        if (repeat, step, arm) in self.made and output.exists():
            return
        foreseen = output.with_name(f"step-{step - 1:03}-foreseen")
        if arm == "foreseen" and step > 0 and repeat == 0:
            self.roll_out(arm, step, step - 1, foreseen)
        self.roll_out(arm, step, step, output)
        note = {"repeat": repeat, "step": step, "arm": arm, **figures(output)}
        if repeat == 0:
            note["digest"] = subprocess.run([self.said.program, "digest", str(output)], capture_output=True, text=True,
                                            check=True).stdout
            if self.digests.setdefault(step, note["digest"]) != note["digest"]:
                sys.exit(f"{arm}, step {step}: another digest")
        self.made[repeat, step, arm] = note
        with self.notes.open("a") as file:
            file.write(json.dumps(note) + "\n")

    def report(self, repeats: int) -> None:
        def pace(steps: list[dict]) -> float:
            return sum(f["tokens"] for f in steps) / sum(f["rows"] for f in steps)

        def seconds(arm: str) -> float:
            return sum(statistics.median(self.made[r, step, arm]["span"] for r in range(repeats))
                       for step in range(self.said.steps))

        print(f"seconds: medians of {repeats}\n{'':11} tokens a step of decoding: all  first 5, last 5   seconds  "
              f"by {self.arms[0]}'s   by step")
        for arm in self.arms:
            made = [self.made[0, step, arm] for step in range(self.said.steps)]
            print(f"{arm:11} {pace(made):30.2f}     {pace(made[:5]):.2f}, {pace(made[-5:]):.2f} {seconds(arm):9.2f} "
                  f"{seconds(arm) / seconds(self.arms[0]):11.2f}   {' '.join(f'{pace([f]):.1f}' for f in made)}", flush=True)
            if ages := ages_of(made):
                print(f"{'':11} by age: {ages}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="paceline")
    parser.add_argument("work", type=Path, help="of grpo.py")
    parser.add_argument("--heads", type=Path, help="a folder with heads that draft_trainer.py handed over, head-NNN")
    parser.add_argument("--arms", default="plain,suffix,history,foreseen,draft,draft along,head")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--prompts", type=int, default=3)
    parser.add_argument("--seldom", type=int, default=0, help="of the prompts")
    parser.add_argument("--period", type=int, default=8, help="in steps")
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--temperature", type=float, default=1)
    parser.add_argument("--requests", type=int, default=1, help="in a batch")
    parser.add_argument("--policy", default="fixed")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="for the rollouts and their figures, kept")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = (arguments.folder or Path(name)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        ladder = Ladder(arguments, folder)
        for repeat in range(arguments.repeats):
            for step in range(arguments.steps):
                for arm in ladder.arms[::1 if (repeat + step) % 2 == 0 else -1]:
                    ladder.make(repeat, step, arm)
            ladder.report(repeat + 1)


if __name__ == "__main__":
    main()
