"""The GRPO loop around the real program: PACELINE=build/release/app/paceline python tests/models/test_grpo.py

Needs PyTorch and the other packages of requirements.txt (transformers alone is not used); skipped without them. Every
rollout is one of a few seconds on two ranks, and nothing here depends on how long it takes.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
import unittest
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

try:
    import h5py  # noqa: F401
    import safetensors  # noqa: F401
    import tokenizers  # noqa: F401
    import torch
except ImportError as error:
    reason = f"the GRPO loop is not tested: {error.name} is not there"
    if __name__ == "__main__":
        print(f"SKIP: {reason}")
        sys.exit(77)
    raise unittest.SkipTest(reason) from error

from draft_trainer import HELD_OUT, WINDOW, DraftTrainer
from evaluate import load_directory, shape_at
from evaluate import sample as sample_responses
from grpo import digest_of, read_samples, roll_out
from grpo_update import CLIP, Policy, Sample, advantages, agreement, chosen_anew, loss_of, recomputed, response_logprobs
from model import Qwen2
from paceline_reader import JobEnded, StepRefused, Steps
from tasks import prompt_text
from tokenizers import Tokenizer
from tower import Seen
from train_eagle3 import Document

CONFIGS = HERE.parents[1] / "configs"
TARGET = CONFIGS / "models" / "target"
PICTURES = CONFIGS / "models" / "pictures"
CALCULATOR = CONFIGS / "models" / "calculator"
LAUNCH = HERE.parent / "mpi" / "launch.sh"
STEPS = 3
# One thread a rank, whatever else runs on the machine, and responses that are short enough for a test.
SETTINGS = ["engine.threads=1", "sampling.max_tokens=160"]
# The default drafts where it pays, which on a busy machine may be nowhere.
ALWAYS = ["speculation.policy=fixed", "speculation.max_length=4"]


def sample(prompt: list[int], response: list[int], advantage: float = 0.0) -> Sample:
    return Sample(prompt + response, len(prompt), torch.zeros(len(response)), 0.0, advantage)


class Parts(unittest.TestCase):
    def test_advantages_are_deviations_within_a_group(self) -> None:
        got = advantages(torch.tensor([[1.0, 0.0, 0.0, 1.0], [1.0, 1.0, 1.0, 1.0], [3.0, 0.0, 0.0, 0.0]]))
        # Deviations are those of a sample: sqrt(1/3), and 1.5.
        expected = [[3**0.5 / 2, -(3**0.5) / 2, -(3**0.5) / 2, 3**0.5 / 2], [0.0] * 4, [1.5, -0.5, -0.5, -0.5]]
        torch.testing.assert_close(got, torch.tensor(expected))

    def test_the_objective_is_clipped_where_it_would_gain_and_only_there(self) -> None:
        for ratio, advantage, slope in ((1.0, 2.0, -2.0), (1.5, 2.0, 0.0), (0.5, 2.0, -1.0), (0.5, -2.0, 0.0), (1.5, -2.0, 3.0)):
            new = torch.tensor([ratio]).log().requires_grad_()
            loss = loss_of(new, torch.zeros(1), torch.tensor([advantage]))
            loss.backward()
            clipped = min(max(ratio, 1 - CLIP), 1 + CLIP)
            self.assertAlmostEqual(loss.item(), -min(ratio * advantage, clipped * advantage), places=5)
            self.assertAlmostEqual(float(new.grad), slope, places=5)

    def test_log_probabilities_of_packed_responses_are_those_of_each_alone(self) -> None:
        model = load_directory(TARGET)
        samples = [sample([5, 6, 7], list(range(20, 60))), sample([9], [3]), sample([8] * 30, [1, 2, 3, 4])]
        got = recomputed(model, samples)
        with torch.no_grad():
            for one, part in zip(samples, got.split([len(each.logprobs) for each in samples])):
                tokens = torch.tensor(one.tokens)[None]
                logits, _, _ = model.rows(tokens, torch.arange(tokens.shape[1])[None])
                wanted = torch.log_softmax(logits[0, :-1], -1).gather(-1, tokens[0, 1:, None])[one.prompt - 1 :, 0]
                torch.testing.assert_close(part, wanted, atol=1e-4, rtol=1e-4)

    def test_given_experts_are_taken_and_weighed_by_the_router(self) -> None:
        model = load_directory(CONFIGS / "models" / "experts")
        own = sample([5, 6, 7], list(range(20, 60)))
        plain = recomputed(model, [own])
        ids = torch.stack([layer.mlp.ids for layer in model.model.layers], dim=1)
        torch.testing.assert_close(recomputed(model, [replace(own, routing=ids)]), plain, atol=1e-5, rtol=1e-5)
        others = replace(own, routing=(ids + 1) % 16)
        self.assertGreater(float((recomputed(model, [others]) - plain).abs().max()), 1e-2)
        torch.testing.assert_close(recomputed(model, chosen_anew([others])), plain)

    def test_small_steps_add_up_in_the_masters_and_the_checkpoint_is_what_is_trained(self) -> None:
        policy = Policy(TARGET, rate=1e-6)
        start = [weight.detach().clone() for weight in policy.model.parameters()]
        texts = [sample([5, 6, 7], list(range(20, 60)))]
        for _ in range(2):
            response_logprobs(policy.model, texts).sum().backward()
            policy.step()
        for (name, weight), master, was in zip(policy.model.named_parameters(), policy.masters, start):
            self.assertTrue(torch.equal(weight, master.to(torch.bfloat16).float()))
            if name == "model.layers.0.mlp.gate_proj.weight":
                # AdamW's first steps are as long as its rate, and 1e-6 is beyond bf16 for all but the smallest weights.
                self.assertGreater(float((master.detach() - was).abs().median()), 1.5e-6)
                self.assertGreater(float((weight == was).float().mean()), 0.9)
        with tempfile.TemporaryDirectory() as folder:
            policy.export(Path(folder) / "policy")
            self.assertEqual(os.listdir(folder), ["policy"])
            read = load_directory(Path(folder) / "policy")
        for weight, wanted in zip(read.parameters(), policy.model.parameters()):
            self.assertTrue(torch.equal(weight, wanted))


class DraftersAlong(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.policy = load_directory(TARGET)
        tokenizer = Tokenizer.from_file(str(TARGET / "tokenizer.json"))
        rows = [json.loads(line) for line in (CONFIGS / "prompts" / "train.jsonl").read_text().splitlines()]
        prompts = [tokenizer.encode(prompt_text(row["prompt"][0]["content"])).ids for row in rows[: 3 * HELD_OUT]]
        responses = sample_responses(cls.policy, prompts, set(), 96, torch.Generator().manual_seed(3))
        cls.documents = [Document(p + r, len(p), g) for g, (p, r) in enumerate(zip(prompts, responses))]

    def check_kept(self, trainer: DraftTrainer, name: str) -> None:
        """What is written accepts as much as what was kept."""
        held = [document for document in self.documents if document.group % HELD_OUT == HELD_OUT - 1]
        with tempfile.TemporaryDirectory() as folder:
            trainer.export(Path(folder) / name)
            self.assertEqual(os.listdir(folder), [name])
            again = DraftTrainer(Path(folder) / name, self.policy, 1, 512)
        self.assertEqual(again.accepted(self.policy, held), trainer.accepted(self.policy, held))

    def test_one_that_accepts_less_is_not_handed_over(self) -> None:
        for name in ("draft", "eagle3"):
            trainer = DraftTrainer(CONFIGS / "models" / name, self.policy, 2, 512)
            trainer.drafter.rate = 1.0
            served = [parameter.detach().clone() for parameter in trainer.parameters]
            verdict = trainer.learn(self.policy, self.documents)
            self.assertFalse(verdict.better, name)
            self.assertLess(verdict.after, verdict.before)
            for parameter, wanted in zip(trainer.parameters, served):
                self.assertTrue(torch.equal(parameter, wanted))
            self.check_kept(trainer, name)

    def test_one_that_has_fallen_behind_catches_up(self) -> None:
        for name in ("draft", "eagle3"):
            trainer = DraftTrainer(CONFIGS / "models" / name, self.policy, 12, 1024)
            generator = torch.Generator().manual_seed(5)
            with torch.no_grad():
                for parameter in trainer.parameters:
                    if parameter.dim() == 2:
                        parameter.add_(0.2 * parameter.std() * torch.randn(parameter.shape, generator=generator))
            verdict = trainer.learn(self.policy, self.documents)
            self.assertTrue(0 < verdict.before < verdict.after <= WINDOW, f"{name}: {verdict}")
            self.check_kept(trainer, name)


@unittest.skipUnless("PACELINE" in os.environ, "PACELINE names no program")
class Loop(unittest.TestCase):
    """A few steps, plainly and with drafters."""

    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.work = Path(folder.name)
        cls.program = os.environ["PACELINE"]
        cls.plain = cls.loop("plain", ["speculation.mode=plain"])
        cls.drafted = cls.loop("drafted", ALWAYS, "--compare")
        along = ("--drafter", str(CONFIGS / "models" / "draft"), "--train-drafter", "--drafter-steps", "2")
        cls.along = cls.loop("along", ALWAYS, *along)

    @classmethod
    def loop(cls, name: str, settings: list[str], *words: str) -> dict:
        figures = cls.work / f"{name}.json"
        command = [
            sys.executable, str(HERE / "grpo.py"), str(cls.work / name), "--paceline", cls.program,
            "--launch", shlex.join([str(LAUNCH), "2"]), "--steps", str(STEPS), "--prompts-per-step", "8",
            "--unseen-prompts", "0", "--threads", "1", "--figures", str(figures), *words,
            *[word for setting in (*SETTINGS, *settings) for word in ("--set", setting)],
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise AssertionError(done.stdout + done.stderr)
        print(f"{name}:\n{done.stdout}", flush=True)
        return json.loads(figures.read_text())

    def job(self, name: str, ranks: int) -> Steps:
        return Steps.launch(HERE / "grpo.yaml", self.work / name, [str(LAUNCH), str(ranks)], self.program, SETTINGS)

    def policy(self, version: int) -> Qwen2:
        return load_directory(self.work / "plain" / f"policy-{version:03}")

    def test_drafters_change_no_reward_no_trajectory_and_no_weight(self) -> None:
        for loop in (self.drafted, self.along):
            for plain, drafted in zip(self.plain["steps"], loop["steps"], strict=True):
                for name in ("reward", "digest", "tokens"):
                    self.assertEqual(plain[name], drafted[name], f"{name} of step {plain['step']}")
            self.assertEqual(self.plain["policy"], loop["policy"])
        for row in self.along["steps"]:  # the drafter is there, and is served what was handed over
            self.assertGreater(row["draft_rate"], 0.5)
            handed = row["drafter"]["after"] >= row["drafter"]["before"]
            self.assertEqual(handed, (self.work / "along" / f"drafter-{row['step'] + 1:03}").exists())
        # Which would say nothing, had nobody drafted, or nothing been learnt from.
        self.assertEqual([row["accepted"] for row in self.plain["steps"]], [0] * STEPS)
        self.assertGreater(min(row["accepted"] for row in self.drafted["steps"]), 0)
        self.assertEqual(len({row["digest"] for row in self.plain["steps"]}), STEPS)
        kept = [torch.equal(a, b) for a, b in zip(self.policy(STEPS).parameters(), self.policy(0).parameters())]
        self.assertFalse(all(kept))

    def test_log_probabilities_are_pytorchs_within_bf16_noise(self) -> None:
        for row in self.plain["steps"]:
            number = row["step"]
            samples = read_samples(self.work / "plain" / "rollouts" / f"step-{number:03}", shape_at(TARGET))
            old = torch.cat([sample.logprobs for sample in samples])
            model = self.policy(number)
            exact = recomputed(model, samples)
            found = agreement(exact, old)
            self.assertEqual(found, {name: row[name] for name in found}, "what the loop printed")
            # Noise is what PyTorch's own bf16 is off by. The rollout rounds less, what enters products alone, and has
            # 0.3 to 0.8 of it; the factors are those that the decoder is held to against transformers.
            noise = agreement(recomputed(model, samples, bf16=True), exact)
            self.assertLess(found["ratio_std"], 1.5 * noise["ratio_std"])
            self.assertLess(found["largest_difference"], 2.5 * noise["largest_difference"])
            # Tokens are drawn from the rollout's own probabilities, under which the ratio has a mean of 1 whatever
            # the noise: five standard errors.
            self.assertLess(abs(found["ratio_mean"] - 1), 5 * found["ratio_std"] / len(old) ** 0.5)
            # The bound would show weights that are one step old, by which ratios spread about ten times as far.
            if number > 0:
                stale = agreement(recomputed(self.policy(number - 1), samples), old)
                self.assertGreater(stale["ratio_std"], 3 * noise["ratio_std"])

    def test_the_last_checkpoint_rolls_out_the_same_on_one_rank_and_on_two(self) -> None:
        weights = self.work / "plain" / f"policy-{STEPS:03}"
        prompts = self.work / "plain" / "step-000.jsonl"
        digests = []
        for ranks in (1, 2):
            with self.job(f"last-on-{ranks}", ranks) as job:
                digests.append(digest_of(self.program, roll_out(job, "last", weights, STEPS, prompts, 1)))
        self.assertRegex(digests[0], "^[0-9a-f]{32}$")
        self.assertEqual(digests[0], digests[1])
        self.assertNotIn(digests[0], [row["digest"] for row in self.plain["steps"]])

    def test_what_goes_wrong_is_told_at_once(self) -> None:
        prompts = self.work / "plain" / "step-000.jsonl"
        nowhere = self.work / "nowhere"
        with self.job("refusing", 1) as job:
            with self.assertRaisesRegex(StepRefused, "nowhere"):
                roll_out(job, "first", nowhere, 0, prompts, 1)
            # That step alone: the job is there for the next.
            self.assertTrue((roll_out(job, "second", TARGET, 0, prompts, 1) / "trajectories.h5").exists())
        self.assertEqual(job.job.returncode, 0)
        with self.assertRaisesRegex(JobEnded, "the job ended with [^0]"):
            with self.job("ending", 1) as job:
                roll_out(job, "first", TARGET, 0, prompts, 1)
                job.job.terminate()
                roll_out(job, "second", TARGET, 1, prompts, 1)
        # A trainer that fails does not leave ranks behind, in the midst of a step or not.
        with self.assertRaises(ZeroDivisionError):
            with self.job("abandoned", 1) as job:
                raise ZeroDivisionError
        self.assertIsNotNone(job.job.returncode)


@unittest.skipUnless("PACELINE" in os.environ, "PACELINE names no program")
class PictureLoop(unittest.TestCase):
    """The same loop with the model that reads pictures."""

    @classmethod
    def setUpClass(cls) -> None:
        try:
            import PIL  # noqa: F401
        except ImportError as error:
            raise unittest.SkipTest("pictures are not read: Pillow is not there") from error
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.work = Path(folder.name)
        command = [
            sys.executable, str(HERE / "grpo.py"), str(cls.work / "loop"), "--paceline", os.environ["PACELINE"],
            "--model", str(PICTURES), "--launch", shlex.join([str(LAUNCH), "2"]), "--steps", "2", "--prompts-per-step", "8",
            "--unseen-prompts", "0", "--threads", "1", "--figures", str(cls.work / "figures.json"), "--compare",
            *[word for setting in (*SETTINGS, *ALWAYS) for word in ("--set", setting)],
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise AssertionError(done.stdout + done.stderr)
        print(f"pictures:\n{done.stdout}", flush=True)
        cls.figures = json.loads((cls.work / "figures.json").read_text())

    def samples(self, number: int) -> list[Sample]:
        return read_samples(self.work / "loop" / "rollouts" / f"step-{number:03}", shape_at(PICTURES))

    def test_log_probabilities_are_pytorchs_within_bf16_noise(self) -> None:
        for number in range(2):
            samples = self.samples(number)
            self.assertTrue(all(sample.seen for sample in samples))
            old = torch.cat([sample.logprobs for sample in samples])
            model = load_directory(self.work / "loop" / f"policy-{number:03}")
            exact = recomputed(model, samples)
            found = agreement(exact, old)
            noise = agreement(recomputed(model, samples, bf16=True), exact)
            self.assertLess(found["ratio_std"], 1.5 * noise["ratio_std"])
            self.assertLess(found["largest_difference"], 2.5 * noise["largest_difference"])
            # Pictures count: those of another prompt give other probabilities.
            lengths = {sample.seen.whole().shape for sample in samples}
            self.assertGreater(len(lengths), 1)
            dark = [replace(sample, seen=Seen([0 * sample.seen.whole()], sample.seen.grids, sample.seen.first))
                    for sample in samples]
            self.assertGreater(agreement(recomputed(model, dark), old)["ratio_std"], 20 * noise["ratio_std"])

    def test_a_checkpoint_takes_its_image_processor_along(self) -> None:
        last = self.work / "loop" / "policy-002"
        self.assertEqual((last / "preprocessor_config.json").read_text(), (PICTURES / "preprocessor_config.json").read_text())
        kept = [torch.equal(a, b) for a, b in zip(load_directory(last).visual.parameters(),
                                                  load_directory(PICTURES).visual.parameters())]
        self.assertFalse(all(kept), "the tower is trained too")


@unittest.skipUnless("PACELINE" in os.environ, "PACELINE names no program")
class ConversationLoop(unittest.TestCase):
    """The same loop with the model that calls a calculator, by its own configuration."""

    def test_sampled_tokens_alone_are_trained_on(self) -> None:
        prompts = CONFIGS / "prompts"
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder)
            command = [
                sys.executable, str(HERE / "grpo.py"), str(work / "loop"), "--paceline", os.environ["PACELINE"],
                "--config", str(CONFIGS / "calculator.yaml"), "--model", str(CALCULATOR),
                "--prompts", str(prompts / "calculator-train.jsonl"), "--unseen-prompts", "0",
                "--launch", shlex.join([str(LAUNCH), "2"]), "--steps", "1", "--prompts-per-step", "8", "--threads", "1",
                "--figures", str(work / "figures.json"), "--compare", "--set", "engine.threads=1",
            ]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            print(f"conversations:\n{done.stdout}", flush=True)
            samples = read_samples(work / "loop" / "rollouts" / "step-000", shape_at(CALCULATOR))
            model = load_directory(work / "loop" / "policy-000")
            old = torch.cat([sample.logprobs for sample in samples])
            exact = recomputed(model, samples)
            noise = agreement(recomputed(model, samples, bf16=True), exact)
            found = agreement(exact, old)
            self.assertLess(found["ratio_std"], 1.5 * noise["ratio_std"])
            # What the environment gave is what the model reads, and says nothing of what it would say.
            given = [replace(sample, sampled=None) for sample in samples]
            self.assertGreater(len(recomputed(model, given)), len(old))
            for sample in samples:
                self.assertTrue(sample.sampled[0] and sample.sampled[-1])
                self.assertEqual(int(sample.sampled.sum()), len(sample.logprobs))
                begins = sample.sampled[1:] & ~sample.sampled[:-1]
                self.assertEqual(int(begins.sum()) + 1, sample.turns)
            turns = json.loads((work / "figures.json").read_text())["steps"][0]["turns"]
            self.assertGreater(turns, 1.2)


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main()
