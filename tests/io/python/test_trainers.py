"""A rollout of the embedded model as the trainers' own packages take it.

Needs paceline, and of verl, TRL and slime those that are to be tested: pip install verl tensordict
ray; trl; slime from its repository.
"""

import os
import subprocess
import sys
import tempfile
import unittest

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..", "..")
sys.path.insert(0, os.path.join(ROOT, "io", "python"))
import paceline_reader as reader  # noqa: E402
from needs import needs  # noqa: E402

SAMPLES = 4
MODEL = os.path.join(ROOT, "configs", "models", "target")
END = 509  # <|endoftext|>, which pads


class Trainer(unittest.TestCase):
    """Has the run, which is generated when the first test asks for it."""

    folder = None

    def setUp(self):
        if Trainer.folder is None:
            program = os.environ.get("PACELINE_PROGRAM")
            if program is None:
                self.skipTest("paceline was not built")
            Trainer.folder = tempfile.TemporaryDirectory()
            self.generate(program, Trainer.folder.name)
        self.run_ = reader.open_run(os.path.join(Trainer.folder.name, "run"))
        self.addCleanup(self.run_.close)

    @staticmethod
    def generate(program, folder):
        few = os.path.join(folder, "few.jsonl")
        with open(os.path.join(ROOT, "configs", "prompts", "quickstart.jsonl"), encoding="utf-8") as file:
            lines = file.readlines()[:6]
        with open(few, "w", encoding="utf-8") as file:
            file.writelines(lines)
        settings = {
            "prompts.path": few,
            "prompts.samples": SAMPLES,
            "sampling.max_tokens": 96,
            "engine.threads": 1,
            "engine.backend": "cpu",
            "reward.method": "match",
            "reward.rule": "regex",
            "reward.pattern": r"'####\s*(.*?)\s*$'",
        }
        arguments = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        launch = os.path.join(ROOT, "tests", "mpi", "launch.sh")
        quickstart = os.path.join(ROOT, "configs", "quickstart.yaml")
        done = subprocess.run(
            [launch, "1", program, "rollout", quickstart, "--output", os.path.join(folder, "run"), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode != 0:
            raise AssertionError(done.stdout)


@needs("verl", "torch")
class Verl(Trainer):
    def test_dataproto(self):
        from verl import DataProto
        from verl.trainer.ppo import core_algos

        self.run_.reward[::SAMPLES] += 1  # so that they differ within the groups
        data = self.run_.to_dataproto(80, 128, pad_token_id=END)
        self.assertIs(type(data), DataProto)
        self.assertEqual(len(data), len(self.run_))
        made = self.run_.to_verl(80, 128, pad_token_id=END)
        self.assertEqual(set(data.batch.keys()), set(made["tensors"]))
        for name, values in made["tensors"].items():
            np.testing.assert_array_equal(data.batch[name].numpy(), values)
        self.assertEqual(data.meta_info, made["meta_info"])
        parts = data.chunk(3)
        self.assertEqual([len(part) for part in parts], [len(data) // 3] * 3)
        again = DataProto.concat(parts)
        self.assertTrue((again.batch["responses"] == data.batch["responses"]).all())
        self.assertEqual(again.non_tensor_batch["raw_prompt"][5], self.run_.prompts[1].source)

        # GRPO's advantages, which take the groups from uid and the rewards from the last token.
        advantages, _ = core_algos.compute_grpo_outcome_advantage(
            token_level_rewards=data.batch["rm_scores"],
            response_mask=data.batch["response_mask"],
            index=data.non_tensor_batch["uid"],
        )
        groups = self.run_.reward.reshape(-1, SAMPLES).astype(np.float64)
        centred = groups - groups.mean(axis=1, keepdims=True)
        expected = (centred / (groups.std(axis=1, ddof=1, keepdims=True) + 1e-6)).reshape(-1, 1)
        mask = data.batch["response_mask"].numpy()
        np.testing.assert_allclose(advantages.numpy(), expected * mask, rtol=1e-4, atol=1e-5)


@needs("slime.utils.types")
class Slime(Trainer):
    def test_samples(self):
        from slime.utils.types import Sample

        groups = self.run_.to_slime()
        self.assertEqual([len(group) for group in groups], [SAMPLES] * len(self.run_.prompts))
        samples = [sample for group in groups for sample in group]
        for sample, like, response in zip(samples, self.run_.iter_slime(), self.run_):
            self.assertIs(type(sample), Sample)
            self.assertEqual(Sample.from_dict(sample.to_dict()), sample)
            self.assertEqual({k: sample.to_dict()[k] for k in like.to_dict()}, like.to_dict())
            self.assertEqual(sample.effective_response_length, len(response.tokens))
            self.assertEqual(sample.tokens[-sample.response_length :], response.tokens.tolist())
            self.assertEqual(sample.response, self.run_.text(response))


@needs("trl", "transformers", "torch", "datasets")
class Trl(Trainer):
    def test_a_trainers_step(self):
        import torch
        from datasets import Dataset
        from trl import GRPOConfig, GRPOTrainer

        run = self.run_
        returned, scored, batches = [], [], []

        def rollout(prompts, _):
            returned.append(run.to_trl_rollout(prompts))
            return returned[-1]

        def given(completions, reward, **_):
            scored.append(completions)
            return reward

        def shorter(completion_ids, **_):  # rewards that differ within the groups
            return [-len(ids) for ids in completion_ids]

        class Watched(GRPOTrainer):
            def _generate_and_score_completions(self, inputs):
                batches.append(super()._generate_and_score_completions(inputs))
                return batches[-1]

        with tempfile.TemporaryDirectory() as folder:
            trainer = Watched(
                model=MODEL,
                reward_funcs=[given, shorter],
                rollout_func=rollout,
                train_dataset=Dataset.from_list([{"prompt": p.source} for p in run.prompts]),
                args=GRPOConfig(
                    output_dir=folder,
                    per_device_train_batch_size=len(run),
                    num_generations=SAMPLES,
                    max_completion_length=128,
                    max_steps=1,
                    learning_rate=0.01,
                    logging_steps=1,
                    use_cpu=True,
                    bf16=False,
                    report_to="none",
                    save_strategy="no",
                ),
            )
            before = [p.detach().clone() for p in trainer.model.parameters()]
            trainer.train()
        self.assertEqual((len(returned), len(batches)), (1, 1))

        # In the trainer's order, which is random, its arrays are those of to_trl.
        taken = {}
        order = []
        for uid in returned[0]["uid"]:
            first = next(p.index for p in run.prompts if p.uid == uid) * SAMPLES
            order.append(first + taken.setdefault(uid, 0))
            taken[uid] += 1
        self.assertEqual(sorted(order), list(range(len(run))))
        expected = run.to_trl(pad_token_id=trainer.processing_class.pad_token_id)
        rewards = expected.pop("rewards")
        for name, values in expected.items():
            found = batches[0][name].numpy()
            np.testing.assert_array_equal(found, values[order], name)

        logged = trainer.state.log_history[0]
        self.assertAlmostEqual(float(logged["rewards/given/mean"]), rewards.mean(), places=5)
        lengths = float(logged["completions/mean_length"])
        self.assertAlmostEqual(lengths, run.lengths.mean(), places=3)
        self.assertEqual(scored[0][0][0]["content"], run.text(run[order[0]], skip_special_tokens=True))
        self.assertTrue(any(not torch.equal(a, b) for a, b in zip(before, trainer.model.parameters())))


if __name__ == "__main__":
    unittest.main()
