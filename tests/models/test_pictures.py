"""Checks of the drawn pictures, the prompt files with pictures and the model that reads them: part of
python -m unittest discover tests/models

Needs the packages of requirements.txt; the comparison with transformers is skipped where it is missing.
"""

from __future__ import annotations

import base64
import io
import json
import random
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import torch
from PIL import Image
from tokenizers import Tokenizer

from evaluate import load_directory
from model import pack, show
from picture_tasks import PICTURE_TASKS, ROW, PictureProblem, expand, make_picture_problem, picture_prompt_text, solve_picture
from pictures import png_of, seen_of
from tasks import check
from tower import Seen, rotary_positions

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
MODEL = CONFIGS / "models" / "pictures"


def rows_of(name: str) -> list[dict]:
    return [json.loads(line) for line in (CONFIGS / "prompts" / f"{name}.jsonl").read_text().splitlines()]


class Drawn(unittest.TestCase):
    def test_solutions_end_in_the_true_answer(self) -> None:
        rng = random.Random(1)
        for task in PICTURE_TASKS:
            for _ in range(50):
                problem = make_picture_problem(rng, "train", task)
                self.assertTrue(check(solve_picture(problem, rng), problem.answer))
                self.assertEqual(problem.question.count("<image>"), len(problem.pictures))

    def test_files_hold_what_was_drawn_in_a_few_hundred_bytes(self) -> None:
        rng = random.Random(2)
        for _ in range(50):
            for picture in make_picture_problem(rng, "train").pictures:
                file = png_of(picture)
                self.assertLess(len(file), 600)
                self.assertTrue(np.array_equal(np.asarray(Image.open(io.BytesIO(file)).convert("RGB")), picture))

    def test_prompts_name_pictures_that_are_there(self) -> None:
        for name in ("pictures", "pictures-train", "pictures-unseen"):
            rows = rows_of(name)
            self.assertEqual(len({row["uid"] for row in rows}), len(rows))
            for row in rows:
                self.assertEqual(row["prompt"][0]["content"].count("<image>"), len(row["images"]))
                for image in row["images"]:
                    data = (base64.b64decode(image.partition(",")[2]) if image.startswith("data:")
                            else (CONFIGS / "prompts" / image).read_bytes())
                    self.assertEqual([side % 8 for side in Image.open(io.BytesIO(data)).size], [0, 0])

    def test_positions_are_those_of_the_paper(self) -> None:
        positions = rotary_positions(9, Seen(grids=[(4, 6)], first=[2]), merge=2)
        self.assertEqual(positions.tolist(), [[0, 0, 0], [1, 1, 1], [2, 2, 2], [2, 2, 3], [2, 2, 4], [2, 3, 2], [2, 3, 3],
                                              [2, 3, 4], [5, 5, 5]])


class Reader(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.model = load_directory(MODEL)
        cls.tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))

    def document(self, problem: PictureProblem, response: str) -> tuple[torch.Tensor, int, Seen]:
        """Tokens, how many of them are the prompt's, pictures."""
        tower = self.model.shape.tower
        rows = [p.shape[0] * p.shape[1] // (tower.patch * tower.merge) ** 2 for p in problem.pictures]
        prompt, first = expand(self.tokenizer.encode(picture_prompt_text(problem.question)).ids,
                               self.tokenizer.token_to_id(ROW), rows)
        tokens = torch.tensor(prompt + self.tokenizer.encode(response).ids)
        return tokens, len(prompt), seen_of(problem.pictures, first, tower)

    @torch.no_grad()
    def logits(self, documents: list[tuple[torch.Tensor, Seen]]) -> torch.Tensor:
        lengths = [len(tokens) for tokens, _ in documents]
        packing = show(pack(lengths, sum(lengths)), lengths, [seen for _, seen in documents], self.model.shape.tower.merge)
        return self.model(torch.cat([tokens for tokens, _ in documents]), packing)

    def test_documents_of_a_batch_are_those_of_each_alone(self) -> None:
        rng = random.Random(3)
        problems = [make_picture_problem(rng, "train", task) for task in ("larger", "read", "count")]
        documents = [(tokens, seen) for tokens, _, seen in (self.document(p, solve_picture(p, rng)) for p in problems)]
        together = self.logits(documents).split([len(tokens) for tokens, _ in documents])
        for document, part in zip(documents, together):
            torch.testing.assert_close(self.logits([document]), part, atol=1e-4, rtol=1e-4)

    def test_it_reads_what_is_drawn_and_not_what_is_likely(self) -> None:
        rng = random.Random(4)
        right = swapped = 0
        for _ in range(40):
            problem, other = (make_picture_problem(rng, "unseen", "read") for _ in range(2))
            tokens, prompt, seen = self.document(problem, problem.steps.removesuffix("."))  # "." is another token with what follows
            right += bool((self.logits([(tokens, seen)])[prompt - 1 : -1].argmax(-1) == tokens[prompt:]).all())
            if other.pictures[0].shape == problem.pictures[0].shape:
                wrong = seen_of(other.pictures, seen.first, self.model.shape.tower)
                swapped += bool((self.logits([(tokens, wrong)])[prompt - 1 : -1].argmax(-1) == tokens[prompt:]).all())
        self.assertGreater(right, 20)
        self.assertLess(swapped, 3)

    @torch.no_grad()
    def test_patches_and_logits_equal_those_of_transformers(self) -> None:
        try:
            from transformers import AutoModelForImageTextToText, Qwen2VLImageProcessorPil
        except ImportError as error:
            self.skipTest(str(error))
        theirs = AutoModelForImageTextToText.from_pretrained(MODEL, dtype=torch.float32, attn_implementation="eager")
        processor = Qwen2VLImageProcessorPil.from_pretrained(MODEL)
        rng = random.Random(5)
        for task in PICTURE_TASKS:
            problem = make_picture_problem(rng, "unseen", task)
            tokens, _, seen = self.document(problem, solve_picture(problem, rng))
            made = processor(images=[Image.fromarray(picture) for picture in problem.pictures], return_tensors="pt")
            self.assertEqual([tuple(grid[1:]) for grid in made["image_grid_thw"].tolist()], seen.grids)
            torch.testing.assert_close(seen.whole(), made["pixel_values"], atol=1e-5, rtol=0)
            rows = (tokens[None] == self.tokenizer.token_to_id(ROW)).int()
            wanted = theirs(input_ids=tokens[None], pixel_values=made["pixel_values"],
                            image_grid_thw=made["image_grid_thw"], mm_token_type_ids=rows).logits[0]
            torch.testing.assert_close(self.logits([(tokens, seen)]), wanted, atol=1e-3, rtol=1e-3)


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main()
