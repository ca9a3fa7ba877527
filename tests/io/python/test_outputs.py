"""What trainers get of a run that the C++ library wrote, as far as it needs no trainer's package.

The arrays and samples themselves are tested in tests/io/run/test_reader.py.
"""

import dataclasses
import enum
import os
import subprocess
import sys
import tempfile
import types
import unittest
import warnings
from typing import Any
from unittest import mock

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..", "..")
sys.path.insert(0, os.path.join(ROOT, "io", "python"))
import paceline_reader as reader  # noqa: E402

PROMPTS, SAMPLES = 5, 3
TOKENIZER = os.path.join(ROOT, "configs", "models", "target")


class Status(enum.Enum):
    COMPLETED = "completed"
    TRUNCATED = "truncated"
    ABORTED = "aborted"


def slime_of(names):
    """A module with a class of slime's shape: Status inside, and a field that no rollout fills."""
    fields = [(name, Any, dataclasses.field(default=None)) for name in (*names, "remove_sample")]
    module = types.ModuleType("slime.utils.types")
    module.Sample = dataclasses.make_dataclass("Sample", fields, namespace={"Status": Status})
    return module


class Outputs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.path = os.path.join(cls.scratch.name, "run")
        program = os.environ["PACELINE_SAMPLE_RUN"]
        subprocess.run([program, "complete", cls.path, str(PROMPTS), str(SAMPLES)], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def setUp(self):
        self.run_ = reader.open_run(self.path)

    def tearDown(self):
        self.run_.close()

    def test_slimes_own_class(self):
        names = [field.name for field in dataclasses.fields(reader.SlimeSample)]
        module = slime_of(names)
        expected = list(self.run_.iter_slime(logprob="full", tokenizer=TOKENIZER))
        with mock.patch.dict(sys.modules, {"slime.utils.types": module}):
            groups = self.run_.to_slime(logprob="full", tokenizer=TOKENIZER)
        self.assertEqual([len(group) for group in groups], [SAMPLES] * PROMPTS)
        samples = [sample for group in groups for sample in group]
        for sample, like in zip(samples, expected):
            self.assertIs(type(sample), module.Sample)
            self.assertEqual(sample.status, Status(like.status))
            for name in names:
                if name != "status":
                    self.assertEqual(getattr(sample, name), getattr(like, name), name)
        self.assertEqual({sample.status for sample in samples}, {Status.COMPLETED, Status.TRUNCATED})

    def test_another_version_of_slime_is_refused(self):
        names = [field.name for field in dataclasses.fields(reader.SlimeSample)]
        names.remove("weight_versions")
        with mock.patch.dict(sys.modules, {"slime.utils.types": slime_of(names)}):
            with self.assertRaisesRegex(reader.ReaderError, "has no weight_versions"):
                self.run_.to_slime(tokenizer=TOKENIZER)

    def test_masks_for_slime(self):
        names = [field.name for field in dataclasses.fields(reader.SlimeSample)]
        older = [name for name in names if not name.startswith("rollout_top_p")]
        path = os.path.join(self.scratch.name, "masks")
        if not os.path.exists(path):
            subprocess.run([os.environ["PACELINE_SAMPLE_RUN"], "masks", path, str(PROMPTS), str(SAMPLES)], check=True)
        with reader.open_run(path) as run:
            run.attributes["sampling"]["top_p"] = 0.9
            with mock.patch.dict(sys.modules, {"slime.utils.types": slime_of(names)}):
                samples = [sample for group in run.to_slime(tokenizer=TOKENIZER) for sample in group]
            for sample, response in zip(samples, run):
                self.assertEqual(sample.rollout_top_p_token_ids, response.kept_ids.tolist())
                self.assertEqual(sample.rollout_top_p_token_offsets, response.kept_offsets.tolist())
                self.assertEqual(len(sample.rollout_top_p_token_offsets), sample.response_length + 1)
            with mock.patch.dict(sys.modules, {"slime.utils.types": slime_of(older)}):
                with self.assertRaisesRegex(reader.ReaderError, "has no rollout_top_p_token_ids"):
                    run.to_slime(tokenizer=TOKENIZER)

    def test_a_run_without_masks_for_slime(self):
        names = [field.name for field in dataclasses.fields(reader.SlimeSample)]
        older = [name for name in names if not name.startswith("rollout_top_p")]
        with mock.patch.dict(sys.modules, {"slime.utils.types": slime_of(older)}):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                self.run_.to_slime(tokenizer=TOKENIZER)
            self.run_.attributes["sampling"]["top_p"] = 0.9
            with self.assertWarnsRegex(UserWarning, "top_p 0.9, but without sampling.keep_masks: slime refuses"):
                self.run_.to_slime(tokenizer=TOKENIZER)

    def test_lines_that_draw_on_their_own_are_told_of(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.run_.to_verl()
        self.run_.attributes["sampling"]["by_line"] = ["temperature", "top_p"]
        self.run_.prompts[1].own_sampling = {"temperature": 0.5, "top_p": 0.8}
        with self.assertWarnsRegex(UserWarning, "lines have temperatures of their own, but verl takes one"):
            self.run_.to_verl()
        names = [field.name for field in dataclasses.fields(reader.SlimeSample)]
        with mock.patch.dict(sys.modules, {"slime.utils.types": slime_of(names)}):
            with self.assertWarnsRegex(UserWarning, "top_p 0.8, but without sampling.keep_masks: slime refuses"):
                self.run_.to_slime(tokenizer=TOKENIZER)

    def test_packages_that_are_not_there_are_named(self):
        with mock.patch.dict(sys.modules, {"verl": None, "slime.utils.types": None}):
            with self.assertRaisesRegex(ImportError, r"to_dataproto needs verl.*\(pip install verl\)"):
                self.run_.to_dataproto()
            with self.assertRaisesRegex(ImportError, "to_slime needs slime.*github.com/THUDM/slime"):
                self.run_.to_slime(tokenizer=TOKENIZER)

    def check_rollout(self, batch, rows, column="sampling_logprob"):
        responses = list(self.run_)
        self.assertEqual(list(batch), ["prompt_ids", "completion_ids", "logprobs", "uid", "finish_reason"])
        self.assertEqual({len(values) for values in batch.values()}, {len(rows)})
        for at, row in enumerate(rows):
            response = responses[row]
            prompt = self.run_.prompts[response.prompt_index]
            self.assertEqual(batch["prompt_ids"][at], prompt.tokens.tolist())
            self.assertEqual(batch["completion_ids"][at], response.tokens.tolist())
            self.assertEqual(batch["logprobs"][at], getattr(response, column).tolist())
            self.assertEqual(batch["uid"][at], self.run_.group_uids[response.prompt_index])
            self.assertEqual(batch["finish_reason"][at], response.finish_reason)

    def test_trl_rollout(self):
        everything = range(PROMPTS * SAMPLES)
        self.check_rollout(self.run_.to_trl_rollout(), everything)
        self.check_rollout(self.run_.to_trl_rollout(logprob="full"), everything, "logprob")
        self.run_.reward[:] = np.arange(PROMPTS * SAMPLES)
        batch = self.run_.to_trl_rollout()
        self.assertEqual(batch["reward"], list(everything))
        self.assertEqual(batch["reward_extra"], self.run_.reward_extra)
        self.assertEqual(batch["reward_extra"][4], {"acc": 1, "why": "\u00e9"})

    def test_trl_rollout_of_the_prompts_that_trl_passes(self):
        said = [[{"role": "user", "content": f"question {p}"}] for p in range(PROMPTS)]
        for prompt, messages in zip(self.run_.prompts, said):
            prompt.extra["messages"] = messages
        self.run_.prompts[3].extra = {"prompt": "text"}
        # As a data set has them where some messages have names.
        named = [{"role": "user", "content": "question 4", "name": None}]
        batch = self.run_.to_trl_rollout([named, "text", said[0], "text", said[0], named])
        self.check_rollout(batch, [12, 9, 0, 10, 1, 13])
        with self.assertRaisesRegex(reader.ReaderError, r"prompts\[1\] is none of the run's: .*question 3"):
            self.run_.to_trl_rollout([said[0], said[3]])
        with self.assertRaisesRegex(reader.ReaderError, r"prompts\[3\] wants one response more"):
            self.run_.to_trl_rollout(["text"] * 4)

    def test_trl_rollout_of_the_same_prompt_twice(self):
        for prompt in self.run_.prompts:
            prompt.extra = {"prompt": f"text {prompt.index % 2}"}
        batch = self.run_.to_trl_rollout(["text 1"] * 4)
        self.check_rollout(batch, [3, 4, 5, 9])

    def test_trl_rollout_cannot_find_prompts_of_token_ids(self):
        with self.assertRaisesRegex(reader.ReaderError, "given as token ids"):
            self.run_.to_trl_rollout(["text"])


if __name__ == "__main__":
    unittest.main()
