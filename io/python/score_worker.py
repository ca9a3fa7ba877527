#!/usr/bin/env python3
"""A reward worker that calls a reward function as verl has it: python3 -m score_worker MY_REWARD.py [NAME].

    reward:
      method: command
      command: [python3, -m, score_worker, ./my_reward.py]

MY_REWARD.py, or a module of Python in its place (verl.utils.reward_score), defines
compute_score(data_source, solution_str, ground_truth, extra_info), or NAME: a function, one of
asyncio, an object that can be called, or a class of such, which is made once, without arguments. It
is given those of the four that it takes. It returns a number, or a dict with the number under
"score", whose other entries are kept with the response (reward_extra). extra_info is the prompt's
own, as verl gives it. A function that raises leaves its response without a reward, with a traceback
on standard error. What the function prints goes there too.

The lines are those of io/workers/worker_line.hpp. Any program can take this one's place.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import json
import math
import os
import sys
import traceback
from types import ModuleType
from typing import Any, Callable, Dict, List, Optional, Tuple

#: What a reward function may ask for, and the fields of a request that they are.
FIELDS = {
    "data_source": "data_source",
    "solution_str": "response",
    "ground_truth": "ground_truth",
    "extra_info": "extra_info",
}


def module_of(where: str) -> ModuleType:
    """A file of Python, or a module by its name, as verl writes them too (pkg://NAME)."""
    if not where.endswith(".py") and not os.path.exists(where):
        try:
            return importlib.import_module(where.replace("pkg://", "", 1))
        except ModuleNotFoundError as error:
            sys.exit(f"score_worker: {where}: neither a Python file nor a module: {error}")
    spec = importlib.util.spec_from_file_location("reward_function", where)
    if spec is None or spec.loader is None or not os.path.isfile(where):
        sys.exit(f"score_worker: {where}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # for what pickles or inspects its own classes
    sys.path.insert(0, os.path.dirname(os.path.abspath(where)))
    spec.loader.exec_module(module)
    return module


def load(where: str, name: str) -> Callable[..., Any]:
    """What of that name is to be called."""
    found = getattr(module_of(where), name, None)
    if inspect.isclass(found):
        found = found()
    if not callable(found):
        sys.exit(f"score_worker: {where} defines no {name} that can be called")
    return found


def names_taken(function: Callable[..., Any]) -> List[str]:
    """Those of FIELDS that a function takes; all where it does not say."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # written in C
        return list(FIELDS)
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return list(FIELDS)
    named = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    return [name for name in FIELDS if name in named]


def plain(value: Any) -> Any:
    """The same as JSON has it: arrays are lists, numbers that JSON has not null, the rest its text."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(item) for item in value]
    if callable(getattr(value, "tolist", None)):  # of numpy and torch
        return plain(value.tolist())
    return str(value)


def score_of(result: Any) -> Tuple[float, Dict[str, Any]]:
    """The number in what a reward function returned, and what else there is."""
    extra: Dict[str, Any] = {}
    if isinstance(result, dict):
        if "score" not in result:
            raise ValueError(f"no 'score' among the entries {sorted(map(str, result))}")
        extra = plain({key: value for key, value in result.items() if key != "score"})
        result = result["score"]
    elif isinstance(result, (tuple, list)):  # some of verl's own return (score, ...)
        result = result[0]
    score = float(result)
    if not math.isfinite(score):
        raise ValueError(f"the score is {score}")
    return score, extra


class Waiter:
    """Waits for results of asyncio's functions in one loop, so that connections outlive each call."""

    def __init__(self) -> None:
        self.loop: Optional[asyncio.AbstractEventLoop] = None

    def __call__(self, result: Any) -> Any:
        """The result itself, or what it turns out to be."""
        if not inspect.isawaitable(result):
            return result
        if self.loop is None:
            self.loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self.loop)

        async def awaited() -> Any:
            return await result

        return self.loop.run_until_complete(awaited())


def serve(make: Callable[[], Callable[[Dict[str, Any]], Dict[str, Any]]]) -> None:
    """Answers each line of standard input on standard output, by the function that `make` returns."""
    # Answers go where standard output went; what anybody prints must not get between them.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    answer = make()
    for line in sys.stdin.buffer:
        answers.write(json.dumps(answer(json.loads(line))) + "\n")
        answers.flush()


class Answers:
    """What is written for a response, by one function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.names = names_taken(function)
        self.waited_for = Waiter()

    def __call__(self, request: Dict[str, Any]) -> Dict[str, Any]:
        try:
            result = self.function(**{name: request[FIELDS[name]] for name in self.names})
            score, extra = score_of(self.waited_for(result))
        except Exception as error:  # a response, not the worker, is at fault
            traceback.print_exc()
            return {"id": request["id"], "error": f"{type(error).__name__}: {error}"}
        answer = {"id": request["id"], "score": score}
        return {**answer, "extra": extra} if extra else answer


def main() -> None:
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: python3 -m score_worker MY_REWARD.py|MODULE [NAME]")
    name = sys.argv[2] if len(sys.argv) == 3 else "compute_score"
    serve(lambda: Answers(load(sys.argv[1], name)))


if __name__ == "__main__":
    main()
