"""Problems about drawn pictures, their solutions, and the documents that a model is trained on.

An instance is what is drawn, not how; some are unseen, as of tasks.py.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Callable

import numpy as np

from pictures import COLOURS, SHAPES, Drawing, draw_number, draw_shapes
from tasks import CLOSINGS, split_of

SYSTEM = "You see."
START, ROW, END, FILM = "<|vision_start|>", "<|image_pad|>", "<|vision_end|>", "<|video_pad|>"
PLURALS = {"disc": "discs", "box": "boxes", "cross": "crosses"}


@dataclass(frozen=True)
class PictureProblem:
    task: str
    key: str  # what is drawn
    question: str  # <image> where a picture stands
    steps: str
    answer: str
    drawings: list[Drawing]

    @property
    def pictures(self) -> list[np.ndarray]:
        return [drawing.pixels for drawing in self.drawings]

    @property
    def split(self) -> str:
        return split_of(self.task, self.key)


def digits(rng: random.Random, most: int) -> str:
    return "".join(str(rng.randrange(10)) for _ in range(rng.randrange(1, most + 1)))


def spelled(number: str) -> str:
    return " ".join(number)


def make_read(rng: random.Random) -> PictureProblem:
    number = digits(rng, 5)
    question = rng.choice(("<image>Read the number.", "What does <image> say?", "<image>Which number is it?"))
    return PictureProblem("read", number, question, f"I see {spelled(number)}.", number, [draw_number(number, rng)])


def make_sum(rng: random.Random) -> PictureProblem:
    number = digits(rng, 4)
    question = rng.choice(("<image>Add the digits.", "Find the sum of the digits of <image>."))
    total, lines = int(number[0]), [f"I see {spelled(number)}."]
    for digit in number[1:]:
        lines.append(f"{total}+{digit}={total + int(digit)}")
        total += int(digit)
    return PictureProblem("sum", number, question, "\n".join(lines), str(total), [draw_number(number, rng)])


def make_larger(rng: random.Random) -> PictureProblem:
    pair = [digits(rng, 3), digits(rng, 3)]
    while int(pair[0]) == int(pair[1]):
        pair[1] = digits(rng, 3)
    question = rng.choice(("<image><image>Which is larger?", "Which is larger, <image> or <image>?"))
    best = max(pair, key=int)
    return PictureProblem("larger", "/".join(pair), question, f"I see {spelled(pair[0])} and {spelled(pair[1])}.", best,
                          [draw_number(number, rng) for number in pair])


def make_count(rng: random.Random) -> PictureProblem:
    rows = [[(rng.choice(list(COLOURS)), rng.choice(SHAPES)) for _ in range(columns)]
            for columns in [rng.randrange(2, 5)] for _ in range(rng.randrange(1, 3))]
    all_of = [place for row in rows for place in row]
    by_colour = rng.random() < 0.5
    wanted = rng.choice(list(COLOURS)) if by_colour else rng.choice(SHAPES)
    question = rng.choice(("<image>How many are {}?", "How many in <image> are {}?"))
    question = question.format(wanted if by_colour else PLURALS[wanted])
    found = sum(wanted in place for place in all_of)
    steps = "\n".join(", ".join(" ".join(place) for place in row) for row in rows)
    key = f"{wanted}:" + ";".join(",".join("-".join(place) for place in row) for row in rows)
    return PictureProblem("count", key, question, f"I see\n{steps}", str(found), [draw_shapes(rows, rng)])


PICTURE_TASKS: dict[str, Callable[[random.Random], PictureProblem]] = {
    "read": make_read, "sum": make_sum, "larger": make_larger, "count": make_count,
}
MIXTURE = {"read": 0.4, "sum": 0.2, "larger": 0.2, "count": 0.2}


def make_picture_problem(rng: random.Random, split: str, task: str | None = None) -> PictureProblem:
    """A random instance of the given split."""
    while True:
        name = task or rng.choices(list(MIXTURE), list(MIXTURE.values()))[0]
        problem = PICTURE_TASKS[name](rng)
        if problem.split == split:
            return problem


def solve_picture(problem: PictureProblem, rng: random.Random) -> str:
    return f"{problem.steps}\n{rng.choice(CLOSINGS).format(problem.answer)}#### {problem.answer}"


def picture_prompt_text(question: str) -> str:
    """The prompt, as the chat template renders it: one placeholder for each picture."""
    question = question.replace("<image>", START + ROW + END)
    return (f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{question}<|im_end|>\n"
            "<|im_start|>assistant\n")


def expand(tokens: list[int], row: int, counts: list[int]) -> tuple[list[int], list[int]]:
    """Tokens with as many placeholders as each picture has rows, and the place of each picture's first."""
    out: list[int] = []
    first: list[int] = []
    for token in tokens:
        if token == row:
            first.append(len(out))
            out += [row] * counts[len(first) - 1]
        else:
            out.append(token)
    return out, first
