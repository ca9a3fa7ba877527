#!/usr/bin/env python3
"""An environment worker that calls Python functions by name: python3 -m tool_worker MY_TOOLS.py.

    environment:
      method: command
      command: [python3, -m, tool_worker, ./my_tools.py]

MY_TOOLS.py, or a module of Python in its place, defines the tools: its functions whose names do not
begin with an underscore, of asyncio or not. Where it defines a class Tools, each conversation has an
object of it, made without arguments, whose methods are tools too. A model calls a tool as Hermes and
Qwen do,

    <tool_call>
    {"name": "calculator", "arguments": {"expression": "2 * 3"}}
    </tool_call>

several times in a turn if it likes, or as Llama 3.1 does, by a turn that is nothing but
{"name": ..., "parameters": {...}}. What the tool returns is what the model reads: text as it is,
anything else as JSON. A call that cannot be read, of a tool that there is not, or that raises is
answered by its error, which the model reads likewise.

A conversation is done with its first turn without a call. If MY_TOOLS.py defines compute_score, as
score_worker.py has it, its result is the reward, of the last turn's text (solution_str).

A worker that takes a conversation over calls the methods of Tools again, for their state; functions
are not called twice. The lines are those of io/workers/environment_line.hpp. Any program can take
this one's place.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
import traceback
from types import ModuleType
from typing import Any, Callable, Dict, List, Optional, Tuple

from score_worker import Waiter, module_of, names_taken, plain, score_of, serve

SCORE = "compute_score"

#: The end is missing where it is a stop string that was cut off, or the turn's budget ran out.
TOOL_CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)

#: What compute_score may ask for, and the fields of a turn that they are.
FIELDS = {
    "data_source": "data_source",
    "solution_str": "text",
    "ground_truth": "ground_truth",
    "extra_info": "extra_info",
}


def calls_in(text: str) -> List[str]:
    """The JSON of each call in a turn, in order."""
    found = [match.strip() for match in TOOL_CALL.findall(text)]
    if found:
        return found
    whole = text.strip()
    if whole.startswith("{") and whole.endswith("}"):
        try:
            named = json.loads(whole)
        except ValueError:
            return []
        if isinstance(named, dict) and "name" in named and "parameters" in named:
            return [whole]
    return []


def parsed(call: str) -> Tuple[str, Dict[str, Any]]:
    """A call's name and arguments. Raises ValueError, which says what is wrong."""
    try:
        said = json.loads(call)
    except ValueError as error:
        raise ValueError(f"the call is no JSON: {error}") from None
    if not isinstance(said, dict) or not isinstance(said.get("name"), str):
        raise ValueError("the call is no object with a name")
    arguments = said.get("arguments", said.get("parameters", {}))
    if isinstance(arguments, str):  # JSON in JSON, as OpenAI has it
        try:
            arguments = json.loads(arguments)
        except ValueError as error:
            raise ValueError(f"the arguments are no JSON: {error}") from None
    if not isinstance(arguments, dict):
        raise ValueError("the arguments are no object")
    return said["name"], arguments


def public(owner: Any) -> Dict[str, Callable[..., Any]]:
    """The functions of a module that it defines itself, or the methods of an object, by name."""
    own = getattr(owner, "__name__", None)
    return {
        name: function
        for name, function in inspect.getmembers(owner, inspect.isroutine)
        if not name.startswith("_")
        and name != SCORE
        and (not isinstance(owner, ModuleType) or getattr(function, "__module__", None) == own)
    }


class Conversations:
    """What is written for each line, by the tools of one module."""

    def __init__(self, module: ModuleType) -> None:
        self.functions = public(module)
        self.made = getattr(module, "Tools", None)
        self.score: Optional[Callable[..., Any]] = getattr(module, SCORE, None)
        if not self.functions and self.made is None:
            sys.exit(f"tool_worker: {module.__file__} defines no tools")
        self.objects: Dict[str, Any] = {}
        self.waited_for = Waiter()

    def __call__(self, line: Dict[str, Any]) -> Dict[str, Any]:
        name = line["id"]
        if line.get("close"):
            self.objects.pop(name, None)
            return {"id": name}
        methods: Dict[str, Callable[..., Any]] = {}
        if self.made is not None:
            if line["turn"] == 0:
                self.objects[name] = self.made()
            methods = public(self.objects[name])
        calls = calls_in(line["text"])
        if line.get("replay"):
            for call in calls:
                self.answer(call, methods)
            return {"id": name}
        if calls and not line["last"]:
            results = [self.answer(call, {**self.functions, **methods}) for call in calls]
            if len(results) == 1:  # as text it is a tool's where the model's template has tools
                return {"id": name, "observation": results[0]}
            messages = [{"role": "tool", "content": result} for result in results]
            return {"id": name, "observation": messages}
        self.objects.pop(name, None)
        return {"id": name, "done": not calls, **self.reward(line)}

    def answer(self, call: str, tools: Dict[str, Callable[..., Any]]) -> str:
        """What a tool says, or what is wrong with its call."""
        try:
            name, arguments = parsed(call)
            if name not in tools:
                known = ", ".join(sorted(tools)) or "none"
                raise ValueError(f"there is no tool {name}; there are {known}")
            result = self.waited_for(tools[name](**arguments))
        except Exception as error:  # the model's fault, or the tool's: the model is told
            return f"Error: {error}" if isinstance(error, ValueError) else f"Error: {error!r}"
        text = result if isinstance(result, str) else json.dumps(plain(result), ensure_ascii=False)
        return text or "null"

    def reward(self, line: Dict[str, Any]) -> Dict[str, Any]:
        if self.score is None:
            return {}
        try:
            names = names_taken(self.score)
            result = self.score(**{name: line[FIELDS[name]] for name in names})
            score, extra = score_of(self.waited_for(result))
        except Exception:  # the response has no reward then
            traceback.print_exc()
            return {}
        return {"reward": score, **({"extra": extra} if extra else {})}


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python3 -m tool_worker MY_TOOLS.py|MODULE")
    serve(lambda: Conversations(module_of(sys.argv[1])))


if __name__ == "__main__":
    main()
