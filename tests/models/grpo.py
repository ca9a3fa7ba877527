"""A GRPO loop in PyTorch around paceline: how a trainer uses it, and a proof of what it hands over.

    python grpo.py WORK --paceline ../../build/release/app/paceline
    python grpo.py WORK2 --paceline ../../build/release/app/paceline --compare

Each step writes the policy as a Hugging Face checkpoint, has a job that stays (`paceline rollout --watch`) generate
and score responses, reads them with paceline_reader, and trains on them. PyTorch computes the log-probabilities of
all tokens again and the table says how far the rollout's are from them. Nothing else is needed of paceline than the
`Steps` of its Python package.

The same command gives the same weights to the bit: a rollout is a pure function of weights, prompts and seed, and
PyTorch is kept to one number of threads and deterministic algorithms. So with drafters, which change how fast tokens
come and never which, every reward of every step comes out again. `--compare` rolls each step out plainly too, to
compare both and what they take.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import shlex
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator

import numpy as np
import torch

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "io" / "python"))

from draft_trainer import WINDOW, DraftTrainer
from grpo_update import Policy, Sample, advantages, agreement, chosen_anew, recomputed, train
from model import Shape
from paceline_reader import Prompt, ReaderError, Steps, acceptance, open_run
from pictures import seen_of
from tasks import TASKS as ALL_TASKS
from tower import Seen
from train_eagle3 import read_documents

# Prompts whose answers the model can work out in a hundred tokens or so, though not always rightly.
TASKS = ("sort", "expr")
LONGEST_QUESTION = 48  # characters
PROMPTS = ROOT / "configs/prompts"

# ---------------------------------------------------------------- the rollout


def roll_out(job: Steps, name: str, weights: Path, version: int, prompts: Path, seed: int,
             drafters: list[dict] | None = None) -> Path:
    """Responses of `weights` to `prompts`: where they are, once all are there.

    The weights' version is part of the noise, so that a prompt that comes again is answered anew. `drafters`: other
    than the configuration's.
    """
    request = {
        "model": {"path": str(weights), "weight_version": version}, "prompts": {"path": str(prompts)},
        "sampling": {"seed": seed},
    }
    if drafters is not None:
        request["speculation"] = {"drafters": drafters}
    with job.submit(name, request) as run:
        return Path(run.path).parent


def digest_of(program: str, run: Path) -> str:
    """Of every bit of a run's trajectories."""
    done = subprocess.run([program, "digest", str(run)], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def seen_by(prompt: Prompt, shape: Shape) -> Seen | None:
    """The pictures of a prompt, whose patches are to be those that the run made of them."""
    if not prompt.pictures:
        return None
    images = [np.asarray(picture.image().convert("RGB")) for picture in prompt.pictures]
    seen = seen_of(images, [picture.first for picture in prompt.pictures], shape.tower)
    if seen.grids != [picture.grid[1:] for picture in prompt.pictures]:
        sys.exit(f"grpo: the pictures of prompt {prompt.uid} have other sizes here than in the run")
    return seen


def read_samples(directory: Path, shape: Shape) -> list[Sample]:
    """A run's responses with their rewards and advantages, in (prompt, sample) order. `shape`: the model's."""
    with open_run(directory) as run:
        # The reader has NaN where scoring failed.
        rewards = torch.tensor(run.reward, dtype=torch.float32)
        if rewards.isnan().any():
            sys.exit(f"grpo: {directory}: {int(rewards.isnan().sum())} responses have no reward")
        groups = advantages(rewards.view(len(run.prompts), -1)).flatten().tolist()
        prompts = [prompt.tokens.tolist() for prompt in run.prompts]
        seen = [seen_by(prompt, shape) for prompt in run.prompts]
        sampled = [torch.from_numpy(response.loss_mask).bool() for response in run]
        return [
            Sample(
                tokens=prompts[response.prompt_index] + response.tokens.tolist(),
                prompt=len(prompts[response.prompt_index]),
                logprobs=torch.from_numpy(response.sampling_logprob.copy())[sampled[index]],
                reward=response.reward,
                advantage=advantage,
                routing=torch.from_numpy(run.routed_experts(index)).long() if run.keeps_routing else None,
                seen=seen[response.prompt_index],
                sampled=sampled[index],
                turns=len(response.turns) + (len(response.tokens) > (response.turns[-1].end if response.turns else 0)),
            )
            for index, (response, advantage) in enumerate(zip(run, groups))
        ]


@dataclass
class Along:
    """The drafter beside the suffix trees, by a name that stays, and what trains it; none: it stays as it is."""

    path: Path
    trainer: DraftTrainer | None

    def setting(self) -> dict:
        architecture = json.loads((self.path / "config.json").read_text())["architectures"][0]
        return {"method": "eagle3" if "Eagle3" in architecture else "model", "path": str(self.path), "name": "along"}

    def learn(self, policy: Policy, run: Path, output: Path) -> dict:
        """Trains towards the policy as it is now. One that accepts less is not handed over."""
        if self.trainer is None:
            return {}
        verdict = self.trainer.learn(policy.model, read_documents(run, longest=1024))
        if verdict.better:
            self.trainer.export(output)
            self.path = output
        return {"before": verdict.before, "after": verdict.after}

    @staticmethod
    def accepted(run: Path) -> float:
        """The share of its drafted tokens that a rollout took."""
        table = acceptance(run, by="drafter")
        own = [str(name).endswith("along") for name in table["drafter"]]
        drafted = int(table["drafted"][own].sum())
        return int(table["accepted"][own].sum()) / drafted if drafted else float("nan")


# ---------------------------------------------------------------- the loop

@contextmanager
def timed(seconds: dict[str, float], what: str) -> Iterator[None]:
    started = time.monotonic()
    yield
    seconds[what] = time.monotonic() - started


def prompt_lines(path: Path) -> list[str]:
    """The lines of a prompt file that are taken: of the target's tasks some, all others."""
    chosen = []
    for line in path.read_text().splitlines(keepends=True):
        row = json.loads(line)
        task, question = row["extra_info"]["task"], row["prompt"][0]["content"]
        if task not in ALL_TASKS or (task in TASKS and len(question) <= LONGEST_QUESTION):
            chosen.append(line)
    return chosen


def mean_reward(samples: list[Sample]) -> float:
    return sum(sample.reward for sample in samples) / len(samples)


@dataclass
class Loop:
    """All steps, in a directory of their own: policy-N, the prompts of each rollout, and the jobs' folders."""

    program: str
    job: Steps
    plain: Steps | None  # to compare with
    policy: Policy
    work: Path
    seed: int
    steps: int
    prompts: list[str]  # lines
    prompts_per_step: int
    unseen: list[str]  # lines
    replays: bool  # the experts of the rollout
    along: Along | None

    def __post_init__(self) -> None:
        random.Random(self.seed).shuffle(self.prompts)
        self.generator = torch.Generator().manual_seed(self.seed)

    def generate(self, name: str, version: int, lines: list[str]) -> tuple[list[Sample], dict[str, float]]:
        """Responses of the policy as it is, and the seconds that it took to write it and to roll it out."""
        seconds: dict[str, float] = {}
        prompts = self.work / f"{name}.jsonl"
        prompts.write_text("".join(lines))
        weights = self.work / f"policy-{version:03}"
        with timed(seconds, "export"):
            if not weights.exists():
                self.policy.export(weights)
        arms = [("rollout", self.job)]
        if self.plain:
            arms.append(("plain rollout", self.plain))
        runs = {}
        drafters = None if self.along is None else [{"method": "suffix"}, self.along.setting()]
        # In turns, so that neither is always the first to read a new checkpoint.
        for what, job in arms[:: -1 if version % 2 else 1]:
            with timed(seconds, what):
                runs[what] = roll_out(job, name, weights, version, prompts, self.seed, drafters)
        shape = self.policy.model.shape
        samples = read_samples(runs["rollout"], shape)
        if self.plain:
            rewards = [[sample.reward for sample in read_samples(run, shape)] for run in runs.values()]
            digests = [digest_of(self.program, run) for run in runs.values()]
            if rewards[0] != rewards[1] or digests[0] != digests[1]:
                sys.exit(f"grpo: {runs['rollout']} differs from {runs['plain rollout']}")
        return samples, seconds

    def examine(self, version: int) -> float:
        """Mean reward on unseen prompts."""
        return mean_reward(self.generate(f"unseen-{version:03}", version, self.unseen)[0])

    def step(self, number: int) -> dict:
        first = number * self.prompts_per_step
        lines = [self.prompts[(first + i) % len(self.prompts)] for i in range(self.prompts_per_step)]
        name = f"step-{number:03}"
        samples, seconds = self.generate(name, number, lines)
        old = torch.cat([sample.logprobs for sample in samples])
        with timed(seconds, "log-probabilities"):
            new = recomputed(self.policy.model, samples)
        run = Path(self.job.folder) / name
        figures = {
            "step": number, "reward": mean_reward(samples),
            "turns": sum(sample.turns for sample in samples) / len(samples), "digest": digest_of(self.program, run),
            "tokens": len(old), "accepted": int(acceptance(run)["accepted"].sum()),
            **agreement(new, old), "seconds": seconds,
        }
        if samples[0].routing is not None:
            figures["chosen_anew"] = agreement(recomputed(self.policy.model, chosen_anew(samples)), old)
        if number + 1 == self.steps:
            figures["bf16"] = agreement(recomputed(self.policy.model, samples, bf16=True), new)
        with timed(seconds, "updates"):
            train(self.policy, samples, self.generator)
        if self.along is not None:
            figures["draft_rate"] = self.along.accepted(run)
            with timed(seconds, "drafter"):
                figures["drafter"] = self.along.learn(self.policy, run, self.work / f"drafter-{number + 1:03}")
        return figures

    def run(self) -> dict:
        """All figures; prints those of each step as they come."""
        figures: dict = {"steps": [], "unseen": {}}
        if self.unseen:
            figures["unseen"]["before"] = self.examine(0)
        print("step  reward  turns  ratio: mean    spread  largest |difference|  tokens  rollout, s  tokens/s  train, s"
              + ("  plain rollout, s" if self.plain else "") + ("  drafts taken" if self.along else "") + ("  experts chosen anew: mean    spread" if self.replays else ""))
        for number in range(self.steps):
            row = self.step(number)
            figures["steps"].append(row)
            seconds = row["seconds"]
            print(f"{number:4}  {row['reward']:6.4f}  {row['turns']:5.2f}  {row['ratio_mean']:11.6f}  {row['ratio_std']:8.6f}  "
                  f"{row['largest_difference']:20.4f}  {row['tokens']:6}  {seconds['rollout']:10.2f}  "
                  f"{row['tokens'] / seconds['rollout']:8.0f}  "
                  f"{seconds['log-probabilities'] + seconds['updates']:8.2f}"
                  + (f"  {seconds['plain rollout']:16.2f}" if self.plain else "")
                  + (f"  {row['draft_rate']:12.3f}" if self.along else "")
                  + ("  of {} {before:.3f} before, {after:.3f} after training".format(WINDOW, **row["drafter"])
                     if row.get("drafter") else "")
                  + ("  {ratio_mean:25.6f}  {ratio_std:8.6f}".format(**row["chosen_anew"]) if self.replays else ""),
                  flush=True)
        last = self.work / f"policy-{self.steps:03}"
        if self.unseen:
            figures["unseen"]["after"] = self.examine(self.steps)
        else:
            self.policy.export(last)
        figures["policy"] = hashlib.sha256((last / "model.safetensors").read_bytes()).hexdigest()
        return figures


def print_summary(figures: dict) -> None:
    steps, own = figures["steps"], figures["steps"][-1]["bf16"]
    print(f"\nPyTorch's own bf16 against its fp32, last step: ratio {own['ratio_mean']:.6f}, spread "
          f"{own['ratio_std']:.6f}, largest |difference| {own['largest_difference']:.4f}")
    if figures["unseen"]:
        print(f"reward on unseen prompts: {figures['unseen']['before']:.4f} before, {figures['unseen']['after']:.4f} after")
    seconds = {what: sum(row["seconds"][what] for row in steps) for what in steps[0]["seconds"]}
    plain = seconds.pop("plain rollout", None)
    total = sum(seconds.values())
    shares = ", ".join(f"{what} {100 * part / total:.0f} %" for what, part in seconds.items())
    print(f"{len(steps)} steps in {total:.0f} s: {shares}")
    if plain is not None:
        accepted, tokens = (sum(row[name] for row in steps) for name in ("accepted", "tokens"))
        print(f"rollouts took {seconds['rollout']:.1f} s, plainly {plain:.1f} s; {100 * accepted / tokens:.0f} % of the "
              "tokens were drafted; every reward and every bit of the trajectories is the same")


def arguments_of() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path, help="a new directory for checkpoints and runs")
    parser.add_argument("--paceline", default="paceline", help="the program")
    parser.add_argument("--launch", default="mpirun -n 2", help="what starts its ranks")
    parser.add_argument("--config", type=Path, default=HERE / "grpo.yaml")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting for all rollouts")
    parser.add_argument("--model", type=Path, default=ROOT / "configs/models/target", help="the policy to begin with")
    parser.add_argument("--prompts", type=Path, help="train.jsonl, or of a model that reads pictures pictures-train.jsonl")
    parser.add_argument("--unseen", type=Path, help="likewise unseen.jsonl or pictures-unseen.jsonl")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--prompts-per-step", type=int, default=24)
    parser.add_argument("--unseen-prompts", type=int, default=64, help="for rewards before and after; 0 is none")
    parser.add_argument("--rate", type=float, default=1e-4, help="of AdamW")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch")
    parser.add_argument("--compare", action="store_true", help="roll out without drafters too, by a job of its own")
    parser.add_argument("--drafter", type=Path, help="a draft model or an EAGLE-3 head that drafts beside suffix trees")
    parser.add_argument("--train-drafter", action="store_true", help="keep it up with the policy, after every step")
    parser.add_argument("--drafter-steps", type=int, default=8, help="updates of the drafter a step")
    parser.add_argument("--replay", action="store_true", help="train with the experts that the rollout took, of a mixture")
    parser.add_argument("--figures", type=Path, help="a JSON file for all figures")
    arguments = parser.parse_args()
    if arguments.steps < 1 or arguments.prompts_per_step < 1:
        parser.error("there is nothing to do without steps and prompts")
    if arguments.train_drafter and arguments.drafter is None:
        parser.error("--train-drafter needs --drafter")
    return arguments


def main() -> None:
    arguments = arguments_of()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # by way of __exit__: no job is left behind
    torch.set_num_threads(arguments.threads)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # nothing here reads such
    policy = Policy(arguments.model, arguments.rate)
    pictured = policy.model.shape.tower is not None
    arguments.prompts = arguments.prompts or PROMPTS / ("pictures-train.jsonl" if pictured else "train.jsonl")
    arguments.unseen = arguments.unseen or PROMPTS / ("pictures-unseen.jsonl" if pictured else "unseen.jsonl")
    prompts = prompt_lines(arguments.prompts)
    if len(prompts) < arguments.prompts_per_step:
        sys.exit(f"grpo: {arguments.prompts} has {len(prompts)} prompts to take, and a step needs "
                 f"{arguments.prompts_per_step}")
    if pictured and arguments.train_drafter:
        sys.exit("grpo: --train-drafter: expected a model of texts, for drafters are trained on texts alone; "
                 f"{arguments.model} reads pictures")
    if arguments.work.exists():
        sys.exit(f"grpo: {arguments.work} is there already")
    arguments.work.mkdir(parents=True)
    work = arguments.work.resolve()
    try:
        with ExitStack() as jobs:
            if arguments.replay:
                arguments.set.append("sampling.keep_routing=true")

            def resident(name: str, *settings: str) -> Steps:
                return jobs.enter_context(Steps.launch(
                    arguments.config, work / name, shlex.split(arguments.launch), arguments.paceline,
                    [*arguments.set, *settings]))

            along = None
            if arguments.drafter is not None:
                path = arguments.drafter.resolve()
                trainer = DraftTrainer(path, policy.model, arguments.drafter_steps, 2048) if arguments.train_drafter else None
                along = Along(path, trainer)
            loop = Loop(
                program=arguments.paceline,
                job=resident("rollouts"),
                plain=resident("plain", "speculation.mode=plain") if arguments.compare else None,
                policy=policy,
                work=work,
                seed=arguments.seed,
                steps=arguments.steps,
                prompts=prompts,
                prompts_per_step=arguments.prompts_per_step,
                unseen=prompt_lines(arguments.unseen)[: arguments.unseen_prompts],
                replays=arguments.replay,
                along=along,
            )
            figures = loop.run()
    except ReaderError as error:  # the request was refused, or the job ended
        sys.exit(f"grpo: {error}")
    print_summary(figures)
    if arguments.figures:
        arguments.figures.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
