"""io/python installed by pip into an environment of its own, without a network."""

import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from importlib import metadata

from needs import is_there, needs

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..", "..")


class Package(unittest.TestCase):
    def test_its_version_is_the_programs(self):
        with open(os.path.join(ROOT, "CMakeLists.txt"), encoding="utf-8") as file:
            program = re.search(r"^project\(paceline VERSION (\S+)", file.read(), re.MULTILINE)
        with open(os.path.join(ROOT, "io", "python", "pyproject.toml"), encoding="utf-8") as file:
            package = re.search(r'^version = "(\S+)"', file.read(), re.MULTILINE)
        self.assertEqual(package[1], program[1])

    @needs("pip", "setuptools")
    def test_installed(self):
        # setuptools makes wheels itself from 70.1 on.
        if not is_there("wheel") and int(metadata.version("setuptools").split(".")[0]) < 71:
            self.skipTest("wheel is not there")
        with tempfile.TemporaryDirectory() as scratch:
            # A copy, for setuptools builds beside the sources.
            source = os.path.join(scratch, "source")
            shutil.copytree(os.path.join(ROOT, "io", "python"), source)
            venv = os.path.join(scratch, "venv")
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
            # pip, setuptools, h5py and numpy are those of the Python that runs this.
            (packages,) = glob.glob(os.path.join(venv, "lib", "python*", "site-packages"))
            with open(os.path.join(packages, "inherited.pth"), "w", encoding="utf-8") as file:
                file.writelines(f"{path}\n" for path in sys.path if path.endswith("-packages"))
            environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}

            def run(*arguments):
                python = os.path.join(venv, "bin", "python")
                return subprocess.run(
                    [python, *arguments],
                    check=True,
                    cwd=scratch,
                    env=environment,
                    stdout=subprocess.PIPE,
                    text=True,
                ).stdout

            offline = ("--no-index", "--no-deps", "--no-build-isolation", "--ignore-installed")
            run("-m", "pip", "install", *offline, source)
            shutil.rmtree(source)
            for module in ("paceline_reader", "paceline_run", "score_worker"):
                where = run("-c", f"import {module}; print({module}.__file__)")
                self.assertTrue(where.startswith(packages + os.sep), where)
            path = os.path.join(scratch, "run")
            subprocess.run([os.environ["PACELINE_SAMPLE_RUN"], "complete", path, "2", "3"], check=True)
            self.assertIn("6 finished of 6", run("-m", "paceline_reader", path))
            with open(os.path.join(scratch, "in.jsonl"), "w", encoding="utf-8") as file:
                file.write('{"question": "a"}\n')
            said = run("-m", "paceline_run.prompts", "in.jsonl", "out.jsonl", "--key", "prompt=question")
            self.assertIn("1 prompt with prompt (from question)", said)


if __name__ == "__main__":
    unittest.main()
