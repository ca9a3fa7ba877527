"""score_worker.py as a process, with reward functions of all kinds that verl's reward managers take."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

from needs import needs

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(HERE, "..", "..", "..", "io", "python")

FUNCTIONS = '''
import asyncio
import functools
import math

print("loading")  # what is printed gets nowhere between the answers
loops = []

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return float(solution_str == ground_truth)

def arguments(**given):
    return {"score": len(given), **given}

def verls_own(solution_str, ground_truth, method="strict"):
    return solution_str == ground_truth

def entries(data_source, solution_str, ground_truth, extra_info):
    extra_info["changed"] = True
    return {"acc": True, "score": 0.25, "pred": solution_str, "nested": {1: (2.0, math.nan, {3})}, "object": math}

def no_score(data_source, solution_str, ground_truth, extra_info):
    return {"reward": 1.0, "acc": 1}

def infinite(data_source, solution_str, ground_truth, extra_info):
    return math.inf

def first_of(data_source, solution_str, ground_truth, extra_info):
    return 0.5, "why"

async def later(data_source, solution_str, ground_truth, extra_info):
    await asyncio.sleep(0)
    loops.append(asyncio.get_running_loop())
    return {"score": 1, "loops": len(set(map(id, loops)))}

def later_too(data_source, solution_str, ground_truth, extra_info):
    return later(data_source, solution_str, ground_truth, extra_info)

class Counter:
    def __init__(self):
        self.count = 0

    def __call__(self, data_source, solution_str, ground_truth, extra_info):
        self.count += 1
        return self.count

class Later:
    async def __call__(self, data_source, solution_str, ground_truth, extra_info):
        return await later(data_source, solution_str, ground_truth, extra_info)

counter = Counter()
partial = functools.partial(arguments, bonus=1)
number = 3

def array(data_source, solution_str, ground_truth, extra_info):
    import numpy
    return {"score": numpy.float32(0.5), "parts": numpy.arange(3), "right": numpy.bool_(True)}

def raises(data_source, solution_str, ground_truth, extra_info):
    raise KeyError(data_source)
'''


class ScoreWorker(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.file = os.path.join(cls.scratch.name, "functions.py")
        with open(cls.file, "w", encoding="utf-8") as file:
            file.write(FUNCTIONS)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def worker(self, *arguments, requests=1):
        """What the worker writes, as objects without their ids, its exit code and standard error."""
        lines = [
            json.dumps(
                {
                    "id": f"{n}:0",
                    "data_source": "openai/gsm8k",
                    "ground_truth": "72",
                    "extra_info": {"index": n},
                    "response": "72" if n == 0 else "71",
                }
            )
            for n in range(requests)
        ]
        done = subprocess.run(
            [sys.executable, "-m", "score_worker", *arguments],
            input="\n".join(lines) + "\n",
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=FOLDER,
        )
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        for n, answer in enumerate(answers):
            self.assertEqual(answer.pop("id"), f"{n}:0")
        return answers, done.returncode, done.stderr

    def answers(self, *arguments, requests=1):
        answers, code, said = self.worker(*arguments, requests=requests)
        self.assertEqual(code, 0, said)
        return answers

    def test_numbers(self):
        self.assertEqual(self.answers(self.file, requests=2), [{"score": 1.0}, {"score": 0.0}])
        self.assertIn("loading", self.worker(self.file)[2])
        self.assertEqual(self.answers(self.file, "first_of"), [{"score": 0.5}])

    def test_a_function_gets_of_verls_four_arguments_those_that_it_takes(self):
        given = {
            "data_source": "openai/gsm8k",
            "solution_str": "72",
            "ground_truth": "72",
            "extra_info": {"index": 0},
        }
        self.assertEqual(self.answers(self.file, "arguments"), [{"score": 4.0, "extra": given}])
        self.assertEqual(self.answers(self.file, "partial")[0]["extra"], {**given, "bonus": 1})
        self.assertEqual(self.answers(self.file, "verls_own", requests=2), [{"score": 1.0}, {"score": 0.0}])

    def test_a_dicts_other_entries_are_kept_as_json_has_them(self):
        (answer,) = self.answers(self.file, "entries")
        self.assertEqual(answer["score"], 0.25)
        self.assertEqual(answer["extra"].pop("object")[:7], "<module")
        expected = {"acc": True, "pred": "72", "nested": {"1": [2.0, None, [3]]}}
        self.assertEqual(answer["extra"], expected)

    @needs("numpy")
    def test_arrays(self):
        expected = {"score": 0.5, "extra": {"parts": [0, 1, 2], "right": True}}
        self.assertEqual(self.answers(self.file, "array"), [expected])

    def test_functions_of_asyncio_share_a_loop(self):
        for name in ("later", "later_too", "Later"):
            said = self.answers(self.file, name, requests=3)
            self.assertEqual(said, [{"score": 1.0, "extra": {"loops": 1}}] * 3, name)

    def test_objects_and_classes_that_can_be_called(self):
        for name in ("counter", "Counter"):
            self.assertEqual(self.answers(self.file, name, requests=3), [{"score": 1.0}, {"score": 2.0}, {"score": 3.0}])

    def test_what_is_no_score_is_an_error_of_the_response(self):
        said = {
            "no_score": "ValueError: no 'score' among the entries ['acc', 'reward']",
            "infinite": "ValueError: the score is inf",
            "raises": "KeyError: 'openai/gsm8k'",
        }
        for name, error in said.items():
            self.assertEqual(self.answers(self.file, name, requests=2), [{"error": error}] * 2)

    def test_modules(self):
        self.assertEqual(self.answers("operator", "truth")[0].keys(), {"error"})  # it takes other arguments
        for name in ("verl.nowhere", "pkg://verl.nowhere", os.path.join(self.scratch.name, "none.py")):
            answers, code, said = self.worker(name)
            self.assertEqual((answers, code), ([], 1))
            self.assertIn(f"score_worker: {name}: n", said)
        for name in ("missing", "number"):
            self.assertIn(f"defines no {name} that can be called", self.worker(self.file, name)[2])

    @needs("verl.utils.reward_score")
    def test_verls_own_functions_as_they_are(self):
        said = self.answers("pkg://verl.utils.reward_score", "default_compute_score")
        self.assertEqual(said, [{"score": 0.0}])  # no ####
        (answer,) = self.answers("verl.utils.reward_score.math_dapo")
        self.assertEqual((answer["score"], answer["extra"]["acc"]), (-1.0, False))


if __name__ == "__main__":
    unittest.main()
