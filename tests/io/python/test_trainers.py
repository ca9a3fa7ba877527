"""A rollout of the embedded model as the trainers' own packages take it, and rollouts that they ask for.

Needs paceline, and of verl, TRL and slime those that are to be tested: pip install 'verl[verl-core]'
ray; trl; slime from its repository.
"""

import json
import os
import re
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
from paceline_reader import Steps  # noqa: E402

SAMPLES = 4
CALLER = os.path.join(ROOT, "configs", "models", "calculator")
# Conversations of several turns, in place of what is set for all.
TALK = {
    "model.path": CALLER,
    "sampling.max_tokens": 512,
    "environment.method": "command",
    "environment.command": f"[{sys.executable}, -m, tool_worker, {os.path.join(ROOT, 'configs', 'calculator.py')}]",
    "environment.max_turns": 6,
    "environment.max_tokens_turn": 128,
    "reward.method": "none",
}
MODEL = os.path.join(ROOT, "configs", "models", "target")
END = 509  # <|endoftext|>, which pads


def prompts():
    with open(os.path.join(ROOT, "configs", "prompts", "quickstart.jsonl"), encoding="utf-8") as file:
        return file.readlines()


class Trainer(unittest.TestCase):
    """Has the run, which is generated when the first test asks for it."""

    folder = None

    def setUp(self):
        if Trainer.folder is None:
            program = os.environ.get("PACELINE_PROGRAM")
            if program is None:
                self.skipTest("paceline was not built")
            Trainer.folder = tempfile.TemporaryDirectory()
            self.generate(program, Trainer.folder.name, "run", prompts()[:6], {})
            with open(os.path.join(ROOT, "configs", "prompts", "calculator-train.jsonl"), encoding="utf-8") as file:
                self.generate(program, Trainer.folder.name, "talk", [next(file) for _ in range(6)], TALK)
        self.run_, self.talk = (reader.open_run(os.path.join(Trainer.folder.name, name)) for name in ("run", "talk"))
        self.addCleanup(self.run_.close)
        self.addCleanup(self.talk.close)

    @staticmethod
    def generate(program, folder, name, lines, settings):
        few = os.path.join(folder, f"{name}.jsonl")
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
            **settings,
        }
        arguments = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        launch = os.path.join(ROOT, "tests", "mpi", "launch.sh")
        quickstart = os.path.join(ROOT, "configs", "quickstart.yaml")
        done = subprocess.run(
            [launch, "1", program, "rollout", quickstart, "--output", os.path.join(folder, name), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode != 0:
            raise AssertionError(done.stdout)


@needs("transformers", "torch")
class Processors(Trainer):
    def test_penalties_and_biases_are_those_of_transformers(self):
        import torch
        from transformers import AutoModelForCausalLM, RepetitionPenaltyLogitsProcessor, SequenceBiasLogitsProcessor

        penalty, bias = 1.3, {30: -2.0, 16: 1.0}
        settings = {
            "model.dtype": "fp32",
            "sampling.repetition_penalty": penalty,
            "sampling.logit_bias": json.dumps(bias).replace('"', ""),
            "sampling.logprobs": 4,
            "sampling.max_tokens": 48,
        }
        self.generate(os.environ["PACELINE_PROGRAM"], Trainer.folder.name, "changed", prompts()[:3], settings)
        model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
        biased = SequenceBiasLogitsProcessor({(token,): value for token, value in bias.items()})
        repeated = RepetitionPenaltyLogitsProcessor(penalty)
        changed = 0
        with reader.open_run(os.path.join(Trainer.folder.name, "changed")) as run, torch.no_grad():
            for response in run:
                begin = len(run.prompts[response.prompt_index].tokens)
                text = np.concatenate([run.prompts[response.prompt_index].tokens, response.tokens])
                text = torch.from_numpy(text.astype(np.int64))[None]
                own = model(text).logits[0, begin - 1 : -1]
                rows = [repeated(text[:, :at], biased(text[:, :at], row[None].clone()))
                        for at, row in enumerate(own, start=begin)]
                chosen = torch.from_numpy(response.tokens.astype(np.int64))[:, None]
                expected = torch.log_softmax(torch.cat(rows), -1).gather(-1, chosen)[:, 0].numpy()
                np.testing.assert_allclose(response.sampling_logprob, expected, atol=2e-4)
                plain = torch.log_softmax(own, -1)
                np.testing.assert_allclose(response.logprob, plain.gather(-1, chosen)[:, 0].numpy(), atol=2e-4)
                changed += int((np.abs(response.sampling_logprob - response.logprob) > 0.01).sum())
                # The most probable, recomputed.
                best = torch.from_numpy(response.top_ids.astype(np.int64))
                np.testing.assert_allclose(response.top_logprob, plain.gather(-1, best).numpy(), atol=2e-4)
                np.testing.assert_allclose(response.top_logprob, plain.topk(4).values.numpy(), atol=2e-4)
        self.assertGreater(changed, 20)


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

        # What verl's trainer takes from beside the rewards (extract_reward), and goes on with.
        extras = {key: again.non_tensor_batch[key] for key in again.meta_info["reward_extra_keys"]}
        self.assertEqual(list(extras), ["acc"])
        np.testing.assert_array_equal(extras["acc"], self.run_.reward)

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


    def test_conversations(self):
        import torch
        from transformers import AutoModelForCausalLM
        from verl.trainer.ppo import core_algos

        run = self.talk
        self.assertGreater(max(len(response.turns) for response in run), 2)
        data = run.to_dataproto(80, 512, pad_token_id=END)
        mask = data.batch["response_mask"].numpy()
        for row, response in enumerate(run):
            count = len(response.tokens)
            np.testing.assert_array_equal(mask[row, :count], response.loss_mask)
            self.assertFalse(mask[row, count:].any())
            self.assertEqual(int(data.batch["attention_mask"][row, 80:].sum()), count)
            np.testing.assert_array_equal(data.batch["responses"][row, :count].numpy(), response.tokens)
            np.testing.assert_array_equal(
                data.batch["rollout_log_probs"][row, :count].numpy(), response.sampling_logprob
            )
            self.assertEqual(data.non_tensor_batch["__num_turns__"][row], response.num_turns)
            said = response.loss_mask.astype(bool)
            self.assertTrue(response.sampling_logprob[said].any())
            self.assertFalse(response.sampling_logprob[~said].any())

        # A step of GRPO by verl's own advantages and loss: what was given has no part in it.
        model = AutoModelForCausalLM.from_pretrained(CALLER, dtype=torch.float32)
        run.reward[::SAMPLES] += 1  # so that they differ within the groups
        data = run.to_dataproto(80, 512, pad_token_id=END)
        kept = data.batch["response_mask"]
        advantages, _ = core_algos.compute_grpo_outcome_advantage(
            token_level_rewards=data.batch["rm_scores"], response_mask=kept, index=data.non_tensor_batch["uid"]
        )
        self.assertFalse(advantages[kept == 0].any())
        logits = model(
            input_ids=data.batch["input_ids"], attention_mask=data.batch["attention_mask"],
            position_ids=data.batch["position_ids"],
        ).logits[:, 79:-1]
        logits.retain_grad()
        now = torch.log_softmax(logits, -1).gather(-1, data.batch["responses"].long()[..., None])[..., 0]
        old = data.batch["rollout_log_probs"]
        self.assertLess(float((now.detach() - old)[kept == 1].abs().mean()), 0.01)
        ratio = (now - old).exp()
        clipped = torch.maximum(-advantages * ratio, -advantages * ratio.clamp(0.8, 1.2))
        core_algos.agg_loss(loss_mat=clipped, loss_mask=kept, loss_agg_mode="token-mean").backward()
        moved = logits.grad.abs().sum(-1) > 0
        self.assertFalse(moved[kept == 0].any())
        self.assertTrue(moved[kept == 1].any())
        before = model.lm_head.weight.detach().clone()
        torch.optim.SGD(model.parameters(), lr=1e-2).step()
        self.assertFalse(torch.equal(before, model.lm_head.weight))

    def test_runs_concatenated_keep_their_groups(self):
        from verl import DataProto
        from verl.trainer.ppo import core_algos

        def advantages(data):
            return core_algos.compute_grpo_outcome_advantage(
                token_level_rewards=data.batch["rm_scores"],
                response_mask=data.batch["response_mask"],
                index=data.non_tensor_batch["uid"],
            )[0].numpy()

        # Two steps of a training: prompts without uids, some of which come again at other places.
        lines = [json.dumps({**json.loads(line), "uid": None}) + "\n" for line in prompts()[:8]]
        steps = []
        for version, some in enumerate((lines[:5], [lines[7], lines[2], lines[6], lines[0]])):
            folder, name = Trainer.folder.name, f"step-{version}"
            settings = {"model.weight_version": version}
            self.generate(os.environ["PACELINE_PROGRAM"], folder, name, some, settings)
            steps.append(reader.open_run(os.path.join(folder, name)))
            self.addCleanup(steps[-1].close)
        uids = [[prompt.uid for prompt in step.prompts] for step in steps]
        self.assertEqual((uids[0][2], uids[0][0]), (uids[1][1], uids[1][3]), "known wherever they stand")
        self.assertEqual(len({*uids[0], *uids[1]}), 7)
        for step in steps:
            step.reward[:] = np.random.default_rng(len(step)).random(len(step))
        parts = [step.to_dataproto(80, 128, pad_token_id=END) for step in steps]
        together = DataProto.concat(parts)
        alone = np.concatenate([advantages(part) for part in parts])
        self.assertGreater(np.abs(alone).max(), 0.5)
        np.testing.assert_array_equal(advantages(together), alone)


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

    def test_conversations(self):
        from slime.utils.types import Sample

        samples = [sample for group in self.talk.to_slime() for sample in group]
        for sample, response in zip(samples, self.talk):
            self.assertIs(type(sample), Sample)
            self.assertEqual(sample.loss_mask, response.loss_mask.tolist())
            self.assertEqual(len(sample.loss_mask), sample.response_length)
            self.assertEqual(sample.effective_response_length, int(response.loss_mask.sum()))
            self.assertEqual(sample.rollout_log_probs, response.sampling_logprob.tolist())
            self.assertEqual(sample.tokens[-sample.response_length :], response.tokens.tolist())


@needs("trl", "transformers", "torch", "datasets")
class Trl(Trainer):
    def test_a_trainers_step(self):
        self.step(self.run_, MODEL, 128)

    def test_a_step_of_conversations(self):
        self.assertGreater(max(len(response.turns) for response in self.talk), 2)
        self.step(self.talk, CALLER, 512)
        masks = self.talk.to_trl(pad_token_id=END)["tool_mask"]
        for row, response in enumerate(self.talk):
            np.testing.assert_array_equal(masks[row, : len(response.tokens)], response.loss_mask)

    def step(self, run, model, longest):
        """A trainer's step by the run's responses, whose arrays are to be those of to_trl."""
        import torch
        from datasets import Dataset
        from trl import GRPOConfig, GRPOTrainer

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
                model=model,
                reward_funcs=[given, shorter],
                rollout_func=rollout,
                train_dataset=Dataset.from_list([{"prompt": p.source} for p in run.prompts]),
                args=GRPOConfig(
                    output_dir=folder,
                    per_device_train_batch_size=len(run),
                    num_generations=SAMPLES,
                    max_completion_length=longest,
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
            first = run.group_uids.index(uid) * SAMPLES
            order.append(first + taken.setdefault(uid, 0))
            taken[uid] += 1
        self.assertEqual(sorted(order), list(range(len(run))))
        expected = run.to_trl(pad_token_id=trainer.processing_class.pad_token_id)
        rewards = expected.pop("rewards")
        for name, values in expected.items():
            found = batches[0][name].numpy()
            if name == "tool_mask":  # padded with 1, and multiplied by the other mask where it counts
                found = found * batches[0]["completion_mask"].numpy()
            np.testing.assert_array_equal(found, values[order], name)

        logged = trainer.state.log_history[0]
        self.assertAlmostEqual(float(logged["rewards/given/mean"]), rewards.mean(), places=5)
        lengths = float(logged["completions/mean_length"])
        self.assertAlmostEqual(lengths, np.mean([r.loss_mask.sum() for r in run]), places=3)
        self.assertEqual(scored[0][0][0]["content"], run.text(run[order[0]], skip_special_tokens=True))
        self.assertTrue(any(not torch.equal(a, b) for a, b in zip(before, trainer.model.parameters())))


class Asking(unittest.TestCase):
    """Has a resident job of the embedded model, and its prompts as Parquet."""

    settings = []  # of the job, beside those of all

    def setUp(self):
        program = os.environ.get("PACELINE_PROGRAM")
        if program is None:
            self.skipTest("paceline was not built")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        with open(os.path.join(ROOT, "configs", "prompts", "train.jsonl"), encoding="utf-8") as file:
            self.rows = [json.loads(next(file)) for _ in range(4)]
        self.steps = self.enterContext(
            Steps.launch(
                os.path.join(ROOT, "configs", "quickstart.yaml"),
                os.path.join(self.folder, "steps"),
                launcher=[os.path.join(ROOT, "tests", "mpi", "launch.sh"), "1"],
                program=program,
                settings=["engine.threads=1", "engine.backend=cpu", *self.settings],
            )
        )

    def parquet(self):
        import pyarrow
        import pyarrow.parquet

        path = os.path.join(self.folder, "prompts.parquet")
        rows = [{k: v for k, v in row.items() if k != "uid"} for row in self.rows]
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
        return path


@needs("trl", "transformers", "torch", "datasets", "pyarrow")
class TrlAsks(Asking):
    def test_two_steps_from_parquet_prompts(self):
        from datasets import load_dataset
        from paceline_run.rollouts.trl import TrlRollout
        from trl import GRPOConfig, GRPOTrainer

        batches = []

        class Watched(GRPOTrainer):
            def _generate_and_score_completions(self, inputs):
                batches.append(super()._generate_and_score_completions(inputs))
                return batches[-1]

        def correct(completions, reward_model, **_):
            says = [completion[0]["content"] for completion in completions]
            truths = [given["ground_truth"] for given in reward_model]
            return [float(f"#### {truth}" in text) - len(text) / 1000 for text, truth in zip(says, truths)]

        trainer = Watched(
            model=MODEL,
            reward_funcs=[correct],
            rollout_func=TrlRollout(self.steps),
            train_dataset=load_dataset(
                "parquet", data_files=self.parquet(), split="train", cache_dir=os.path.join(self.folder, "cache")
            ),
            args=GRPOConfig(
                output_dir=os.path.join(self.folder, "out"),
                per_device_train_batch_size=8,
                num_generations=4,
                max_completion_length=64,
                max_steps=2,
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
        self.assertTrue(any(not (a == b).all() for a, b in zip(before, trainer.model.parameters())))
        self.assertEqual(len(batches), 2)
        for number, batch in enumerate(batches):
            with reader.open_run(os.path.join(self.steps.folder, f"train-{number}-0")) as run:
                self.assertEqual((len(run.prompts), len(run)), (2, 8))
                self.assertEqual(run[0].weight_version, number)
                # The tokens are those of the trainer's own template, and each response is one of the run's.
                found = [
                    (tuple(prompt[mask.bool()].tolist()), tuple(completion[kept.bool()].tolist()))
                    for prompt, mask, completion, kept in zip(
                        batch["prompt_ids"], batch["prompt_mask"], batch["completion_ids"], batch["completion_mask"]
                    )
                ]
                wanted = [
                    (tuple(run.prompts[r.prompt_index].tokens.tolist()), tuple(r.tokens.tolist())) for r in run
                ]
                self.assertEqual(sorted(found), sorted(wanted))
                rendered = trainer.processing_class.apply_chat_template(
                    [row["prompt"] for row in self.rows], add_generation_prompt=True, return_dict=True
                )["input_ids"]
                self.assertLessEqual({prompt for prompt, _ in found}, {tuple(ids) for ids in rendered})
        # The second step was by weights that the first had changed.
        self.assertEqual(sorted(os.listdir(self.steps.folder + "-policies")), ["step-0", "step-1"])


@needs("verl", "transfer_queue", "ray", "torch", "pyarrow")
class VerlAsks(Asking):
    def test_one_step_from_parquet_prompts(self):
        reward = os.path.join(self.folder, "reward.py")
        with open(reward, "w", encoding="utf-8") as file:
            file.write(
                "def compute_score(data_source, solution_str, ground_truth, extra_info=None, **_):\n"
                "    return float('#### ' + ground_truth in solution_str) - len(solution_str) / 1000\n"
            )
        dump = os.path.join(self.folder, "dump")
        prompts = self.parquet()
        actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
        settings = {
            "trainer.device": "cpu",
            "algorithm.adv_estimator": "grpo",
            "data.train_files": prompts,
            "data.val_files": prompts,
            "data.train_batch_size": 4,
            "data.max_prompt_length": 128,
            "data.max_response_length": 64,
            "data.dataloader_num_workers": 0,
            "actor_rollout_ref.model.path": MODEL,
            "actor_rollout_ref.model.use_remove_padding": False,
            "actor_rollout_ref.model.enable_gradient_checkpointing": False,
            "+actor_rollout_ref.model.override_config.attn_implementation": "sdpa",
            f"{actor}.strategy": "fsdp2",
            f"{actor}.ppo_mini_batch_size": 4,
            f"{actor}.ppo_micro_batch_size_per_gpu": 8,
            f"{actor}.use_torch_compile": False,
            f"{actor}.optim.lr": 1e-3,
            f"{rollout}.name": "paceline",
            f"{rollout}.n": 4,
            f"{rollout}.tensor_model_parallel_size": 1,
            f"{rollout}.log_prob_micro_batch_size_per_gpu": 8,
            f"{rollout}.calculate_log_probs": True,
            f"+{rollout}.agent.agent_loop_manager_class": "paceline_run.rollouts.verl.AgentLoopManager",
            f"+{rollout}.engine_kwargs.paceline.steps": self.steps.folder,
            "reward.custom_reward_function.path": reward,
            "trainer.n_gpus_per_node": 1,
            "trainer.nnodes": 1,
            "trainer.total_training_steps": 1,
            "trainer.val_before_train": False,
            "trainer.test_freq": -1,
            "trainer.save_freq": -1,
            "trainer.logger": "console",
            "trainer.rollout_data_dir": dump,
            "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
            "+ray_kwargs.ray_init.num_cpus": 8,
            "+ray_kwargs.ray_init.resources.NPU": 1,
        }
        modules = [HERE, os.path.join(ROOT, "io", "python")]
        environment = {
            **os.environ,
            "VERL_PLATFORM": "cpu",
            "VERL_ENGINE_DEVICE": "cuda",  # verl's engine for FSDP, which runs anywhere
            "VERL_USE_EXTERNAL_MODULES": "verl_cpu,paceline_run.rollouts.verl",
            "PYTHONPATH": os.pathsep.join(modules),
        }
        done = subprocess.run(
            [sys.executable, "-m", "verl.trainer.main_ppo", *(f"{k}={v}" for k, v in settings.items())],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.assertEqual(done.returncode, 0, done.stdout[-4000:])
        # What verl trained on are the run's responses, scored by its own reward loop.
        with open(os.path.join(dump, "1.jsonl"), encoding="utf-8") as file:
            trained = [json.loads(line) for line in file]
        with reader.open_run(os.path.join(self.steps.folder, "train-1-0")) as run:
            said = [run.text(response, skip_special_tokens=True) for response in run]
            self.assertEqual(sorted(row["output"] for row in trained), sorted(said))
        # Its log-probabilities are the rollout's within bf16's noise, and the next policy is there.
        self.assertLess(float(re.search(r"rollout_probs_diff_mean:([0-9.e-]+)", done.stdout)[1]), 0.01)
        self.assertEqual(sorted(os.listdir(self.steps.folder + "-policies")), ["step-0", "step-1"])


@needs("slime.rollout.base_types", "slime.utils.types")
class SlimeAsks(Asking):
    settings = ["reward.method=match"]  # slime's own rewards want its servers

    def test_a_rollout(self):
        import copy
        from types import SimpleNamespace

        from paceline_run.rollouts.slime import generate_rollout
        from slime.utils.types import Sample

        class Source:
            def get_samples(_, count):
                groups = []
                for number, row in enumerate(self.rows[:count]):
                    sample = Sample(
                        group_index=number,
                        prompt=f"<|im_start|>user\n{row['prompt'][0]['content']}<|im_end|>\n<|im_start|>assistant\n",
                        label=row["reward_model"]["ground_truth"],
                    )
                    groups.append([copy.deepcopy(sample) for _ in range(2)])
                return groups

        arguments = SimpleNamespace(
            paceline_steps=self.steps.folder,
            hf_checkpoint=MODEL,
            save_hf=None,
            rollout_batch_size=3,
            n_samples_per_prompt=2,
            rollout_temperature=1.0,
            rollout_top_p=1.0,
            rollout_top_k=-1,
            rollout_max_response_len=64,
            rollout_seed=7,
            rollout_stop=None,
            rollout_stop_token_ids=None,
        )
        output = generate_rollout(arguments, 0, Source())
        self.assertEqual([len(group) for group in output.samples], [2, 2, 2])
        with reader.open_run(os.path.join(self.steps.folder, "rollout-0")) as run:
            samples = [sample for group in output.samples for sample in group]
            for sample, response in zip(samples, run):
                self.assertEqual(sample.tokens[-sample.response_length :], response.tokens.tolist())
                self.assertEqual(sample.rollout_log_probs, response.sampling_logprob.tolist())
                self.assertEqual(sample.response, run.text(response))
                self.assertEqual(sample.reward, response.reward)
                self.assertIn(sample.status, (Sample.Status.COMPLETED, Sample.Status.TRUNCATED))
                self.assertEqual(sample.weight_versions, ["0"])
        with self.assertRaisesRegex(reader.ReaderError, "--save-hf"):
            generate_rollout(arguments, 1, Source())
        with self.assertRaisesRegex(reader.ReaderError, "does not evaluate"):
            generate_rollout(arguments, 0, Source(), evaluation=True)
        arguments.partial_rollout = True
        with self.assertRaisesRegex(reader.ReaderError, "partial_rollout=True"):
            generate_rollout(arguments, 0, Source())


if __name__ == "__main__":
    unittest.main()
