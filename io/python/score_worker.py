#!/usr/bin/env python3
"""A reward worker that calls a reward function as verl has it: score_worker.py MY_REWARD.py [NAME].

    reward:
      method: command
      command: [python3, ./score_worker.py, ./my_reward.py]

MY_REWARD.py defines compute_score(data_source, solution_str, ground_truth, extra_info), or a function
NAME. It returns a number, or a dict with the number under "score"; the rest of the dict is not kept.
extra_info is the prompt's own, as verl gives it. A function that raises leaves its response without a
reward, with a traceback on standard error. What the function prints goes there too.

The lines are those of io/reward/worker_line.hpp. Any program can take this one's place.
"""

import importlib.util
import json
import math
import os
import sys
import traceback
from typing import Any, Callable, Dict


def load(path: str, name: str) -> Callable[..., Any]:
    """The function of that name in a file."""
    spec = importlib.util.spec_from_file_location("reward_function", path)
    if spec is None or spec.loader is None or not os.path.isfile(path):
        sys.exit(f"score_worker: {path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # for what pickles or inspects its own classes
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        sys.exit(f"score_worker: {path} defines no function {name}")
    return function


def score_of(result: Any) -> float:
    """The number in what a reward function returned."""
    if isinstance(result, dict):
        result = result["score"]
    elif isinstance(result, (tuple, list)):  # some of verl's own return (score, ...)
        result = result[0]
    score = float(result)
    if not math.isfinite(score):
        raise ValueError(f"the score is {score}")
    return score


def answer(function: Callable[..., Any], request: Dict[str, Any]) -> Dict[str, Any]:
    """What is written for a response."""
    try:
        result = function(
            data_source=request["data_source"],
            solution_str=request["response"],
            ground_truth=request["ground_truth"],
            extra_info=request["extra_info"],
        )
        return {"id": request["id"], "score": score_of(result)}
    except Exception as error:  # a response, not the worker, is at fault
        traceback.print_exc()
        return {"id": request["id"], "error": f"{type(error).__name__}: {error}"}


def main() -> None:
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: score_worker.py MY_REWARD.py [NAME]")
    # Answers go where standard output went; what anybody prints must not get between them.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    function = load(sys.argv[1], sys.argv[2] if len(sys.argv) == 3 else "compute_score")
    for line in sys.stdin.buffer:
        answers.write(json.dumps(answer(function, json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
