"""Write the prompt files in verl's columns: train, unseen and a small quickstart.

    python make_prompts.py ../../configs/prompts
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

from tasks import TASKS, make_problem

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    directory = parser.parse_args().directory
    directory.mkdir(parents=True, exist_ok=True)
    for name, split, count, seed in FILES:
        write_prompts(directory / f"{name}.jsonl", name, split, count, seed)


if __name__ == "__main__":
    main()
