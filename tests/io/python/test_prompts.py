"""Data sets to paceline's JSON Lines, which paceline itself then reads."""

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..", "..")
sys.path.insert(0, os.path.join(ROOT, "io", "python"))
from needs import needs  # noqa: E402
from paceline_run import prompts  # noqa: E402

QUESTIONS = [
    {"question": "What is 2 + 3?", "answer": "#### 5"},
    {"question": "Wie groß?", "answer": "#### 6", "level": 2},
]
VERL = [
    {
        "data_source": "gsm8k",
        "prompt": [{"role": "user", "content": f"What is {n} + 1?"}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": str(n + 1)},
        "extra_info": {"index": n, "split": "train"},
    }
    for n in range(3000)
]


class Prompts(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name
        self.output = os.path.join(self.folder, "out.jsonl")

    def write(self, rows, name="in.jsonl"):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows)
        return path

    def main(self, *arguments):
        """Exit code and what was said."""
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            try:
                code = prompts.main(list(arguments))
            except SystemExit as left:
                code = left.code
        return code, said.getvalue()

    def lines(self):
        with open(self.output, encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def refused(self, expected, *arguments, code=65):
        found, said = self.main(*arguments)
        self.assertEqual(found, code, said)
        self.assertRegex(said, expected)
        self.assertFalse(os.path.exists(self.output))
        self.assertEqual([name for name in os.listdir(self.folder) if "partial" in name], [])

    def check(self):
        """paceline reads what was written."""
        program = os.environ.get("PACELINE_PROGRAM")
        if program is None:
            self.skipTest("paceline was not built")
        run = os.path.join(self.folder, "run")
        settings = ["--set", f"prompts.path={self.output}", "--output", run]
        quickstart = os.path.join(ROOT, "configs", "quickstart.yaml")
        launch = os.path.join(ROOT, "tests", "mpi", "launch.sh")
        subprocess.run(
            [launch, "1", program, "check", quickstart, *settings],
            check=True,
            stdout=subprocess.DEVNULL,
        )

    def test_columns_become_fields(self):
        code, said = self.main(self.write(QUESTIONS), self.output, "--key", "messages=question")
        self.assertEqual(code, 0, said)
        self.assertIn("2 prompts with messages (from question), answer, level", said)
        expected = [
            {"messages": [{"role": "user", "content": "What is 2 + 3?"}], "answer": "#### 5"},
            {
                "messages": [{"role": "user", "content": "Wie groß?"}],
                "answer": "#### 6",
                "level": 2,
            },
        ]
        self.assertEqual(self.lines(), expected)
        self.check()

    def test_text_stays_text_under_prompt(self):
        keys = ("--key", "prompt=question", "--key", "ground_truth=answer")
        path = self.write(QUESTIONS)
        self.assertEqual(self.main(path, self.output, *keys, "--drop", "level")[0], 0)
        expected = [
            {"prompt": "What is 2 + 3?", "ground_truth": "#### 5"},
            {"prompt": "Wie groß?", "ground_truth": "#### 6"},
        ]
        self.assertEqual(self.lines(), expected)
        self.check()

    def test_nulls_are_left_out(self):
        rows = ["\ufeff" + json.dumps({"prompt": "a", "uid": None, "x": [None]}) + "\n", "\n", {"prompt": "b"}]
        self.assertEqual(self.main(self.write(rows), self.output)[0], 0)
        self.assertEqual(self.lines(), [{"prompt": "a", "x": [None]}, {"prompt": "b"}])

    def test_the_output_is_replaced_and_the_input_never(self):
        path = self.write([{"prompt": "a"}])
        for _ in range(2):
            self.assertEqual(self.main(path, self.output)[0], 0)
        code, said = self.main(path, path)
        self.assertEqual(code, 64)
        self.assertIn("would replace the input", said)

    def test_command_lines(self):
        path = self.write(QUESTIONS)
        self.refused("required: OUT", path, code=64)
        self.refused("expected FIELD=COLUMN", path, self.output, "--key", "question", code=64)
        self.refused("expected FIELD=COLUMN", path, self.output, "--key", "=question", code=64)
        twice = ("--key", "prompt=question", "--key", "prompt=answer")
        self.refused("prompt is 'question' already", path, self.output, *twice, code=64)
        same = ("--key", "prompt=question", "--key", "text=question")
        self.refused("has a field already", path, self.output, *same, code=64)
        dropped = ("--key", "prompt=question", "--drop", "question")
        self.refused("--drop question: --key names it", path, self.output, *dropped, code=64)

    def test_columns_that_do_not_fit(self):
        path = self.write(QUESTIONS)
        self.refused(
            r"in.jsonl:1 has no 'questoin' \(did you mean 'question'\?\); it has 'question', 'answer'",
            path,
            self.output,
            "--key",
            "prompt=questoin",
        )
        key = ("--key", "prompt=question")
        self.refused(
            "in.jsonl has no 'zzz'; it has 'question', 'answer', 'level'",
            path,
            self.output,
            *key,
            "--drop",
            "zzz",
        )
        self.refused(
            r"in.jsonl has no 'awnser' \(did you mean 'answer'\?\)",
            path,
            self.output,
            *key,
            "--key",
            "ground_truth=awnser",
        )
        self.refused(
            r"none of 'prompt', 'messages', .*; it has 'question', 'answer'. Name .* --key prompt=COLUMN",
            path,
            self.output,
        )
        both = self.write([{"prompt": "a", "messages": [], "n": 1}])
        self.refused("more than one prompt: 'prompt', 'messages'.*--drop", both, self.output)
        self.refused("'n' is to become 'prompt'.*--drop prompt", both, self.output, "--key", "prompt=n")
        self.assertEqual(self.main(both, self.output, "--drop", "messages")[0], 0)
        self.assertEqual(self.lines(), [{"prompt": "a", "n": 1}])

    def test_rows_that_do_not_fit(self):
        a = {"prompt": "a"}
        self.refused("in.jsonl:2: 'prompt' is null", self.write([a, {"prompt": None}]), self.output)
        self.refused("in.jsonl:2: expected an object, found list", self.write([a, "[1]\n"]), self.output)
        self.refused(
            r"in.jsonl:2:12: .*expected JSON Lines or Parquet",
            self.write([a, '{"prompt": x}\n']),
            self.output,
        )
        self.refused(
            "in.jsonl:1: 'x' cannot be written as JSON.*--drop x",
            self.write(['{"prompt": "a", "x": NaN}\n']),
            self.output,
        )
        self.refused("in.jsonl:1: 'prompt' cannot be written", self.write(['{"prompt": "\\ud800"}\n']), self.output)
        self.refused("there are no prompts", self.write([]), self.output)

    def test_files(self):
        nowhere = os.path.join(self.folder, "nowhere.jsonl")
        self.refused("nowhere.jsonl: No such file", nowhere, self.output)
        self.refused("Is a directory", self.folder, self.output)
        self.refused("x.parquet: not a Parquet file", self.write(QUESTIONS, "x.parquet"), self.output)
        binary = os.path.join(self.folder, "binary")
        with open(binary, "wb") as file:
            file.write(b"\xff\xfe\x00")
        self.refused("neither Parquet nor JSON Lines", binary, self.output)
        code, said = self.main(self.write([{"prompt": "a"}]), os.path.join(self.folder, "no", "out"))
        self.assertEqual((code, "No such file" in said), (74, True), said)

    def test_parquet_without_pyarrow(self):
        path = self.write(["PAR1"], "x.parquet")
        with mock.patch.dict(sys.modules, {"pyarrow": None, "pyarrow.parquet": None}):
            self.refused(
                r"x.parquet: reading Parquet needs pyarrow.*\(pip install pyarrow\)",
                path,
                self.output,
                code=64,
            )

    @needs("pyarrow")
    def test_verls_parquet_as_it_is(self):
        import pyarrow
        from pyarrow import parquet

        path = os.path.join(self.folder, "train.parquet")
        rows = VERL[:-1] + [{**VERL[-1], "ability": None}]
        parquet.write_table(pyarrow.Table.from_pylist(rows), path, row_group_size=700)
        code, said = self.main(path, self.output)
        self.assertEqual(code, 0, said)
        self.assertIn("3000 prompts with data_source, prompt, ability, reward_model, extra_info", said)
        del rows[-1]["ability"]
        self.assertEqual(self.lines(), rows)
        self.check()

    @needs("pyarrow")
    def test_parquet_of_questions(self):
        import pyarrow
        from pyarrow import parquet

        path = os.path.join(self.folder, "train.parquet")
        table = pyarrow.table({"question": ["a", "b"], "image": [b"1", b"2"], "prompt_tokens": [[1, 2], [3]]})
        parquet.write_table(table, path)
        self.refused(r"train.parquet: row 1 has more than one prompt", path, self.output, "--key", "prompt=question")
        drop = ("--drop", "prompt_tokens")
        self.refused(
            "row 1: 'image' cannot be written as JSON: .*bytes.*--drop image",
            path,
            self.output,
            "--key",
            "prompt=question",
            *drop,
        )
        self.refused(
            "row 1 has no 'question '.*did you mean 'question'",
            path,
            self.output,
            "--key",
            "prompt=question ",
            *drop,
        )
        drop += ("--drop", "image")
        self.assertEqual(self.main(path, self.output, "--key", "prompt=question", *drop)[0], 0)
        self.assertEqual(self.lines(), [{"prompt": "a"}, {"prompt": "b"}])
        drop = ("--drop", "question", "--drop", "image")
        self.assertEqual(self.main(path, self.output, *drop)[0], 0)
        self.assertEqual(self.lines(), [{"prompt_tokens": [1, 2]}, {"prompt_tokens": [3]}])

    @needs("pyarrow")
    def test_damaged_parquet(self):
        import pyarrow
        from pyarrow import parquet

        path = os.path.join(self.folder, "train.parquet")
        parquet.write_table(pyarrow.Table.from_pylist(VERL), path)
        with open(path, "rb") as file:
            whole = file.read()
        with open(path, "wb") as file:
            file.write(whole[: len(whole) // 2])
        self.refused("train.parquet: after row 0: ", path, self.output)


if __name__ == "__main__":
    unittest.main()
