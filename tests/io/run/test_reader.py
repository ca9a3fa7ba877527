"""The Python reader against runs that the C++ library wrote by formula (sample.hpp)."""

import base64
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock
import warnings

import h5py
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "..", "io", "python"))
import paceline_reader as reader  # noqa: E402

PROGRAM = os.environ["PACELINE_SAMPLE_RUN"]
PROMPTS, SAMPLES = 11, 3


def prompt_tokens(p):
    return [1000 * p + t for t in range(3 + p % 5)]


def length_of(p, s):
    return (p * 31 + s * 17) % 23


def tokens_of(p, s, length):
    return [p * 100 + s * 10 + t for t in range(length)]


def reason_of(p, s):
    return ["stop_id", "length", "stop_string", "context"][(p + s) % 4]


def reward_of(p, s):
    return None if p % 3 == 0 else p + 0.5 * s


def extra_of(p, s):
    return {"acc": p, "why": "\u00e9"} if s == 1 and reward_of(p, s) is not None else {}


def text_of(tokens):
    # The library reads the characters of added tokens as bytes too, where all of them stand for one.
    pieces = {310: b"<|im_end|>", 311: b"a b", 312: b"caf\xe9"}
    joined = b"".join(pieces.get(t, bytes([t]) if t < 256 else b"") for t in tokens)
    return joined.decode("utf-8", errors="replace")


def kept_of(tokens):
    """What each token could have been, as sample.hpp has it."""
    return [list(range(t, t + 1 + t % 3)) for t in tokens]


class Pictures(unittest.TestCase):
    """A run of which a prompt has two pictures."""

    FILE = os.path.join(HERE, "..", "images", "pictures", "rgb.png")

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.file = os.path.join(scratch.name, "a.png")
        shutil.copy(self.FILE, self.file)
        self.path = os.path.join(scratch.name, "run")
        subprocess.run([PROGRAM, "pictured", self.path, self.file, "2"], check=True)
        self.run_ = reader.open_run(self.path)
        self.addCleanup(self.run_.close)

    class Processor:
        """Of the shape of transformers': what it is asked, and grids."""

        def __init__(self, grids):
            self.image_processor = self
            self.grids, self.calls = grids, []

        def __call__(self, images, return_tensors):
            self.calls.append((images, return_tensors))
            patches = sum(h * w for _, h, w in self.grids)
            return {"pixel_values": np.zeros((patches, 1176)), "image_grid_thw": np.array(self.grids)}

    @staticmethod
    def has_pillow():
        try:
            import PIL  # noqa: F401
        except ImportError:
            return False
        return True

    def test_prompts_have_them(self):
        self.assertEqual(self.run_.prompts[0].pictures, [])
        first, second = self.run_.prompts[1].pictures
        self.assertEqual((first.source, first.grid, first.first), (self.file, (1, 4, 6), 1))
        self.assertEqual((second.grid, second.first), ((1, 4, 4), 9))
        self.assertRegex(first.hash, "^[0-9a-f]{32}$")
        with open(self.FILE, "rb") as file:
            data = file.read()
        self.assertEqual(first.file(), data)
        held = type(first)("data:image/png;base64," + base64.b64encode(data).decode(), first.hash, (1, 4, 6), 0)
        self.assertEqual(held.file(), data)

    def test_damage_is_seen(self):
        name = os.path.join(self.path, "trajectories.h5")
        self.run_.close()
        with h5py.File(name, "r+") as file:
            file["prompts/picture_offsets"][1] = 1
        with self.assertRaisesRegex(reader.ReaderError, "2 pictures|1 pictures"):
            reader.open_run(self.path)

    def test_verl_positions(self):
        with self.assertRaisesRegex(reader.ReaderError, "give processor="):
            self.run_.to_verl()
        if not self.has_pillow():
            self.skipTest("no Pillow")
        processor = self.Processor([(1, 4, 6), (1, 4, 4)])
        batch = self.run_.to_verl(processor=processor)
        positions = batch["tensors"]["position_ids"]
        width = batch["tensors"]["prompts"].shape[1]
        self.assertEqual(positions.shape[1], 4)
        prompt = positions[2, :, width - 14 : width].tolist()  # the second prompt's first response
        self.assertEqual(prompt[0], list(range(14)))
        # 5, six rows of 2 x 3, two tokens, four rows of 2 x 2, 8.
        self.assertEqual(prompt[1], [0, 1, 1, 1, 1, 1, 1, 4, 5, 6, 6, 6, 6, 8])
        self.assertEqual(prompt[2], [0, 1, 1, 1, 2, 2, 2, 4, 5, 6, 6, 7, 7, 8])
        self.assertEqual(prompt[3], [0, 1, 2, 3, 1, 2, 3, 4, 5, 6, 7, 6, 7, 8])
        length = length_of(1, 0)
        self.assertEqual(positions[2, 1, width : width + length].tolist(), list(range(9, 9 + length)))
        text = positions[0, :, width - 3 : width].tolist()
        self.assertEqual(text, [[0, 1, 2]] * 4)
        self.assertEqual(positions[0, :, : width - 3].tolist(), [[1] * (width - 3)] * 4)
        inputs = batch["non_tensors"]["multi_modal_inputs"]
        self.assertEqual([len(row) for row in inputs], [0, 0, 3, 3])
        self.assertEqual(inputs[2]["images_seqlens"].tolist(), [24, 16])
        self.assertIs(inputs[2]["pixel_values"], inputs[3]["pixel_values"])
        (asked,) = processor.calls
        self.assertEqual([image.size for image in asked[0]], [(31, 23)] * 2)
        with self.assertRaisesRegex(reader.ReaderError, "prompt 1: the processor makes pictures of"):
            self.run_.to_verl(processor=self.Processor([(1, 4, 6), (1, 4, 8)]))
        with self.assertRaisesRegex(reader.ReaderError, "is not truncated"):
            self.run_.to_verl(prompt_length=8, truncate=True, processor=processor)

    def test_slime(self):
        if not self.has_pillow():
            self.skipTest("no Pillow")
        with open(os.path.join(self.path, "tokenizer.json"), "w", encoding="utf-8") as file:
            json.dump({"model": {"type": "BPE", "vocab": {}, "merges": []}}, file)
        processor = self.Processor([(1, 4, 6), (1, 4, 4)])
        with unittest.mock.patch.object(type(self.run_), "decoder", lambda *_: str):
            samples = list(self.run_.iter_slime(processor=processor))
        self.assertIsNone(samples[0].multimodal_inputs)
        self.assertIsNone(samples[0].multimodal_train_inputs)
        self.assertEqual(len(samples[2].multimodal_inputs["images"]), 2)
        self.assertIn("pixel_values", samples[2].multimodal_train_inputs)


class Base(unittest.TestCase):
    def check(self, response, p, s):
        length = length_of(p, s)
        self.assertEqual((response.prompt_index, response.sample_index), (p, s))
        self.assertEqual(response.tokens.tolist(), tokens_of(p, s, length))
        self.assertEqual(response.tokens.dtype, np.int32)
        self.assertEqual(response.logprob.tolist(), [-0.5 * t - s for t in range(length)])
        self.assertEqual(response.sampling_logprob.tolist(), [-0.25 * t for t in range(length)])
        self.assertEqual(response.finish_reason, reason_of(p, s))
        self.assertEqual(response.reward, reward_of(p, s))
        self.assertEqual(response.reward_extra, extra_of(p, s))
        self.assertEqual(response.weight_version, 12)


class CompleteRun(Base):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.path = os.path.join(cls.scratch.name, "run")
        subprocess.run([PROGRAM, "complete", cls.path, str(PROMPTS), str(SAMPLES)], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def setUp(self):
        self.run_ = reader.open_run(self.path)
        self.ids = [(p, s) for p in range(PROMPTS) for s in range(SAMPLES)]

    def tearDown(self):
        self.run_.close()

    def test_attributes(self):
        a = self.run_.attributes
        self.assertEqual(a["schema_version"], 3)
        self.assertEqual(a["program_version"], "0.1.0-test")
        self.assertEqual(a["config_text"], "model:\n  path: somewhere\n")
        self.assertEqual(a["model_fingerprint"], "00112233445566778899aabbccddeeff")
        self.assertEqual(len(a["prompts_fingerprint"]), 32)
        self.assertEqual(a["seed"], 18446744073709551615)
        self.assertEqual((a["prompts"], a["samples"], a["weight_version"]), (PROMPTS, SAMPLES, 12))
        self.assertEqual((a["backend"], a["isa"], a["dtype"]), ("cpu", "avx512_bf16", "bf16"))
        self.assertEqual(a["sampling"]["temperature"], 0.7)
        self.assertEqual(a["sampling"]["stop_ids"], [7, 8])
        self.assertEqual(a["sampling"]["stop_strings"], ["\n\n", "\u00e9nd"])
        manifest = reader.live_manifest(self.path)
        self.assertEqual(manifest["sampling"], a["sampling"])

    def test_prompts(self):
        self.assertEqual(len(self.run_.prompts), PROMPTS)
        for p, prompt in enumerate(self.run_.prompts):
            self.assertEqual(prompt.uid, f"uid-{p * 7919 % 1000}-{p}")
            self.assertEqual(prompt.tokens.tolist(), prompt_tokens(p))
            self.assertEqual(prompt.ground_truth, f"answer \u00e9 {p}" if p % 2 == 0 else "")
            self.assertEqual(prompt.extra, {"level": p})

    def test_every_response_by_index_and_in_blocks(self):
        self.assertEqual(len(self.run_), len(self.ids))
        for index, (p, s) in enumerate(self.ids):
            self.check(self.run_[index], p, s)
        self.check(self.run_[-1], *self.ids[-1])
        with self.assertRaises(IndexError):
            self.run_[len(self.ids)]
        for block in (1, 7, 1 << 22):
            responses = list(self.run_.responses(block))
            self.assertEqual(len(responses), len(self.ids))
            for response, (p, s) in zip(responses, self.ids):
                self.check(response, p, s)
        self.assertEqual(self.run_.lengths.tolist(), [length_of(p, s) for p, s in self.ids])

    def test_layout_of_the_file(self):
        import h5py

        with h5py.File(os.path.join(self.path, "trajectories.h5"), "r") as file:
            group = file["trajectories"]
            kinds = {name: group[name].dtype.str for name in group}
            self.assertEqual(
                kinds,
                {
                    "prompt_index": "<i4",
                    "sample_index": "<i4",
                    "offsets": "<i8",
                    "tokens": "<i4",
                    "logprob": "<f4",
                    "sampling_logprob": "<f4",
                    "finish_reason": "|u1",
                    "reward": "<f4",
                    "reward_extra": "|u1",  # of this run something was said
                    "reward_extra_offsets": "<i8",
                    "weight_version": "<u8",
                    "checksum": "<u8",
                },
            )
            meaning = {int(v): k for k, v in group["finish_reason"].attrs.items()}
            of_conversations = ("turns", "failed")
        known = {k: name for k, name in reader.FINISH_REASONS.items() if name not in of_conversations}
        self.assertEqual(meaning, known)
        with h5py.File(os.path.join(self.path, "telemetry.h5"), "r") as file:
            self.assertEqual(file["role_names"][:].tobytes(), b"coordinatorverifier")
            self.assertEqual(file["role_names_offsets"][:].tolist(), [0, 11, 19])
            self.assertEqual(file["attempts/plan"][:].tobytes(), b"one group")
            self.assertEqual(len(file["ranks/1/steps/start"]), len(self.ids) + 3)
            self.assertEqual(file["requests/kind"].attrs["finished"], 1)
            self.assertEqual(file["requests/tokens"][0], length_of(*self.ids[-1]))
            self.assertEqual(file["summary/busy_seconds"][0], 0.25 * len(self.ids))

    def test_races(self):
        end = 0.25 * len(self.ids)
        races = {name: values.tolist() for name, values in reader.races(self.path).items()}
        seconds = races.pop("seconds")
        self.assertEqual(seconds[:2], [1, 2.5])
        self.assertTrue(seconds[2] != seconds[2], "the run ended first")
        prompt, sample = self.ids[1]
        self.assertEqual(
            races,
            {
                "attempt": [0] * 3,
                "rank": [1] * 3,
                "prompt_index": [prompt] * 3,
                "sample_index": [sample] * 3,
                "begin": [2, 4, 7],
                "start": [end + 2, end + 4, end + 7],
                "method": ["suffix", "ngram", ""],
                "tokens": [3, 6, -1],
                "won": [True, False, False],
            },
        )

    def test_acceptance(self):
        def columns(by):
            return {name: values.tolist() for name, values in reader.acceptance(self.path, by).items()}

        self.assertEqual(
            columns("position"),
            {"position": [1, 2], "drafted": [130, 50], "accepted": [96, 20], "rate": [96 / 130, 0.4]},
        )
        self.assertEqual(
            columns(["drafter", "batch"]),
            {
                "drafter": ["ngram", "suffix", "suffix"],
                "batch": [4, 1, 4],
                "drafted": [10, 20, 150],
                "accepted": [6, 10, 100],
                "rate": [0.6, 0.5, 100 / 150],
            },
        )
        self.assertEqual(columns("progress")["drafted"], [20, 160])
        self.assertEqual(columns(("rank", "attempt"))["drafted"], [180])
        with self.assertRaisesRegex(ValueError, "expected some of"):
            reader.acceptance(self.path, "time")
        with self.assertRaisesRegex(reader.ReaderError, "not telemetry"):
            reader.acceptance(os.path.join(self.path, "trajectories.h5"))

    def test_timeline(self):
        spans = reader.timeline(self.path)
        rows = [tuple(spans[c][i] for c in spans) for i in range(len(spans["rank"]))]
        late = [row for row in rows if row[2] >= 98]
        self.assertEqual(
            late,
            [
                (1, "wait", 98.5, 1.5, -1, 0),
                (1, "step", 100, 2, -1, 0),
                (1, "receive", 100.5, 4, 2, 64),
                (1, "send", 101, 0.5, 3, 4096),
                (1, "draft", 110, 1, -1, 0),
                (1, "step", 111, 2, -1, 0),
                (1, "become verifier", 120, 2, -1, 0),
                (1, "receive", 124, 0.25, 2, 128),
                (1, "step", 125, 2, -1, 0),
                (1, "write", 130, 0.5, -1, 0),
            ],
        )
        self.assertTrue(np.all(np.diff(spans["start"]) >= 0))
        with self.assertRaisesRegex(reader.ReaderError, "not telemetry"):
            reader.timeline(os.path.join(self.path, "trajectories.h5"))

    def test_wall_time_and_hosts(self):
        attempts = {name: values.tolist() for name, values in reader.attempts(self.path).items()}
        self.assertEqual(
            attempts,
            {"attempt": [0], "ranks": [1], "started": [1000], "ended": [1130.5], "seconds": [130.5]},
        )
        ranks = {name: values.tolist() for name, values in reader.rank_seconds(self.path).items()}
        self.assertEqual(
            ranks,
            {
                "attempt": [0],
                "rank": [1],
                "host": ["node-a"],
                "role": ["verifier"],
                "busy": [0.25 * len(self.ids)],
                "idle": [1],
                "communication": [0.5],
                "loading": [0.25],
                "flush": [0.125],
                "group_bytes": [4096],
            },
        )
        writes = {name: values.tolist() for name, values in reader.writes(self.path).items()}
        self.assertEqual(
            writes,
            {"attempt": [0], "rank": [1], "start": [130], "seconds": [0.5], "kind": ["telemetry"]},
        )

    def test_units(self):
        import h5py

        without = []

        def look(name, item):
            if isinstance(item, h5py.Dataset) and "unit" not in item.attrs:
                without.append(name)

        with h5py.File(os.path.join(self.path, "telemetry.h5"), "r") as file:
            file.visititems(look)
            self.assertEqual(file["ranks/1/steps/duration"].attrs["unit"], b"s")
        named = ["draft_memory/kind", "kv_pool/use", "requests/kind", "requests/reason"]
        self.assertEqual(sorted(without), sorted(named + ["scores/outcome", "writes/kind"]))

    def test_scale(self):
        changes = {name: values.tolist() for name, values in reader.model_scale(self.path).items()}
        self.assertEqual(
            changes,
            {
                "attempt": [0],
                "rank": [1],
                "epoch": [4],
                "role": ["verifier"],
                "start": [120],
                "preparing": [2],
                "loading": [0.5],
                "first_step": [7],
            },
        )
        moves = {name: values.tolist() for name, values in reader.kv_scale(self.path).items()}
        self.assertEqual(
            moves,
            {"attempt": [0], "rank": [1], "peer": [2], "bytes": [128], "start": [124], "seconds": [0.25]},
        )

        pool = {name: values.tolist() for name, values in reader.kv_pool(self.path).items()}
        self.assertEqual(
            pool,
            {
                "attempt": [0],
                "rank": [1],
                "bytes": [32],
                "memory_bytes": [64],
                "disk_bytes": [96],
                "start": [126],
                "seconds": [0.5],
                "complete": [True],
                "use": ["restored"],
            },
        )

    def test_draft_memory(self):
        table = {name: values.tolist() for name, values in reader.draft_memory(self.path).items()}
        expected = {"attempt": [0], "rank": [1], "blocks": [40], "moved": [6], "start": [127], "seconds": [2]}
        expected.update(longest_pause=[0.25], kind=["contracted"])
        self.assertEqual(table, expected)

    def test_stop_points(self):
        table = reader.stop_points(self.path)
        states = np.zeros((1, 7, 10), np.float32)
        states[0, :, 0] = -0.25 * np.arange(7)
        lengths = np.zeros((1, 8, 9), np.float32)
        lengths[0, np.arange(8), np.arange(8) // 2] = 1
        np.testing.assert_array_equal(table.pop("states"), states)
        np.testing.assert_array_equal(table.pop("lengths"), lengths)
        expected = {"attempt": [0], "rank": [1], "prompt_index": [3], "sample_index": [1], "first": [20]}
        expected["accepted"] = [[0, 0, 1, 1, 2, 2, 3, 3]]
        self.assertEqual({name: values.tolist() for name, values in table.items()}, expected)

    def test_draft_servers(self):
        table = {name: values.tolist() for name, values in reader.draft_servers(self.path).items()}
        expected = {"attempt": [0], "rank": [1], "update_bytes": [300], "fetch_bytes": [200], "fetches": [4]}
        expected.update(heard=[42], most_behind=[20], behind=[10.5], seconds=[0.5])
        self.assertEqual(table, expected)

    def test_scores(self):
        scores = reader.scores(self.path)
        self.assertEqual(scores["start"].tolist(), [8, 9])
        self.assertEqual(scores["duration"].tolist(), [0.5, 2])
        self.assertEqual(scores["outcome"].tolist(), ["scored", "refused"])
        self.assertEqual(scores["reward"][0], 0.75)
        self.assertTrue(np.isnan(scores["reward"][1]))
        ids = list(zip(scores["prompt_index"].tolist(), scores["sample_index"].tolist()))
        self.assertEqual(ids, [self.ids[1], self.ids[2]])
        self.assertEqual((scores["attempt"].tolist(), scores["rank"].tolist()), ([0, 0], [1, 1]))

    def test_scores_under_other_weights(self):
        subprocess.run([PROGRAM, "scores", self.path, "ref-1"], check=True)
        scores = self.run_.scores_under("ref-1")
        self.assertFalse(scores._file, "it stays open, and nothing more is read of it")
        self.assertEqual(scores.attributes["model_fingerprint"], "f" * 32)
        self.assertEqual(len(scores), len(self.ids))
        for index, (p, s) in enumerate(self.ids):
            tokens = range(length_of(p, s))
            self.assertEqual(scores.logprob[index].dtype, np.float32)
            self.assertEqual(scores.logprob[index].tolist(), [-0.5 * t - s - 0.125 for t in tokens])
            self.assertEqual(
                scores.sampling_logprob[index].tolist(),
                [-float("inf") if t % 3 == 0 else -0.25 * t for t in tokens],
            )
        with self.assertRaisesRegex(reader.ReaderError, "score the run with sampling.logprobs"):
            scores.top(0)
        with self.assertRaisesRegex(FileNotFoundError, "scores-re.h5 does not exist.*'ref-1'"):
            self.run_.scores_under("re")

    def test_scores_of_other_responses_are_refused(self):
        subprocess.run([PROGRAM, "scores", self.path, "old"], check=True)
        with tempfile.TemporaryDirectory() as other:
            path = os.path.join(other, "run")
            subprocess.run([PROGRAM, "complete", path, str(PROMPTS - 1), str(SAMPLES)], check=True)
            shutil.copy(os.path.join(self.path, "scores-old.h5"), path)
            with reader.open_run(path) as run:
                with self.assertRaisesRegex(reader.ReaderError, "score them anew"):
                    run.scores_under("old")

    def test_slime(self):
        for which in ("sampling", "full"):
            samples = list(self.run_.iter_slime(logprob=which, tokenizer=self.tokenizer()))
            self.assertEqual(len(samples), len(self.ids))
            for index, (sample, (p, s)) in enumerate(zip(samples, self.ids)):
                length = length_of(p, s)
                self.assertEqual((sample.group_index & 0xFFFFFFFF, sample.index), (p, index))
                self.assertEqual(sample.tokens, prompt_tokens(p) + tokens_of(p, s, length))
                self.assertEqual(sample.response, text_of(tokens_of(p, s, length)))
                self.assertEqual(sample.response_length, length)
                self.assertEqual(sample.loss_mask, [1] * length)
                expected = [-0.25 * t if which == "sampling" else -0.5 * t - s for t in range(length)]
                self.assertEqual(sample.rollout_log_probs, expected)
                self.assertEqual(sample.reward, reward_of(p, s))
                status = "completed" if reason_of(p, s).startswith("stop") else "truncated"
                self.assertEqual(sample.status, status)
                self.assertEqual(sample.weight_versions, ["12"])
                self.assertEqual(sample.label, f"answer \u00e9 {p}" if p % 2 == 0 else None)
                self.assertEqual(sample.prompt, text_of(prompt_tokens(p)))
                self.assertEqual(sample.metadata["level"], p)
                self.assertEqual(sample.metadata.get("reward_extra", {}), extra_of(p, s))
                json.dumps(sample.to_dict())
        with self.assertRaises(ValueError):
            next(self.run_.iter_slime(logprob="other", tokenizer=self.tokenizer()))

    def tokenizer(self):
        """A byte-level vocabulary of 256 bytes and three added tokens; the other ids have no token."""
        characters = [
            chr(b) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174 else None for b in range(256)
        ]
        hidden = [b for b in range(256) if characters[b] is None]
        for n, b in enumerate(hidden):
            characters[b] = chr(256 + n)
        document = {
            "model": {"vocab": {character: b for b, character in enumerate(characters)}},
            "added_tokens": [
                {"id": 310, "content": "<|im_end|>", "special": True},
                {"id": 311, "content": "a b"},
                {"id": 312, "content": "cafe\u0301"},
            ],
            "normalizer": {"type": "NFC"},
        }
        with open(os.path.join(self.scratch.name, "tokenizer.json"), "w", encoding="utf-8") as file:
            json.dump(document, file)
        return self.scratch.name

    def test_slime_finds_the_runs_tokenizer(self):
        with self.assertRaisesRegex(reader.ReaderError, "names no model.path; give tokenizer=DIRECTORY"):
            next(self.run_.iter_slime())  # the sample's configuration is not one the program writes
        self.run_.attributes["config_text"] = 'model:\n  path: "%s"\nprompts:\n' % self.tokenizer()
        self.assertEqual(next(self.run_.iter_slime()).prompt, text_of(prompt_tokens(0)))
        self.run_.attributes["config_text"] = (
            'model:\n  path: "/nowhere"\n  tokenizer: "%s"\nprompts:\n' % self.tokenizer()
        )
        self.assertEqual(next(self.run_.iter_slime()).prompt, text_of(prompt_tokens(0)))
        self.run_.attributes["config_text"] = 'model:\n  path: "/a \\"b\\\\c\\x07"\n'
        with self.assertRaisesRegex(reader.ReaderError, r'^/a "b\\c\x07/tokenizer.json'):
            next(self.run_.iter_slime())

    def test_text(self):
        tokenizer = self.tokenizer()
        for index, (p, s) in enumerate(self.ids):
            tokens = tokens_of(p, s, length_of(p, s))
            kept = [token for token in tokens if token != 310]
            response = self.run_[index]
            self.assertEqual(self.run_.text(response, tokenizer=tokenizer), text_of(tokens))
            without = self.run_.text(response, skip_special_tokens=True, tokenizer=tokenizer)
            self.assertEqual(without, text_of(kept))
        self.assertIn("<|im_end|>", self.run_.text(self.run_[3 * SAMPLES + 1], tokenizer=tokenizer))
        prompt = self.run_.prompts[2]
        self.assertEqual(self.run_.text(prompt, tokenizer=tokenizer), text_of(prompt_tokens(2)))
        self.assertEqual(self.run_.decoder(tokenizer)([72, 105, 310]), "Hi<|im_end|>")

    def test_groups_are_of_one_run(self):
        def groups(run):
            slime = {sample.group_index for sample in run.iter_slime(tokenizer=self.tokenizer())}
            self.assertEqual(len(slime), PROMPTS)
            self.assertTrue(all(0 <= group < 1 << 63 for group in slime))
            return slime | set(run.to_verl()["non_tensors"]["uid"]) | set(run.to_trl_rollout()["uid"])

        mine = groups(self.run_)
        self.assertEqual(len(mine), 2 * PROMPTS, "verl and TRL have the same")
        with reader.open_run(os.path.relpath(self.path)) as again:
            self.assertEqual(groups(again), mine, "by whatever name it is read")
        self.run_.attributes["weight_version"] += 1
        self.assertFalse(groups(self.run_) & mine, "the next step's")
        with tempfile.TemporaryDirectory() as scratch:
            copy = shutil.copytree(self.path, os.path.join(scratch, "run"))
            with reader.open_run(copy) as other:
                self.assertEqual([p.uid for p in other.prompts], [p.uid for p in self.run_.prompts])
                self.assertFalse(groups(other) & mine, "a run elsewhere")

    def test_slime_has_the_lines_messages(self):
        messages = [{"role": "user", "content": "hi"}]
        self.run_.prompts[0].extra["messages"] = messages
        self.run_.prompts[1].extra["prompt"] = "text"
        samples = list(self.run_.iter_slime(tokenizer=self.tokenizer()))
        self.assertEqual(samples[0].prompt, messages)
        self.assertIsNot(samples[0].prompt, samples[1].prompt)
        self.assertNotIn("messages", samples[0].metadata)
        self.assertEqual(samples[SAMPLES].prompt, "text")
        self.assertEqual(samples[2 * SAMPLES].prompt, text_of(prompt_tokens(2)))

    def check_verl(self, data, width_p, width_r, which, pad):
        self.assertEqual(list(data), ["tensors", "non_tensors", "meta_info"])
        batch = data["tensors"]
        rows = len(self.ids)
        self.assertEqual(batch["prompts"].shape, (rows, width_p))
        self.assertEqual(batch["responses"].shape, (rows, width_r))
        self.assertEqual(batch["input_ids"].shape, (rows, width_p + width_r))
        for row, (p, s) in enumerate(self.ids):
            prompt = prompt_tokens(p)[-width_p:]
            response = tokens_of(p, s, length_of(p, s))[:width_r]
            left, right = width_p - len(prompt), width_r - len(response)
            want = [pad] * left + prompt + response + [pad] * right
            self.assertEqual(batch["input_ids"][row].tolist(), want)
            self.assertEqual(batch["prompts"][row].tolist(), want[:width_p])
            self.assertEqual(batch["responses"][row].tolist(), want[width_p:])
            mask = [0] * left + [1] * (len(prompt) + len(response)) + [0] * right
            self.assertEqual(batch["attention_mask"][row].tolist(), mask)
            self.assertEqual(batch["response_mask"][row].tolist(), mask[width_p:])
            total = len(prompt) + len(response)
            positions = [0] * left + list(range(total)) + [total - 1] * right
            self.assertEqual(batch["position_ids"][row].tolist(), positions)
            logprob = [-0.25 * t if which == "sampling" else -0.5 * t - s for t in range(len(response))]
            self.assertEqual(batch["rollout_log_probs"][row].tolist(), logprob + [0] * right)
            uid = f"uid-{p * 7919 % 1000}-{p}@{self.run_.key}"
            self.assertEqual(data["non_tensors"]["uid"][row], uid)
        self.assertEqual(data["meta_info"], {"temperature": 0.7})

    def test_verl_is_warned_of_other_distributions(self):
        def warned(settings, own=(), **options):
            with reader.open_run(self.path) as run, warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                run.attributes["sampling"].update(settings)
                run.prompts[1].own_sampling.update(own)
                run.to_verl(**options)
                return " ".join(str(warning.message) for warning in caught)

        self.assertEqual(warned({}), "")
        self.assertEqual(warned({}, {"temperature": 0.7, "logit_bias": {}}), "")
        self.assertIn("temperatures of their own", warned({}, {"temperature": 0.5}))
        self.assertIn("sampled with repetition_penalty,", warned({"repetition_penalty": 1.1}))
        self.assertIn("sampled with frequency_penalty, logit_bias,",
                      warned({"logit_bias": {"3": -1}}, {"frequency_penalty": 1}))
        self.assertEqual(warned({"logit_bias": {"3": -1}}, logprob="full"), "")

    def test_verl(self):
        longest = max(length_of(p, s) for p, s in self.ids)
        data = self.run_.to_verl(pad_token_id=9)
        self.check_verl(data, 7, longest, "sampling", 9)
        for name, values in data["tensors"].items():
            self.assertEqual(values.dtype, np.float32 if name == "rollout_log_probs" else np.int64)
            self.assertEqual(len(values), len(self.ids))
        self.check_verl(self.run_.to_verl(20, 40, logprob="full"), 20, 40, "full", 0)
        self.check_verl(self.run_.to_verl(4, 5, truncate=True), 4, 5, "sampling", 0)

    def test_verl_scores_only_where_every_response_has_a_reward(self):
        self.assertNotIn("rm_scores", self.run_.to_verl()["tensors"], "a third have none")
        self.run_.reward[:] = np.nan
        self.assertNotIn("rm_scores", self.run_.to_verl()["tensors"])
        self.run_.reward[:] = np.arange(len(self.ids)) + 0.5
        for width in (None, 5):
            scores = self.run_.to_verl(response_length=width, truncate=True)["tensors"]["rm_scores"]
            self.assertEqual(scores.dtype, np.float32)
            for row, (p, s) in enumerate(self.ids):
                count = min(length_of(p, s), scores.shape[1])
                expected = [0.0] * scores.shape[1]
                if count > 0:
                    expected[count - 1] = row + 0.5
                self.assertEqual(scores[row].tolist(), expected)

    def test_verl_has_what_was_said_beside_rewards_where_it_has_the_rewards(self):
        self.assertEqual(self.run_.reward_extra, [extra_of(p, s) for p, s in self.ids])
        self.assertNotIn("reward_extra_keys", self.run_.to_verl()["meta_info"])
        self.run_.reward[:] = np.arange(len(self.ids)) + 0.5
        data = self.run_.to_verl()
        self.assertEqual(data["meta_info"]["reward_extra_keys"], ["acc", "score", "why"])
        fields = data["non_tensors"]
        self.assertEqual(list(fields)[-4:], ["reward_extra_info", "acc", "score", "why"])
        for row, (p, s) in enumerate(self.ids):
            said = extra_of(p, s)
            expected = {"score": row + 0.5, **said} if said else {"acc": row + 0.5}
            self.assertEqual(fields["reward_extra_info"][row], expected)
            for name in ("acc", "score", "why"):
                self.assertEqual(fields[name][row], expected.get(name))
        self.assertEqual(fields["acc"].dtype, np.float64, "numbers stay numbers, for metrics")
        # No name of a column of the batch is taken.
        self.run_._extras = [json.dumps({"uid": "x", "prompts": 1, "list": [row, 2]}) for row in range(len(self.ids))]
        data = self.run_.to_verl()
        self.assertEqual(data["meta_info"]["reward_extra_keys"], ["score", "list"])
        self.assertEqual(data["non_tensors"]["uid"][0], self.run_.group_uids[0])
        self.assertEqual(data["non_tensors"]["list"][3], [3, 2])
        self.assertEqual(data["non_tensors"]["reward_extra_info"][3]["uid"], "x")

    def test_files_are_read_where_locks_are_refused(self):
        # What is locked by another refuses a lock as a file system without locks does. A copy, for
        # this test's own run holds one of the file.
        copy = os.path.join(self.scratch.name, "locked.h5")
        shutil.copy(os.path.join(self.path, "trajectories.h5"), copy)
        with open(copy, "rb") as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with reader.open_run(copy) as run:
                self.assertEqual(len(run), len(self.ids))

    def test_verl_has_the_prompts_fields_one_a_response(self):
        fields = self.run_.to_verl()["non_tensors"]
        self.assertEqual(list(fields), ["uid", "reward_model"], "what no prompt has is left out")
        self.assertEqual(fields["reward_model"][0], {"style": "rule", "ground_truth": "answer \u00e9 0"})
        self.assertEqual(fields["reward_model"][SAMPLES], {}, "prompt 1 has no truth")
        for prompt in self.run_.prompts[1:]:
            prompt.extra.update(
                prompt=[{"role": "user", "content": prompt.uid}],
                data_source="gsm8k",
                reward_model={"style": "rule", "ground_truth": prompt.uid},
                extra_info={"index": prompt.index},
            )
        fields = self.run_.to_verl()["non_tensors"]
        for name, values in fields.items():
            self.assertEqual((name, values.dtype, values.shape), (name, object, (len(self.ids),)))
        for row, (p, _) in enumerate(self.ids):
            uid = self.run_.prompts[p].uid
            self.assertEqual(fields["data_source"][row], "gsm8k" if p else None)
            self.assertEqual(fields["extra_info"][row], {"index": p} if p else {})
            message = [{"role": "user", "content": uid}]
            self.assertEqual(fields["raw_prompt"][row], message if p else None)
            if p:
                self.assertEqual(fields["reward_model"][row]["ground_truth"], uid)
        # A reward function that writes into a row must not write into its siblings'.
        fields["extra_info"][SAMPLES]["num_turns"] = 2
        self.assertEqual(fields["extra_info"][SAMPLES + 1], {"index": 1})
        self.assertEqual(self.run_.prompts[1].extra["extra_info"], {"index": 1})

    def test_trl(self):
        verl = self.run_.to_verl(20, 40, pad_token_id=9)["tensors"]
        batch = self.run_.to_trl(20, 40, pad_token_id=9)
        same = {
            "prompt_ids": verl["prompts"],
            "prompt_mask": verl["attention_mask"][:, :20],
            "completion_ids": verl["responses"],
            "completion_mask": verl["response_mask"],
            "sampling_per_token_logps": verl["rollout_log_probs"],
        }
        self.assertEqual(list(batch), list(same))
        for name, values in same.items():
            np.testing.assert_array_equal(batch[name], values)
            self.assertEqual(batch[name].dtype, values.dtype)
        self.run_.reward[:] = 0.5
        self.assertEqual(self.run_.to_trl()["rewards"].tolist(), [0.5] * len(self.ids))
        with self.assertRaisesRegex(reader.ReaderError, "prompt_length=6"):
            self.run_.to_trl(prompt_length=6)

    def test_verl_what_does_not_fit_is_named(self):
        with self.assertRaisesRegex(reader.ReaderError, r"prompts are longer than prompt_length=6.*'uid-676-4'"):
            self.run_.to_verl(prompt_length=6)
        with self.assertRaisesRegex(reader.ReaderError, r"response_length=10.*truncate=True"):
            self.run_.to_verl(response_length=10)

    def test_verl_as_torch(self):
        try:
            import torch
        except ImportError:
            self.skipTest("torch is not there")
        batch = self.run_.to_verl(as_torch=True)
        self.assertEqual(batch["tensors"]["input_ids"].dtype, torch.int64)
        self.assertEqual(batch["tensors"]["rollout_log_probs"].dtype, torch.float32)
        self.check_verl(batch, 7, max(length_of(p, s) for p, s in self.ids), "sampling", 0)

    def test_live_reading_of_a_complete_run_gives_all(self):
        self.assertEqual(len(list(reader.iter_live(self.path))), len(self.ids))

    def test_summary(self):
        text = subprocess.run(
            [sys.executable, reader.__file__, self.path], check=True, stdout=subprocess.PIPE, text=True
        ).stdout
        self.assertIn("complete", text)
        self.assertIn(f"{len(self.ids)} finished of {len(self.ids)}", text)
        self.assertIn("context 8, length 8, stop_id 8, stop_string 9", text)

    def test_a_damaged_final_file_is_an_error(self):
        import h5py

        changes = {
            "prompts/offsets": (0, 1 << 40),
            "prompts/uid_offsets": (1, -1),
            "trajectories/offsets": (len(self.ids), 1 << 40),
            "trajectories/tokens": (0, -1),
            "trajectories/finish_reason": (0, 9),
            "trajectories/weight_version": (0, 13),
            "trajectories/prompt_index": (0, 5),
        }
        damaged = os.path.join(self.scratch.name, "damaged.h5")
        for name, (row, value) in changes.items():
            shutil.copy(os.path.join(self.path, "trajectories.h5"), damaged)
            with h5py.File(damaged, "r+") as file:
                file[name][row] = value
            with self.assertRaisesRegex(reader.ReaderError, "damaged.h5: .*damaged"):
                with reader.open_run(damaged) as run:
                    list(run)
        for name, value in (("vocabulary", "x"), ("samples", 2), ("sampling", "{}"), ("isa", 7)):
            shutil.copy(os.path.join(self.path, "trajectories.h5"), damaged)
            with h5py.File(damaged, "r+") as file:
                file.attrs[name] = value
            with self.assertRaisesRegex(reader.ReaderError, "damaged.h5: "):
                reader.open_run(damaged)

    def test_other_files_are_refused(self):
        import h5py

        other = os.path.join(self.scratch.name, "other.h5")
        with h5py.File(other, "w") as file:
            file["x"] = 1
        with self.assertRaisesRegex(reader.ReaderError, "schema version"):
            reader.open_run(other)
        with self.assertRaises(FileNotFoundError):
            reader.open_run(os.path.join(self.scratch.name, "nowhere"))
        code = subprocess.run(
            [sys.executable, reader.__file__, "/nowhere"], stderr=subprocess.PIPE
        ).returncode
        self.assertEqual(code, 74)


class LiveRun(Base):
    def flushed(self, line):
        self.assertTrue(line.startswith("flushed "), line)
        return int(line.split()[1])

    def check_live(self, path, at_least, samples):
        ids = set()
        for response in reader.iter_live(path):
            self.check(response, response.prompt_index, response.sample_index)
            ids.add((response.prompt_index, response.sample_index))
        for i in range(at_least):
            self.assertIn((i // samples, i % samples), ids)
        return ids

    def test_while_it_is_written_and_after_kill(self):
        with tempfile.TemporaryDirectory() as scratch:
            path = os.path.join(scratch, "run")
            writer = subprocess.Popen(
                [PROGRAM, "live", path, "2000", "2"], stdout=subprocess.PIPE, text=True
            )
            try:
                count = self.flushed(writer.stdout.readline())
                sizes = []
                for _ in range(6):
                    ids = self.check_live(path, count, 2)
                    sizes.append(len(ids))
                    for _ in range(40):
                        count = self.flushed(writer.stdout.readline())
                self.assertEqual(sizes, sorted(sizes))
                self.assertGreater(sizes[-1], sizes[0])
                self.assertEqual(len(reader.live_prompts(path)), 2000)
                self.assertIn("in progress", reader.summary(path))
                with self.assertRaisesRegex(FileNotFoundError, "not complete"):
                    reader.open_run(path)
            finally:
                writer.send_signal(signal.SIGKILL)
                rest = writer.stdout.read()
                writer.stdout.close()
                writer.wait()
            for line in rest.splitlines():
                count = self.flushed(line)
            ids = self.check_live(path, count, 2)
            self.assertLessEqual(len(ids), count + 1)
            digest = subprocess.run([PROGRAM, "digest", path], check=True, stdout=subprocess.PIPE)
            self.assertEqual(len(digest.stdout.strip()), 32)

    def test_partial_responses_are_given_when_asked_for(self):
        with tempfile.TemporaryDirectory() as scratch:
            path = os.path.join(scratch, "run")
            subprocess.run([PROGRAM, "stopped", path, "1", "2"], check=True)
            self.assertEqual([r.sample_index for r in reader.iter_live(path)], [0])
            finished, partial = reader.iter_live(path, partial=True)
            self.check(finished, 0, 0)
            self.assertFalse(partial.finished)
            self.assertEqual(partial.tokens.tolist(), tokens_of(0, 1, 3))
            self.assertIn("1 finished of 2", reader.summary(path))

    def test_a_run_that_ends_meanwhile_with_some_of_its_prompts(self):
        import h5py

        with tempfile.TemporaryDirectory() as scratch:
            path, other = os.path.join(scratch, "run"), os.path.join(scratch, "other")
            subprocess.run([PROGRAM, "stopped", path, "1", "2"], check=True)
            subprocess.run([PROGRAM, "top", other, "3", "4"], check=True)
            final = os.path.join(other, "trajectories.h5")
            with h5py.File(final, "r+") as file:
                file["prompts/index"] = np.array([1, 3, 9], dtype=np.int32)
            responses = reader.iter_live(path)
            first = next(responses)
            os.rename(final, os.path.join(path, "trajectories.h5"))
            found = [(r.prompt_index, r.sample_index) for r in (first, *responses)]
            self.assertEqual(found, [(0, 0)] + [(p, s) for p in (1, 3, 9) for s in range(4)])
            found = {r.prompt_index for r in reader.iter_live(path)}
            self.assertEqual(found, {0, 1, 2})

    def test_samples_that_a_prompt_does_not_have_are_passed_over(self):
        with tempfile.TemporaryDirectory() as scratch:
            path = os.path.join(scratch, "run")
            subprocess.run([PROGRAM, "top", path, "3", "4"], check=True)
            os.remove(os.path.join(path, "trajectories.h5"))
            name = os.path.join(path, "run.json")
            with open(name) as file:
                manifest = json.load(file)
            manifest["sampling"]["samples"] = [[2, 1], [4, 1], [3, 1]]
            with open(name, "w") as file:
                json.dump(manifest, file)
            found = sorted((r.prompt_index, r.sample_index) for r in reader.iter_live(path))
            self.assertEqual(found, [(p, s) for p, n in enumerate((2, 4, 3)) for s in range(n)])
            for damage in ([[2, 1]], [[4, 2**63]], [[4, 3.5, 1]], "many", [[2**62, 3]]):
                manifest["sampling"]["samples"] = damage
                with open(name, "w") as file:
                    json.dump(manifest, file)
                with self.assertRaisesRegex(reader.ReaderError, "run.json"):
                    reader.live_manifest(path)

    def damaged(self, path, change):
        with open(path, "rb") as file:
            data = bytearray(file.read())
        change(data)
        with open(path, "wb") as file:
            file.write(data)

    def test_a_damaged_shard_is_passed_over_at_once(self):
        def break_indexes(data):
            for match in re.finditer(b"EAHD|OHDR", bytes(data)):
                data[match.start() + 6] ^= 1

        with tempfile.TemporaryDirectory() as scratch:
            path = os.path.join(scratch, "run")
            subprocess.run([PROGRAM, "stopped", path, "1", "2"], check=True)
            for name in ("trajectories-0-0.h5", "trajectories-0-1.h5"):
                self.damaged(os.path.join(path, "shards", name), break_indexes)
            signal.alarm(20)  # HDF5 left to itself tries again for ever
            self.assertEqual(list(reader.iter_live(path, partial=True)), [])
            signal.alarm(0)

    def test_rows_that_cannot_be_of_this_run_are_passed_over(self):
        import h5py

        forged = {
            "finish_reason": 9,
            "weight_version": 13,
            "prompt_index": 1,
            "sample_index": 2,
            "length": 1 << 31,
            "offset": (1 << 64) - 1,
        }
        for field, value in forged.items():
            with tempfile.TemporaryDirectory() as scratch:
                path = os.path.join(scratch, "run")
                subprocess.run([PROGRAM, "stopped", path, "1", "2"], check=True)
                shard = os.path.join(path, "shards", "trajectories-0-0.h5")
                with h5py.File(shard, "r+", libver="latest") as file:
                    row = file["index"][0]
                    row[field] = value
                    file["index"][0] = row
                    file["index"].resize((1 << 40,))
                responses = list(reader.iter_live(path, partial=True))
                self.assertEqual([len(r.tokens) for r in responses], [0, 2], field)

    def test_damaged_prompts_are_an_error(self):
        with tempfile.TemporaryDirectory() as scratch:
            path = os.path.join(scratch, "run")
            subprocess.run([PROGRAM, "stopped", path, "1", "2"], check=True)
            prompts = os.path.join(path, "shards", "prompts.h5")
            with open(prompts, "rb") as file:
                whole = file.read()
            for at in range(0, len(whole), 7):
                with open(prompts, "wb") as file:
                    file.write(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
                try:
                    reader.live_prompts(path)
                except (reader.ReaderError, OSError):
                    pass

    def test_a_file_of_another_kind_is_an_error(self):
        with tempfile.TemporaryDirectory() as scratch:
            for name, read in (("trajectories.h5", reader.open_run), ("telemetry.h5", reader.acceptance)):
                path = os.path.join(scratch, name)
                with self.assertRaises(FileNotFoundError):
                    read(path)
                with open(path, "w", encoding="utf-8") as file:
                    file.write("no HDF5")
                with self.assertRaisesRegex(reader.ReaderError, f"{name}: not "):
                    read(path)

    def test_there_must_be_a_run(self):
        with tempfile.TemporaryDirectory() as scratch:
            with self.assertRaises(FileNotFoundError):
                list(reader.iter_live(scratch))


class Masks(Base):
    """A run with sampling.keep_masks, complete and from its shards."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.path = os.path.join(scratch.name, "run")
        subprocess.run([PROGRAM, "masks", self.path, str(PROMPTS), str(SAMPLES)], check=True)

    def check_masks(self, responses):
        count = 0
        for response in responses:
            self.check(response, response.prompt_index, response.sample_index)
            offsets = response.kept_offsets
            self.assertEqual((response.kept_ids.dtype, offsets.dtype), (np.int32, np.int32))
            self.assertEqual(len(offsets), len(response.tokens) + 1)
            self.assertEqual((offsets[0], offsets[-1]), (0, len(response.kept_ids)))
            kept = [response.kept_ids[a:b].tolist() for a, b in zip(offsets, offsets[1:])]
            self.assertEqual(kept, kept_of(response.tokens.tolist()))
            count += 1
        self.assertEqual(count, PROMPTS * SAMPLES)

    def test_complete(self):
        with reader.open_run(self.path) as run:
            self.check_masks(run)
            self.check_masks(run.responses(block_tokens=7))
            self.check_masks(run[i] for i in range(len(run)))
            self.check_masks(run[:])
            self.assertEqual([r.sample_index for r in run[1:-1:2]], run.sample_index[1:-1:2].tolist())

    def test_from_its_shards(self):
        os.remove(os.path.join(self.path, "trajectories.h5"))
        self.check_masks(reader.iter_live(self.path))

    def test_offsets_that_are_none(self):
        import h5py

        with h5py.File(os.path.join(self.path, "trajectories.h5"), "r+") as file:
            file["trajectories/kept_offsets"][5] = 10**9
        with reader.open_run(self.path) as run, self.assertRaisesRegex(reader.ReaderError, "kept"):
            list(run)


class MostProbable(Base):
    """A run with sampling.logprobs, complete and from its shards."""

    TOP = 3

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.path = os.path.join(scratch.name, "run")
        subprocess.run([PROGRAM, "top", self.path, str(PROMPTS), str(SAMPLES)], check=True)

    def top_of(self, tokens):
        steps = np.arange(self.TOP, dtype=np.int32)
        return tokens[:, None] + 2 * steps, np.float32(-0.25) * (tokens % 7)[:, None] - np.float32(0.25) * steps

    def check_top(self, responses):
        count = 0
        for response in responses:
            self.check(response, response.prompt_index, response.sample_index)
            ids, logprobs = self.top_of(response.tokens)
            self.assertEqual((response.top_ids.dtype, response.top_logprob.dtype), (np.int32, np.float32))
            np.testing.assert_array_equal(response.top_ids, ids)
            np.testing.assert_array_equal(response.top_logprob, logprobs.astype(np.float32))
            count += 1
        self.assertEqual(count, PROMPTS * SAMPLES)

    def test_complete(self):
        with reader.open_run(self.path) as run:
            self.check_top(run)
            self.check_top(run.responses(block_tokens=7))
            self.check_top(run[i] for i in range(len(run)))

    def test_from_its_shards(self):
        os.remove(os.path.join(self.path, "trajectories.h5"))
        self.check_top(reader.iter_live(self.path))

    def test_trainers_get_them(self):
        with reader.open_run(self.path) as run:
            tensors = run.to_verl()["tensors"]
            for row, response in enumerate(run):
                length = len(response.tokens)
                np.testing.assert_array_equal(tensors["top_ids"][row, :length], response.top_ids)
                np.testing.assert_array_equal(tensors["top_log_probs"][row, :length], response.top_logprob)
                self.assertFalse(tensors["top_ids"][row, length:].any())
            self.assertEqual(tensors["top_ids"].shape, (*tensors["responses"].shape, self.TOP))
            self.assertEqual(run.to_verl(response_length=4, truncate=True)["tensors"]["top_ids"].shape[1], 4)

    def test_scores_have_theirs_a_response_at_a_time(self):
        import h5py

        subprocess.run([PROGRAM, "scores", self.path, "ref"], check=True)
        with reader.open_run(self.path) as run:
            with run.scores_under("ref") as scores:
                for index, response in enumerate(run):
                    for found, expected in zip(scores.top(index), self.top_of(response.tokens)):
                        np.testing.assert_array_equal(found, expected)
                np.testing.assert_array_equal(scores.top(-1)[0], scores.top(len(run) - 1)[0])
                with self.assertRaises(IndexError):
                    scores.top(len(run))
            with h5py.File(os.path.join(self.path, "scores-ref.h5"), "r+") as file:
                data = file["scores/top_ids"][:-1]
                del file["scores/top_ids"]
                file["scores/top_ids"] = data
            with run.scores_under("ref") as scores:
                scores.top(0)  # what is damaged is found where it is read
                with self.assertRaisesRegex(reader.ReaderError, "scores-ref.h5.*top_ids are damaged"):
                    scores.top(-1)

    def test_columns_that_are_none(self):
        import h5py

        with h5py.File(os.path.join(self.path, "trajectories.h5"), "r+") as file:
            data = file["trajectories/top_ids"][:-1]
            del file["trajectories/top_ids"]
            file["trajectories/top_ids"] = data
        with reader.open_run(self.path) as run, self.assertRaisesRegex(reader.ReaderError, "top_ids"):
            list(run)


class Turns(unittest.TestCase):
    """A run with an environment, complete and from its shards."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.path = os.path.join(scratch.name, "run")
        subprocess.run([PROGRAM, "turns", self.path, str(PROMPTS), str(SAMPLES)], check=True)

    @staticmethod
    def mask_of(length):
        """As sample.hpp has it: of every four tokens the last two are given, if both are there."""
        return [0 if t % 4 >= 2 and t - t % 2 + 2 <= length else 1 for t in range(length)]

    def check_turns(self, responses):
        count = 0
        for response in responses:
            length = length_of(response.prompt_index, response.sample_index)
            mask = self.mask_of(length)
            self.assertEqual(response.loss_mask.tolist(), mask)
            self.assertEqual(response.loss_mask.dtype, np.uint8)
            self.assertFalse(response.logprob[response.loss_mask == 0].any())
            given = mask.count(0) // 2
            self.assertEqual([(t.given, t.end) for t in response.turns], [(4 * k + 2, 4 * k + 4) for k in range(given)])
            for turn in response.turns:
                self.assertEqual((turn.seconds, turn.reward), (turn.given / 2, response.sample_index))
                self.assertEqual((turn.by, turn.reason), ("tool", "length"))
            self.assertEqual(response.num_turns, 1 + 2 * given + (length > 4 * given))
            count += 1
        self.assertEqual(count, PROMPTS * SAMPLES)

    def test_complete(self):
        with reader.open_run(self.path) as run:
            self.assertTrue(run.converses)
            self.check_turns(run)
            self.check_turns(run[i] for i in range(len(run)))

    def test_from_its_shards(self):
        os.remove(os.path.join(self.path, "trajectories.h5"))
        self.check_turns(reader.iter_live(self.path))

    def test_trainers_get_masks(self):
        with reader.open_run(self.path) as run:
            lengths = [length_of(p, s) for p in range(PROMPTS) for s in range(SAMPLES)]
            masks = [self.mask_of(length) for length in lengths]
            width = max(lengths)
            padded = [mask + [0] * (width - len(mask)) for mask in masks]
            verl = run.to_verl()
            self.assertEqual(verl["tensors"]["response_mask"].tolist(), padded)
            attention = verl["tensors"]["attention_mask"][:, -width:].sum(axis=1)
            self.assertEqual(attention.tolist(), lengths)
            self.assertEqual(verl["non_tensors"]["__num_turns__"].tolist(), [r.num_turns for r in run])
            trl = run.to_trl()
            self.assertEqual(trl["tool_mask"].tolist(), padded)
            self.assertEqual(trl["completion_mask"].sum(axis=1).tolist(), lengths)
            self.assertEqual(run.to_trl_rollout()["env_mask"], masks)
            model = os.path.join(HERE, "..", "..", "..", "configs", "models", "target")
            samples = list(run.iter_slime(tokenizer=model))
            self.assertEqual([sample.loss_mask for sample in samples], masks)

    def test_turns_that_are_none(self):
        import h5py

        with h5py.File(os.path.join(self.path, "trajectories.h5"), "r+") as file:
            file["trajectories/turn_end"][3] = 10**6
        with reader.open_run(self.path) as run, self.assertRaisesRegex(reader.ReaderError, "turns"):
            list(run)


if __name__ == "__main__":
    unittest.main()
