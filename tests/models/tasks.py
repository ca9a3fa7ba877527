"""Arithmetic tasks with a checkable answer and a step-by-step solution in text.

Why these: a 4 M parameter model can learn them from a few million tokens, yet their
responses behave like those of a reasoning model: lengths are heavy-tailed (Collatz,
multiplication, long sorts), siblings of a prompt resemble one another (same steps),
and samples at T = 1 differ (phrasing, order of reduction, an optional second pass).

Every step is local on purpose: what is left of the problem is restated on each line, so
the next token follows from copying and from one-digit lookups.

A problem *instance* (the operands, not the wording) belongs to the "unseen" split when
its SHA-256 says so; training never draws from that split, however the question is phrased.
"""

from __future__ import annotations

import hashlib
import random
import re
from dataclasses import dataclass
from typing import Callable

HELD_OUT_PERCENT = 12


def split_of(task: str, key: str) -> str:
    digest = hashlib.sha256(f"{task}:{key}".encode()).digest()
    return "unseen" if int.from_bytes(digest[:4], "big") % 100 < HELD_OUT_PERCENT else "train"


@dataclass(frozen=True)
class Problem:
    """One instance: its task, a canonical key, the question and the true answer."""

    task: str
    key: str
    question: str
    answer: str
    operands: tuple

    @property
    def split(self) -> str:
        return split_of(self.task, self.key)


def zipf_choice(rng: random.Random, low: int, high: int, power: float) -> int:
    """A size in [low, high] whose frequency falls off as (size - low + 1) ** -power."""
    weights = [(k - low + 1) ** -power for k in range(low, high + 1)]
    return rng.choices(range(low, high + 1), weights)[0]


def number(rng: random.Random, digits: int) -> int:
    return rng.randrange(0 if digits == 1 else 10 ** (digits - 1), 10**digits)


# ---------------------------------------------------------------- addition

def add_lines(left: str, right: str) -> list[str]:
    """Right to left; each line restates the digits that are left, then the result so far."""
    carry, result, lines = 0, "", []
    while left or right or carry:
        x, y = int(left[-1:] or 0), int(right[-1:] or 0)
        value = x + y + carry
        result = f"{value % 10}{result}"
        lines.append(f"{left}+{right} c{carry}:{x}+{y}+{carry}={value}|{result}")
        left, right, carry = left[:-1], right[:-1], value // 10
    return lines


def make_add(rng: random.Random) -> Problem:
    count = zipf_choice(rng, 2, 6, 2.2)
    digits = 1 + zipf_choice(rng, 1, 9 if count == 2 else 4, 0.6)
    terms = tuple(number(rng, max(1, digits - rng.choice((0, 0, 0, 1, 2)))) for _ in range(count))
    joined = " + ".join(map(str, terms))
    listed = ", ".join(map(str, terms[:-1])) + f" and {terms[-1]}"
    question = rng.choice((
        f"What is {joined}?", f"Compute {joined}.", f"Add {listed}.", f"Find the sum of {listed}.",
        f"Please work out {joined}.", f"A shop sold {listed} items. How many in total?",
    ))
    return Problem("add", "+".join(map(str, sorted(terms))), question, str(sum(terms)), terms)


def solve_add(problem: Problem, rng: random.Random) -> str:
    total, lines = problem.operands[0], []
    for term in problem.operands[1:]:
        lines += add_lines(str(total), str(term))
        total += term
        lines.append(f"total {total}")
    return "\n".join(lines)


# ---------------------------------------------------------------- multiplication

def times_digit_lines(left: str, digit: str, zeros: str) -> tuple[list[str], str]:
    """left * digit with zeros appended: the lines and the product."""
    carry, result, lines = 0, zeros, []
    while left:
        product = int(left[-1]) * int(digit)
        value = product + carry
        result = f"{value % 10}{result}"
        lines.append(f"{left}*{digit} c{carry}:{left[-1]}*{digit}={product}+{carry}={value}|{result}")
        left, carry = left[:-1], value // 10
    if carry:
        result = f"{carry}{result}"
        lines.append(f"*{digit} c{carry}|{result}")
    return lines, result


def make_mul(rng: random.Random) -> Problem:
    a = number(rng, zipf_choice(rng, 2, 5, 1.0))
    b = max(2, number(rng, zipf_choice(rng, 1, 4, 1.4)))
    question = rng.choice((
        f"What is {a} * {b}?", f"Compute {a} * {b}.", f"Multiply {a} by {b}.",
        f"Find the product of {a} and {b}.", f"Please work out {a} * {b}.",
        f"There are {a} boxes with {b} pens each. How many pens?",
    ))
    return Problem("mul", "*".join(map(str, sorted((a, b)))), question, str(a * b), (a, b))


def solve_mul(problem: Problem, rng: random.Random) -> str:
    """Digits of the second factor from the right; each partial product joins the total."""
    a, rest = map(str, problem.operands)
    total, zeros, lines = "", "", []
    while rest:
        digit, rest = rest[-1], rest[:-1]
        lines.append(f"take {digit} left {rest} pad {zeros}")
        if digit != "0":
            partial_lines, partial = times_digit_lines(a, digit, zeros)
            lines += partial_lines
            if total:
                lines += add_lines(total, partial)
                total = str(int(total) + int(partial))
            else:
                total = partial
        lines.append(f"total {total}")
        zeros += "0"
    return "\n".join(lines)


# ---------------------------------------------------------------- nested expressions

def expression(rng: random.Random, operations: int) -> str:
    if operations == 0:
        return str(rng.randrange(10))
    left = rng.randrange(operations)
    return f"({expression(rng, left)}{rng.choice('+-*')}{expression(rng, operations - 1 - left)})"


INNERMOST = re.compile(r"\((\d)([-+*])(\d)\)")


def apply(x: str, operator: str, y: str) -> str:
    a, b = int(x), int(y)
    return str({"+": a + b, "-": a - b, "*": a * b}[operator] % 10)


def reduce_lines(text: str, rng: random.Random) -> list[str]:
    """One operation a line, modulo 10; usually the leftmost, at times another innermost one."""
    lines = []
    while "(" in text:
        matches = list(INNERMOST.finditer(text))
        match = matches[0] if rng.random() < 0.8 else rng.choice(matches)
        match = next(m for m in matches if m.group() == match.group())
        value = apply(*match.groups())
        text = text[: match.start()] + value + text[match.end():]
        lines.append(f"{match.group()[1:-1]}={value}:{text}")
    return lines


def make_expr(rng: random.Random) -> Problem:
    text = expression(rng, zipf_choice(rng, 2, 12, 0.9))
    question = rng.choice((
        f"Evaluate {text} modulo 10.", f"What is {text} mod 10?", f"Reduce {text} modulo 10.",
        f"Working modulo 10, find {text}.", f"Find {text} in arithmetic modulo 10.",
    ))
    return Problem("expr", text, question, reduce_lines(text, random.Random(0))[-1][-1], (text,))


def solve_expr(problem: Problem, rng: random.Random) -> str:
    return "\n".join(reduce_lines(problem.operands[0], rng))


# ---------------------------------------------------------------- sorting

def make_sort(rng: random.Random) -> Problem:
    values = tuple(rng.sample(range(10, 100), zipf_choice(rng, 3, 16, 0.9)))
    listed = " ".join(map(str, values))
    question = rng.choice((
        f"Sort {listed}.", f"Sort these numbers: {listed}", f"Put {listed} in increasing order.",
        f"Arrange from small to large: {listed}", f"Order the list {listed} upwards.",
    ))
    return Problem("sort", " ".join(map(str, sorted(values))), question, " ".join(map(str, sorted(values))), values)


def solve_sort(problem: Problem, rng: random.Random) -> str:
    done: list[int] = []
    lines = []
    for value in problem.operands:
        done = sorted(done + [value])
        lines.append(f"{value}: " + " ".join(map(str, done)))
    return "\n".join(lines)


# ---------------------------------------------------------------- Collatz

def collatz(n: int) -> list[int]:
    path = []
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        path.append(n)
    return path


COLLATZ_PATHS = {n: collatz(n) for n in range(2, 1200)}
COLLATZ_BANDS = (
    (0.72, [n for n, p in COLLATZ_PATHS.items() if len(p) <= 20 and max(p) < 10000]),
    (0.18, [n for n, p in COLLATZ_PATHS.items() if 20 < len(p) <= 60 and max(p) < 10000]),
    (0.10, [n for n, p in COLLATZ_PATHS.items() if 60 < len(p) and max(p) < 10000]),
)


def make_collatz(rng: random.Random) -> Problem:
    band = rng.choices([b for _, b in COLLATZ_BANDS], [w for w, _ in COLLATZ_BANDS])[0]
    n = rng.choice(band)
    question = rng.choice((
        f"How many Collatz steps from {n} to 1?", f"Start at {n}. How many Collatz steps until 1?",
        f"Halve if even, else triple and add 1. How many steps from {n} to 1?",
        f"Count the Collatz steps of {n}.", f"Find the Collatz stopping time of {n}.",
    ))
    return Problem("collatz", str(n), question, str(len(COLLATZ_PATHS[n])), (n,))


def solve_collatz(problem: Problem, rng: random.Random) -> str:
    path = collatz(problem.operands[0])
    return "\n".join([f"0:{problem.operands[0]}"] + [f"{i}:{value}" for i, value in enumerate(path, 1)])


# ---------------------------------------------------------------- bases

def make_binary(rng: random.Random) -> Problem:
    """Decimal to binary."""
    n = rng.getrandbits(zipf_choice(rng, 3, 20, 0.7)) + 1
    question = rng.choice((
        f"Write {n} in binary.", f"Convert {n} to base 2.", f"What is {n} in base 2?",
        f"Give the binary form of {n}.", f"Express {n} in binary.",
    ))
    return Problem("binary", str(n), question, f"{n:b}", (n,))


def solve_binary(problem: Problem, rng: random.Random) -> str:
    n, bits, lines = problem.operands[0], "", []
    while n:
        bits = f"{n % 2}{bits}"
        lines.append(f"{n}/2={n // 2} r{n % 2}|{bits}")
        n //= 2
    return "\n".join(lines)


def make_decimal(rng: random.Random) -> Problem:
    """Binary to decimal."""
    n = rng.getrandbits(zipf_choice(rng, 3, 16, 0.7)) + 1
    question = rng.choice((
        f"Write binary {n:b} in decimal.", f"Convert {n:b} from base 2 to base 10.",
        f"What number is {n:b} in base 2?", f"Give the decimal value of binary {n:b}.",
    ))
    return Problem("decimal", str(n), question, str(n), (n,))


def solve_decimal(problem: Problem, rng: random.Random) -> str:
    """Horner's rule, eating the bits from the left."""
    bits, value, lines = f"{problem.operands[0]:b}", 0, []
    while bits:
        value, before = 2 * value + int(bits[0]), value
        lines.append(f"{bits} 2*{before}+{bits[0]}={value}")
        bits = bits[1:]
    return "\n".join(lines)


# ---------------------------------------------------------------- whole documents

@dataclass(frozen=True)
class Task:
    make: Callable[[random.Random], Problem]
    solve: Callable[[Problem, random.Random], str]
    intros: tuple[str, ...]


TASKS: dict[str, Task] = {
    "add": Task(make_add, solve_add, ("Add from the right.", "I add digit by digit.", "Column by column.")),
    "mul": Task(make_mul, solve_mul, ("Multiply digit by digit.", "Long multiplication.", "One digit at a time.")),
    "expr": Task(make_expr, solve_expr, ("Reduce step by step.", "Innermost first.", "I simplify inside out.")),
    "sort": Task(make_sort, solve_sort, ("Insert one by one.", "I insert each number.", "Build the sorted list.")),
    "collatz": Task(make_collatz, solve_collatz, ("Follow the path.", "I count the steps.", "Step by step.")),
    "binary": Task(make_binary, solve_binary, ("Halve again and again.", "Divide by 2.", "I collect remainders.")),
    "decimal": Task(make_decimal, solve_decimal, ("Double and add.", "Read the bits from the left.", "I use doubling.")),
}
MIXTURE = {"add": 0.17, "mul": 0.2, "expr": 0.16, "sort": 0.14, "collatz": 0.11, "binary": 0.12, "decimal": 0.1}

OPENINGS = ("", "", "Okay. ", "Let's see. ", "Sure. ")
CHECKS = ("Let me check.", "Let me double-check.", "Wait, let me verify.", "I will solve it again.")
AGREEMENTS = ("Same result.", "It agrees.", "Good, that matches.")
CLOSINGS = ("", "", "So the answer is {}.\n", "The result is {}.\n", "Done.\n")


def make_problem(rng: random.Random, split: str, task: str | None = None) -> Problem:
    """A random instance of the given split."""
    while True:
        name = task or rng.choices(list(MIXTURE), list(MIXTURE.values()))[0]
        problem = TASKS[name].make(rng)
        if problem.split == split:
            return problem


def solve(problem: Problem, rng: random.Random) -> str:
    """A response: opening, steps, at times a second pass (likelier after long work), the answer."""
    task = TASKS[problem.task]
    steps = task.solve(problem, rng)
    text = f"{rng.choice(OPENINGS)}{rng.choice(task.intros)}\n{steps}\n"
    check_probability = 0.06 if len(steps) < 150 else 0.15 if len(steps) < 500 else 0.3
    while rng.random() < check_probability:
        text += f"{rng.choice(CHECKS)}\n{task.solve(problem, rng)}\n{rng.choice(AGREEMENTS)}\n"
        check_probability /= 4
    return f"{text}{rng.choice(CLOSINGS).format(problem.answer)}#### {problem.answer}"


def check(response: str, truth: str) -> bool:
    """GSM8K's convention: what follows the last "####" is the answer."""
    _, mark, answer = response.rpartition("####")
    return bool(mark) and answer.strip() == truth


def prompt_text(question: str) -> str:
    """The ChatML prompt, as the chat template renders it."""
    return f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
