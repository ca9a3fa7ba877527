"""The trainer's end of a resident job: the folder's protocol by itself, and with the real program."""

import json
import os
import sys
import tempfile
import threading
import time
import types
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..", "..")
sys.path.insert(0, os.path.join(ROOT, "io", "python"))
from paceline_reader import JobEnded, ReaderError, StepRefused, Steps  # noqa: E402
from paceline_run.rollouts.policies import newest_policy, publish_policy  # noqa: E402
from paceline_run.steps import require_all_prompts, steps_of_environment  # noqa: E402

REQUEST = {"model": {"weight_version": 3}, "sampling": {"seed": 5}}


class Folder(unittest.TestCase):
    """What Steps writes and reads, with nobody at the other end."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.steps = Steps(os.path.join(folder.name, "steps"))

    def path(self, name):
        return os.path.join(self.steps.folder, name)

    def put(self, name, text=""):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def request(self, name):
        with open(self.path(name + ".yaml"), encoding="utf-8") as file:
            return json.load(file)

    def test_a_request_is_there_whole_with_its_prompts(self):
        self.steps.begin("7", REQUEST, prompts=[{"prompt": "é"}, {"prompt_tokens": [1, 2]}])
        self.assertEqual(self.request("7"), {**REQUEST, "prompts": {"path": self.path("7.jsonl")}})
        with open(self.path("7.jsonl"), encoding="utf-8") as file:
            self.assertEqual(file.read(), '{"prompt": "é"}\n{"prompt_tokens": [1, 2]}\n')
        self.assertEqual(sorted(os.listdir(self.steps.folder)), ["7.jsonl", "7.yaml"])

    def test_a_step_that_is_announced_is_not_asked_for(self):
        self.steps.announce("7", {"sampling": {"seed": 5}}, prompts=[{"prompt": "a"}])
        self.assertEqual(sorted(os.listdir(self.steps.folder)), ["7.jsonl", "7.upcoming"])
        with open(self.path("7.upcoming"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["prompts"], {"path": self.path("7.jsonl")})
        self.steps.begin("7", REQUEST, prompts=[{"prompt": "b"}])
        self.assertEqual(self.request("7"), {**REQUEST, "prompts": {"path": self.path("7.jsonl")}})
        self.steps.announce("7", {}, prompts=[{"prompt": "too late"}])
        with open(self.path("7.jsonl"), encoding="utf-8") as file:
            self.assertEqual(file.read(), '{"prompt": "b"}\n')
        os.mkdir(self.path("7"))
        self.steps.forget("7")
        self.assertEqual(os.listdir(self.steps.folder), [])

    def test_relative_paths_are_the_callers_not_the_folders(self):
        prompts = {"path": "p.jsonl", "begun": "steps/6"}
        self.steps.begin("7", {"model": {"path": "policy"}, "prompts": prompts})
        self.assertEqual(self.request("7")["model"]["path"], os.path.abspath("policy"))
        self.assertEqual(self.request("7")["prompts"]["path"], os.path.abspath("p.jsonl"))
        self.assertEqual(self.request("7")["prompts"]["begun"], os.path.abspath("steps/6"))

    def test_a_run_of_some_prompts_is_no_answer_to_all(self):
        run = types.SimpleNamespace(path="steps/7/trajectories.h5", prompts=[None] * 3)
        require_all_prompts(run, 3)
        with self.assertRaisesRegex(ReaderError, "it has 3 of 4 prompts.*prompts.enough"):
            require_all_prompts(run, 4)

    def test_so_are_those_of_drafters(self):
        drafters = [{"method": "suffix"}, {"method": "model", "path": "drafts/8", "name": "along"}]
        self.steps.begin("8", {"model": {"path": "policy"}, "speculation": {"drafters": drafters}})
        asked = self.request("8")["speculation"]["drafters"]
        self.assertEqual(asked, [drafters[0], {**drafters[1], "path": os.path.abspath("drafts/8")}])

    def test_a_refusal_is_raised_with_its_text_and_may_be_tried_again(self):
        self.put("7.error", "7.yaml:1: unknown key\n")
        self.put("7.yaml", "{}")
        with self.assertRaisesRegex(StepRefused, "^7.yaml:1: unknown key$"):
            self.steps.wait("7")
        self.steps.begin("7", REQUEST)
        self.assertFalse(os.path.exists(self.path("7.error")))
        self.assertEqual(self.request("7"), REQUEST)

    def test_a_name_stands_for_one_request_its_prompts_and_its_weights(self):
        weights = os.path.join(self.folder, "policy")
        os.mkdir(weights)
        file = os.path.join(weights, "model.safetensors")
        open(file, "w", encoding="utf-8").close()
        request = {"model": {"path": weights}}
        rows = [{"prompt": "a"}]
        self.steps.begin("7", request, rows)
        self.steps.begin("7", request, rows)  # of a trainer that was killed
        with self.assertRaisesRegex(ValueError, "7.yaml is there already"):
            self.steps.begin("7", {**request, "sampling": {"seed": 2}}, rows)
        with self.assertRaisesRegex(ValueError, "7.yaml is there already"):
            self.steps.begin("7", request, [{"prompt": "b"}])
        later = time.time() + 5
        os.utime(file, (later, later))
        with self.assertRaisesRegex(ValueError, "weights were others"):
            self.steps.begin("7", request, rows)
        self.steps.forget("7")
        self.assertEqual(os.listdir(self.steps.folder), [])
        self.steps.begin("7", request, rows)

    def test_names_that_are_none_and_prompts_said_twice(self):
        for name in ("", ".hidden", "a/b", "stop"):
            with self.assertRaisesRegex(ValueError, "no name for a step"):
                self.steps.begin(name, REQUEST)
        with self.assertRaisesRegex(ValueError, "prompts are given too"):
            self.steps.begin("7", {"prompts": {"path": "p.jsonl"}}, [{"prompt": "a"}])

    def test_waiting_has_an_end(self):
        with self.assertRaises(TimeoutError):
            self.steps.wait("7", timeout=0.05)

    def test_the_environment_names_a_folder(self):
        os.environ.pop("PACELINE_STEPS", None)
        with self.assertRaisesRegex(ReaderError, "PACELINE_STEPS is not set"):
            steps_of_environment()
        os.environ["PACELINE_STEPS"] = self.folder
        self.addCleanup(os.environ.pop, "PACELINE_STEPS")
        self.assertEqual(steps_of_environment().folder, self.folder)

    def test_policies_of_other_trainers_and_old_ones_go(self):
        def publish(step):
            os.mkdir(os.path.join(self.folder, "growing"))
            return publish_policy(self.folder, step, os.path.join(self.folder, "growing"))

        def there():
            return sorted(name for name in os.listdir(self.folder) if name.startswith("step-"))

        for step in (3, 4, 5):
            self.assertEqual(os.path.basename(publish(step)), f"step-{step}")
        self.assertEqual(there(), ["step-4", "step-5"])
        publish(0)  # a new trainer: policies of later steps are not its own
        self.assertEqual(there(), ["step-0"])
        self.assertEqual(os.path.basename(newest_policy(self.folder, 2)), "step-0")
        with self.assertRaises(FileNotFoundError):
            newest_policy(self.steps.folder, 2)


@unittest.skipUnless("PACELINE_PROGRAM" in os.environ, "paceline was not built")
class Job(unittest.TestCase):
    """A resident job of one rank, by the embedded model."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def launch(self, name):
        return Steps.launch(
            os.path.join(ROOT, "configs", "quickstart.yaml"),
            os.path.join(self.folder, name),
            launcher=[os.path.join(ROOT, "tests", "mpi", "launch.sh"), "1"],
            program=os.environ["PACELINE_PROGRAM"],
            settings=["engine.threads=1", "engine.backend=cpu", "sampling.max_tokens=24", "prompts.samples=2"],
        )

    def test_a_job_from_its_beginning_to_its_end(self):
        rows = [{"prompt": [{"role": "user", "content": "What is 2 + 2?"}]}]
        with self.launch("steps") as steps:
            with steps.submit("1", {"model": {"weight_version": 1}}, rows) as run:
                first = [response.tokens.tolist() for response in run]
                self.assertEqual(len(run), 2)
                self.assertEqual(run[0].weight_version, 1)
            with self.assertRaisesRegex(StepRefused, "temperature"):
                steps.submit("2", {"sampling": {"temprature": 1}}, rows)
            with steps.submit("2", {"model": {"weight_version": 2}}, rows) as run:
                self.assertNotEqual([response.tokens.tolist() for response in run], first)
            with steps.submit("1", {"model": {"weight_version": 1}}, rows) as run:  # is there
                self.assertEqual([response.tokens.tolist() for response in run], first)
        self.assertEqual(steps.job.returncode, 0)

    def test_a_job_that_ends_is_told_of_and_none_is_left_behind(self):
        with self.assertRaisesRegex(JobEnded, "the job ended with [^0]"):
            with self.launch("ending") as steps:
                threading.Timer(0.5, steps.job.terminate).start()
                steps.wait("never")
        with self.assertRaises(ZeroDivisionError):
            with self.launch("abandoned") as steps:
                raise ZeroDivisionError
        self.assertIsNotNone(steps.job.returncode)


if __name__ == "__main__":
    unittest.main()
