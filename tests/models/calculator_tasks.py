"""Problems in several steps for a model that may call a calculator, and the conversations that it is trained on.

Numbers are too large for the head of a small model, and each step takes the result of the one before, so that the way to
the answer is a call a step. The conversations have three habits, of which the first alone gets there each time: a reward
can tell them apart, and has something to raise.

  steps     a call for each step, and the answer once the last result is known
  head      the answer at once, which the model has to guess
  misnamed  a call of a tool that there is not; then, told so, either of the other two
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass

from tasks import prompt_text, split_of

HABITS = {"steps": 0.25, "head": 0.4, "misnamed": 0.35}
VERBS = {"+": "add {}", "-": "subtract {}", "*": "multiply by {}"}
TOOL = "calculator"
WRONG_TOOL = "calculate"
# What tool_worker.py answers to a call of it.
NO_SUCH_TOOL = f"Error: there is no tool {WRONG_TOOL}; there are {TOOL}"


@dataclass(frozen=True)
class CalculatorProblem:
    key: str
    question: str
    answer: str
    expressions: tuple[str, ...]  # of each step, whose left side is the result of the one before
    verbs: tuple[str, ...]

    @property
    def split(self) -> str:
        return split_of("calculator", self.key)


def make_one(rng: random.Random) -> CalculatorProblem:
    value = rng.randrange(10, 1000)
    start, expressions, verbs, results = value, [], [], []
    for _ in range(rng.choices((1, 2, 3, 4), (0.2, 0.35, 0.3, 0.15))[0]):
        sign = rng.choice("+-*")
        number = rng.randrange(2, 100) if sign == "*" else rng.randrange(10, 1000)
        if (sign == "-" and number > value) or (sign == "*" and value > 99_999):
            sign = "+"
        expressions.append(f"{value} {sign} {number}")
        verbs.append(VERBS[sign].format(number))
        value = {"+": value + number, "-": value - number, "*": value * number}[sign]
        results.append(value)
    listed = ", ".join(verbs)
    question = rng.choice((
        f"Start with {start}, {listed}. What is it?", f"Take {start}, {listed}. Find the result.",
        f"Begin at {start}, {listed}. Where are you?",
    ))
    return CalculatorProblem(f"{start}:{listed}", question, str(value), tuple(expressions), tuple(verbs))


def make_calculator_problem(rng: random.Random, split: str) -> CalculatorProblem:
    """A random instance of the given split."""
    while True:
        problem = make_one(rng)
        if problem.split == split:
            return problem


def call(name: str, expression: str) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': {'expression': expression}})}\n</tool_call>"


def answered(problem: CalculatorProblem) -> str:
    return f"The result is {problem.answer}.\n#### {problem.answer}"


def turns(problem: CalculatorProblem, rng: random.Random) -> list[tuple[str, str | None]]:
    """What the model says in each turn, and what it is told then; None: the conversation is over."""
    said: list[tuple[str, str | None]] = []
    habit = rng.choices(list(HABITS), list(HABITS.values()))[0]
    if habit == "misnamed":
        said.append((f"{problem.verbs[0]}\n{call(WRONG_TOOL, problem.expressions[0])}", NO_SUCH_TOOL))
        habit = rng.choice(("steps", "head"))
    if habit == "steps":
        results = [expression.split()[0] for expression in problem.expressions[1:]] + [problem.answer]
        for verb, expression, result in zip(problem.verbs, problem.expressions, results):
            said.append((f"{verb}\n{call(TOOL, expression)}", result))
    return [*said, (answered(problem), None)]


def spans(problem: CalculatorProblem, rng: random.Random) -> list[tuple[str, bool]]:
    """The text of a conversation, as plain ChatML has it, in parts; True: the model says it."""
    parts = [(prompt_text(problem.question), False)]
    for text, told in turns(problem, rng):
        parts.append((f"{text}<|im_end|>", True))
        if told is not None:
            parts.append(("\n" + prompt_text(told), False))
    return parts
