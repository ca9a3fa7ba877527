"""tool_worker.py as a process, with calls as models write them, and its calculator."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..", "..")
FOLDER = os.path.join(ROOT, "io", "python")
CALCULATOR = os.path.join(ROOT, "configs", "calculator.py")

TOOLS = '''
import asyncio
from os.path import join  # no tool

print("loading")  # what is printed gets nowhere between the answers

async def later(x):
    await asyncio.sleep(0)
    return {"x": [x, None]}

def fails():
    raise KeyError("why")

def _hidden():
    return "no"

class Tools:
    def __init__(self):
        self.count = 0

    def step(self, by=1):
        self.count += by
        return self.count

    def _reset(self):
        self.count = 0
'''


class ToolWorker(unittest.TestCase):
    def start(self, tools):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tool_worker", tools],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": FOLDER},
            text=True,
        )
        self.addCleanup(self.process.communicate)

    def tools(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = os.path.join(folder.name, "tools.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(TOOLS)
        self.start(path)

    def ask(self, text, turn=0, name="3:1", **more):
        line = {
            "id": name,
            "turn": turn,
            "text": text,
            "last": False,
            "ground_truth": "42",
            "data_source": None,
            "extra_info": {},
            **more,
        }
        self.process.stdin.write(json.dumps(line) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        self.assertEqual(answer.pop("id"), name)
        return answer

    @staticmethod
    def call(name, **arguments):
        return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"

    def test_calculator(self):
        self.start(CALCULATOR)
        call = self.call("calculator", expression="(2 + 4) * 7")
        self.assertEqual(self.ask("Let me see. " + call), {"observation": "42"})
        self.assertEqual(self.ask("It is #### 42", 1), {"done": True, "reward": 1.0})
        self.assertEqual(self.ask("It is #### 41"), {"done": True, "reward": 0.0})
        both = self.ask(self.call("calculator", expression="-7 // 2") + self.call("calculator", expression="2 / 4"))
        self.assertEqual([m["content"] for m in both["observation"]], ["-4", "0.5"])
        self.assertEqual({m["role"] for m in both["observation"]}, {"tool"})
        for expression in ("__import__('os')", "9 ** 9 ** 9", "1 +", "'a' * 3", "1" * 201, "(lambda: 1)()"):
            said = self.ask(self.call("calculator", expression=expression))["observation"]
            self.assertTrue(said.startswith("Error: "), said)
        self.assertIn("ZeroDivisionError", self.ask(self.call("calculator", expression="1 / 0"))["observation"])

    def test_calls_in_other_forms(self):
        self.start(CALCULATOR)
        llama = json.dumps({"name": "calculator", "parameters": {"expression": "6 * 7"}})
        self.assertEqual(self.ask(llama), {"observation": "42"})
        cut = self.call("calculator", expression="6 * 7").replace("</tool_call>", "")
        self.assertEqual(self.ask(cut), {"observation": "42"})
        nested = json.dumps({"name": "calculator", "arguments": json.dumps({"expression": "6 * 7"})})
        self.assertEqual(self.ask(f"<tool_call>{nested}</tool_call>"), {"observation": "42"})
        self.assertEqual(self.ask('{"answer": 1}'), {"done": True, "reward": 0.0})

    def test_calls_that_are_wrong_are_told_so(self):
        self.tools()
        for call, expected in (
            ("<tool_call>{</tool_call>", "Error: the call is no JSON"),
            ("<tool_call>[1]</tool_call>", "Error: the call is no object with a name"),
            ('<tool_call>{"name": "later", "arguments": 3}</tool_call>', "Error: the arguments are no object"),
            (self.call("join", a=1), "Error: there is no tool join; there are fails, later, step"),
            (self.call("_hidden"), "Error: there is no tool _hidden"),
            (self.call("_reset"), "Error: there is no tool _reset"),
            (self.call("later"), "Error: TypeError("),
            (self.call("fails"), "Error: KeyError('why')"),
        ):
            said = self.ask(call)["observation"]
            self.assertTrue(said.startswith(expected), said)

    def test_results(self):
        self.tools()
        self.assertEqual(json.loads(self.ask(self.call("later", x="\u00e9"))["observation"]), {"x": ["\u00e9", None]})
        self.assertEqual(self.ask("nothing to call"), {"done": True})
        self.assertEqual(self.ask(self.call("later", x=1), last=True), {"done": False})

    def test_each_conversation_has_its_state(self):
        self.tools()
        step = self.call("step")
        self.assertEqual([self.ask(step, turn)["observation"] for turn in range(3)], ["1", "2", "3"])
        self.assertEqual(self.ask(step, name="4:0")["observation"], "1")
        self.assertEqual(self.ask(step, 3)["observation"], "4")
        # Another worker is told what was called before.
        self.assertEqual(self.ask(self.call("step", by=5), name="5:0", replay=True, observation=[1]), {})
        self.assertEqual(self.ask(step, 1, name="5:0")["observation"], "6")
        self.assertEqual(self.ask("", name="5:0", close=True), {})


if __name__ == "__main__":
    unittest.main()
