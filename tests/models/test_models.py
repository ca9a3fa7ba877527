"""Checks of the generators, the prompt files and the exported models: python -m unittest discover tests/models

Needs the packages of requirements.txt; the comparison with transformers is skipped where it is missing.
"""

from __future__ import annotations

import json
import random
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import torch
from tokenizers import Tokenizer

from evaluate import load_directory
from model import Cache, pack
from tasks import TASKS, check, make_problem, prompt_text, solve

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
MODELS = [CONFIGS / "models" / name for name in ("target", "draft")]


def prompt_rows(name: str) -> list[dict]:
    return [json.loads(line) for line in (CONFIGS / "prompts" / f"{name}.jsonl").read_text().splitlines()]


class Tasks(unittest.TestCase):
    def test_solutions_end_in_the_true_answer(self) -> None:
        rng = random.Random(5)
        for task in TASKS:
            for _ in range(200):
                problem = make_problem(rng, "train", task)
                self.assertTrue(check(solve(problem, rng), problem.answer), problem)

    def test_unseen_questions_are_not_in_the_training_file(self) -> None:
        train = {row["prompt"][0]["content"] for row in prompt_rows("train")}
        for name in ("unseen", "quickstart"):
            self.assertFalse(train & {row["prompt"][0]["content"] for row in prompt_rows(name)})

    def test_prompt_uids_are_unique(self) -> None:
        for name in ("train", "unseen", "quickstart"):
            rows = prompt_rows(name)
            self.assertEqual(len({row["uid"] for row in rows}), len(rows))


class Models(unittest.TestCase):
    def test_tokenizer_round_trip_and_single_digits(self) -> None:
        tokenizer = Tokenizer.from_file(str(MODELS[0] / "tokenizer.json"))
        text = "naïve é 漢字  12+345\n\n it's"
        self.assertEqual(tokenizer.decode(tokenizer.encode(text).ids), text)
        self.assertEqual(len(tokenizer.encode("123456").ids), 6)
        self.assertEqual(MODELS[0].joinpath("tokenizer.json").read_bytes(), MODELS[1].joinpath("tokenizer.json").read_bytes())

    def test_parameters_and_size(self) -> None:
        counts = [sum(p.numel() for p in load_directory(d).parameters()) for d in MODELS]
        self.assertTrue(4_000_000 <= counts[0] <= 8_000_000 and counts[1] <= 600_000, counts)
        self.assertLess(sum(f.stat().st_size for d in MODELS for f in d.iterdir()), 20_000_000)

    def test_logits_equal_those_of_transformers(self) -> None:
        try:
            from transformers import AutoModelForCausalLM, AutoTokenizer
        except ImportError:
            self.skipTest("transformers is not installed")
        question = "What is 58 + 67?"
        for directory in MODELS:
            tokenizer = AutoTokenizer.from_pretrained(directory)
            text = tokenizer.apply_chat_template(
                [{"role": "user", "content": question}], add_generation_prompt=True, tokenize=False
            )
            self.assertEqual(text, prompt_text(question))
            tokens = torch.tensor(tokenizer(text).input_ids)
            own = load_directory(directory)
            with torch.no_grad():
                theirs = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)(tokens[None]).logits[0]
                flat = own(tokens, pack([len(tokens)], len(tokens)))
                cache = Cache(own.shape, 1, len(tokens))
                steps = [own.step(tokens[i: i + 1], torch.tensor([i]), cache)[0] for i in range(len(tokens))]
            torch.testing.assert_close(flat, theirs, atol=1e-3, rtol=1e-4)
            torch.testing.assert_close(torch.stack(steps), theirs, atol=1e-3, rtol=1e-4)


if __name__ == "__main__":
    unittest.main()
