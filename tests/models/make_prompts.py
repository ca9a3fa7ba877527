"""Write the prompt files in verl's columns: train, unseen and a small quickstart; those with pictures; and those for
the model that calls a calculator.

    python make_prompts.py ../../configs/prompts
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

from calculator_tasks import make_calculator_problem
from picture_tasks import PICTURE_TASKS, PictureProblem, make_picture_problem
from pictures import data_uri, png_of
from tasks import TASKS, make_problem

# Pictures of the first lie beside it, and are few; the others hold their own.
PICTURE_FILES = (("pictures", "unseen", 16, 14), ("pictures-train", "train", 240, 15), ("pictures-unseen", "unseen", 64, 16))
CALCULATOR_FILES = (("calculator", "unseen", 16, 17), ("calculator-train", "train", 400, 18), ("calculator-unseen", "unseen", 64, 19))
FILES = (("train", "train", 2000, 11), ("unseen", "unseen", 512, 12), ("quickstart", "unseen", 32, 13))


def write_prompts(path: Path, name: str, split: str, count: int, seed: int) -> None:
    rng = random.Random(seed)
    lines: list[str] = []
    seen: set[tuple[str, str]] = set()
    while len(lines) < count:
        task = list(TASKS)[len(lines) % len(TASKS)] if name == "quickstart" else None
        problem = make_problem(rng, split, task)
        if (problem.task, problem.key) in seen:
            continue
        seen.add((problem.task, problem.key))
        index = len(lines)
        row = {
            "uid": f"{name}-{index:05d}",
            "data_source": f"paceline/{problem.task}",
            "prompt": [{"role": "user", "content": problem.question}],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": problem.answer},
            "extra_info": {"task": problem.task, "split": split, "index": index},
        }
        lines.append(json.dumps(row) + "\n")
    path.write_text("".join(lines))


def picture_row(problem: PictureProblem, name: str, split: str, index: int, images: list[str]) -> dict:
    return {
        "uid": f"{name}-{index:03d}",
        "data_source": f"paceline/{problem.task}",
        "prompt": [{"role": "user", "content": problem.question}],
        "images": images,
        "ability": "pictures",
        "reward_model": {"style": "rule", "ground_truth": problem.answer},
        "extra_info": {"task": problem.task, "split": split, "index": index},
    }


def write_picture_prompts(directory: Path, name: str, split: str, count: int, seed: int) -> None:
    rng = random.Random(seed)
    lines: list[str] = []
    seen: set[tuple[str, str]] = set()
    while len(lines) < count:
        task = list(PICTURE_TASKS)[len(lines) % len(PICTURE_TASKS)]
        problem = make_picture_problem(rng, split, task)
        if (problem.task, problem.key) in seen:
            continue
        seen.add((problem.task, problem.key))
        files = [png_of(picture) for picture in problem.pictures]
        images = [data_uri(file) for file in files]
        if name == "pictures":
            images = [f"pictures/{task}-{len(lines) // len(PICTURE_TASKS)}{'ab'[i] if len(files) > 1 else ''}.png"
                      for i in range(len(files))]
            (directory / "pictures").mkdir(exist_ok=True)
            for image, file in zip(images, files):
                (directory / image).write_bytes(file)
        lines.append(json.dumps(picture_row(problem, name, split, len(lines), images)) + "\n")
    (directory / f"{name}.jsonl").write_text("".join(lines))


def write_calculator_prompts(path: Path, name: str, split: str, count: int, seed: int) -> None:
    rng = random.Random(seed)
    lines: list[str] = []
    seen: set[str] = set()
    while len(lines) < count:
        problem = make_calculator_problem(rng, split)
        if problem.key in seen:
            continue
        seen.add(problem.key)
        row = {
            "uid": f"{name}-{len(lines):03d}",
            "data_source": "paceline/calculator",
            "prompt": [{"role": "user", "content": problem.question}],
            "ability": "tools",
            "reward_model": {"style": "rule", "ground_truth": problem.answer},
            "extra_info": {"task": "calculator", "split": split, "index": len(lines)},
        }
        lines.append(json.dumps(row) + "\n")
    path.write_text("".join(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    directory = parser.parse_args().directory
    directory.mkdir(parents=True, exist_ok=True)
    for name, split, count, seed in FILES:
        write_prompts(directory / f"{name}.jsonl", name, split, count, seed)
    for name, split, count, seed in PICTURE_FILES:
        write_picture_prompts(directory, name, split, count, seed)
    for name, split, count, seed in CALCULATOR_FILES:
        write_calculator_prompts(directory / f"{name}.jsonl", name, split, count, seed)


if __name__ == "__main__":
    main()
