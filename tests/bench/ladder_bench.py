#!/usr/bin/env python3
"""What each way to draft is worth over a training: ladder_bench.py PACELINE WORK [OPTION...].

WORK is of a grpo.py run: its policies, and its drafters if it trained one along (--train-drafter). Each of its policies in
turn answers the same prompts, as where prompts come back at every step, under a seed and a weight version of its own, on
one rank of one thread. An arm is a way to draft; that all arms' digests are equal at every step is checked. Tokens a step
are those of a request's decoding steps. The arm `foreseen` asks what idle ranks could give at most: its history also has
all responses of the step by the weights of the step before, under the step's own noise. Needs h5py and numpy.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from rollouts import LAUNCH, ROOT
from steps_bench import figures

SUFFIX = "{method: suffix}"


def newest(work: Path, kind: str, step: int, first: Path) -> Path:
    """The drafter that a step began with: the last one handed over before it."""
    there = [path for path in work.glob(f"{kind}-???") if int(path.name[-3:]) <= step]
    return max(there, default=first)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="paceline")
    parser.add_argument("work", type=Path, help="of grpo.py")
    parser.add_argument("--heads", type=Path, help="a folder with heads that draft_trainer.py handed over, head-NNN")
    parser.add_argument("--arms", default="plain,suffix,history,foreseen,draft,draft along,head")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--prompts", type=int, default=3)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--requests", type=int, default=1, help="in a batch")
    parser.add_argument("--policy", default="fixed")
    arguments = parser.parse_args()
    work, models = arguments.work.resolve(), ROOT / "configs/models"

    def drafters(arm: str, step: int) -> str:
        if arm.startswith("draft"):
            path = newest(work, "drafter", step, models / "draft") if arm.endswith("along") else models / "draft"
            return f"[{SUFFIX}, {{method: model, path: {path}}}]"
        if arm.startswith("head"):
            path = newest(arguments.heads, "head", step, models / "eagle3") if arm.endswith("along") else models / "eagle3"
            return f"[{SUFFIX}, {{method: eagle3, path: {path}, noise: true}}]"
        return f"[{SUFFIX}]"

    lines = (work / "step-000.jsonl").read_text().splitlines(keepends=True)[: arguments.prompts]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "prompts.jsonl").write_text("".join(lines))
        digests: dict[int, str] = {}
        print("tokens a step of decoding, by step                                  all  first 5, last 5   seconds")
        for arm in arguments.arms.split(","):
            made: list[dict] = []

            def rolled(output: Path, step: int, weights: int) -> None:
                settings = [f"model.path={work}/policy-{weights:03}", f"model.weight_version={step}", f"sampling.seed={step}",
                            f"prompts.path={folder}/prompts.jsonl", f"prompts.samples={arguments.samples}",
                            f"sampling.max_tokens={arguments.tokens}", f"engine.max_batch={arguments.requests}",
                            "engine.threads=1", f"speculation.drafters={drafters(arm, step)}",
                            f"speculation.policy={arguments.policy}"]
                if arm == "plain":
                    settings.append("speculation.mode=plain")
                elif arm != "suffix":
                    output.parent.mkdir(exist_ok=True)
                    settings.append(f"speculation.history={output.parent}")
                sets = [word for s in settings for word in ("--set", s)]
                done = subprocess.run([str(LAUNCH), "1", arguments.program, "rollout", str(ROOT / "configs/quickstart.yaml"),
                                       "--output", str(output), *sets], capture_output=True, text=True, check=False)
                if done.returncode != 0:
                    sys.exit(done.stdout + done.stderr)

            for step in range(arguments.steps):
                output = folder / arm.replace(" ", "-") / f"step-{step:03}"
                if arm == "foreseen" and step > 0:
                    rolled(output.with_name(f"step-{step - 1:03}-foreseen"), step, step - 1)
                rolled(output, step, step)
                digest = subprocess.run([arguments.program, "digest", str(output)], capture_output=True, text=True,
                                        check=True).stdout
                if digests.setdefault(step, digest) != digest:
                    sys.exit(f"{arm}, step {step}: another digest")
                made.append(figures(output))

            def pace(steps: list[dict]) -> float:
                return sum(f["tokens"] for f in steps) / sum(f["rows"] for f in steps)

            print(f"{arm:11} {' '.join(f'{pace([f]):.1f}' for f in made)}  {pace(made):.2f}  {pace(made[:5]):.2f}, "
                  f"{pace(made[-5:]):.2f}  {sum(f['seconds'] for f in made):8.1f}", flush=True)


if __name__ == "__main__":
    main()
