"""Data sets to paceline's JSON Lines, which paceline itself then reads."""

import contextlib
import gzip
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..", "..")
sys.path.insert(0, os.path.join(ROOT, "io", "python"))
from needs import needs  # noqa: E402
from paceline_run import chat, prompts  # noqa: E402

MODEL = os.path.join(ROOT, "configs", "models", "target")

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


class Converted(unittest.TestCase):
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


class Prompts(Converted):
    def test_pictures_are_written_once(self):
        png, jpeg = b"\x89PNG\r\n\x1a\nrest", b"\xff\xd8\xffrest"
        rows = [
            {"prompt": "<image>a", "images": [{"bytes": png, "path": "x.png"}]},
            {"prompt": "<image><image>b", "images": [{"bytes": png, "path": None}, {"bytes": jpeg}]},
            {"prompt": "<image>c", "images": {"bytes": None, "path": "shots/c.png"}},
            {"prompt": "<image>d", "images": ["e.png", "file:///f.png", "data:image/png;base64,AA=="]},
            {"prompt": "g", "images": None},
        ]
        source = os.path.join(self.folder, "in.jsonl")
        self.write([{}])
        with mock.patch.object(prompts, "_rows", lambda path: [(f"row {i}", r) for i, r in enumerate(rows)]):
            count, _ = prompts.convert(source, self.output)
        self.assertEqual(count, 5)
        first, second, third, fourth, last = (line.get("images") for line in self.lines())
        self.assertEqual(first, second[:1])
        for picture, data in ((first[0], png), (second[1], jpeg)):
            self.assertTrue(picture["path"].startswith("out.jsonl.pictures/"))
            with open(os.path.join(self.folder, picture["path"]), "rb") as file:
                self.assertEqual(file.read(), data)
        self.assertEqual(len(os.listdir(self.output + ".pictures")), 2)
        self.assertEqual(third, [{"path": os.path.join(self.folder, "shots/c.png")}])
        expected = [os.path.join(self.folder, "e.png"), "file:///f.png", "data:image/png;base64,AA=="]
        self.assertEqual(fourth, expected)
        self.assertIsNone(last)

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

    def test_packed_lines(self):
        path = os.path.join(self.folder, "in.jsonl.gz")
        with gzip.open(path, "wt", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in QUESTIONS)
        self.assertEqual(self.main(path, self.output, "--key", "prompt=question")[0], 0)
        self.assertEqual([line["prompt"] for line in self.lines()], [row["question"] for row in QUESTIONS])
        with open(path, "rb") as file:
            whole = file.read()
        os.remove(self.output)
        for damaged in (whole[:-9], whole[:20] + b"xxxx" + whole[24:]):
            with open(path, "wb") as file:
                file.write(damaged)
            self.refused("in.jsonl.gz: ", path, self.output, "--key", "prompt=question")

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
        table = pyarrow.table({"question": ["a", "b"], "image": [b"1", b"2"], "input_ids": [[1, 2], [3]]})
        parquet.write_table(table, path)
        self.refused(r"train.parquet: row 1 has more than one prompt", path, self.output, "--key", "prompt=question")
        drop = ("--drop", "input_ids")
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
        self.assertEqual(self.lines(), [{"input_ids": [1, 2]}, {"input_ids": [3]}])

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


TOOLS = [{"type": "function", "function": {"name": "add", "description": "sums <é>", "parameters": {"x": 1}}}]
TEMPLATE = (
    "{%- for t in tools or [] %}{{ t | tojson }}\n{% endfor %}"
    "{%- if date_string is defined %}{{ date_string }}{% else %}{{ strftime_now('%d %b %Y') }}{% endif %}"
    "{%- for m in messages %}{% if m.role == 'alien' %}{{ raise_exception('no aliens') }}{% endif %}"
    "{%- if m.role == 'assistant' %}[{{ m.role }}] {% generation %}{{ m.content | trim }}{% endgeneration %}."
    "{%- for call in m.tool_calls or [] %}{{ call.function.arguments | tojson }}{% endfor %}"
    "{%- else %}[{{ m.role }}] {{ m.content }}.{% endif %}{% if loop.index > 8 %}{% break %}{% endif %}{% endfor %}"
    "{%- if add_generation_prompt %}[assistant] {% if enable_thinking %}hm{% endif %}{% endif %}"
)


class Rendering(Converted):
    """By jinja2 and tokenizers; the same by transformers below."""

    def model(self, template, **config):
        """A directory with the embedded model's tokenizer and another template."""
        with open(os.path.join(MODEL, "tokenizer_config.json"), encoding="utf-8") as file:
            config = {**json.load(file), "chat_template": template, **config}
        folder = os.path.join(self.folder, "model")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        shutil.copy(os.path.join(MODEL, "tokenizer.json"), folder)
        return folder

    def text(self, ids):
        import tokenizers

        tokenizer = tokenizers.Tokenizer.from_file(os.path.join(MODEL, "tokenizer.json"))
        return tokenizer.decode(ids, skip_special_tokens=False)

    @contextlib.contextmanager
    def engine(self):
        with mock.patch.dict(sys.modules, {"transformers": None}):
            yield

    def rendered(self, rows, *arguments, template=TEMPLATE, name="in.jsonl"):
        """The texts that rows become, and what was said."""
        path = self.write(rows, name) if isinstance(rows, list) else rows
        with self.engine():
            code, said = self.main(path, self.output, "--tokenizer", self.model(template), *arguments)
        self.assertEqual(code, 0, said)
        return [self.text(line["prompt_tokens"]) for line in self.lines()], said

    def turned_down(self, expected, row, *arguments, template=TEMPLATE, code=65):
        with self.engine():
            path = self.write([row])
            self.refused(expected, path, self.output, "--tokenizer", self.model(template), *arguments, code=code)

    @needs("jinja2", "tokenizers")
    def test_any_template(self):
        rows = [{**row, "uid": str(n), "tools": TOOLS} for n, row in enumerate(VERL[:3])]
        texts, said = self.rendered(rows)
        tool = json.dumps(TOOLS[0], ensure_ascii=False)
        self.assertEqual(texts[2], f"{tool}\n26 Jul 2024[user] What is 2 + 1?.[assistant] ")
        self.assertIn("3 prompts with data_source, prompt, ability", said)
        self.assertIn("prompt_tokens; rendered by ", said)
        for line, row in zip(self.lines(), rows):
            line.pop("prompt_tokens")
            self.assertEqual(line, row)  # as trainers and rewards want it
        self.check()

    @needs("jinja2", "tokenizers")
    def test_what_a_row_asks_for(self):
        user, answer = {"role": "user", "content": "a"}, {"role": "assistant", "content": " b "}
        start = "26 Jul 2024[user] a."

        def one(row, *arguments):
            texts, self.said = self.rendered([{"messages": [user], **row}], *arguments)
            return texts[0]

        self.assertEqual(one({"enable_thinking": True}), start + "[assistant] hm")
        self.assertEqual(one({"chat_template_kwargs": {"enable_thinking": True}}), start + "[assistant] hm")
        self.assertEqual(one({"chat_template_kwargs": '{"enable_thinking": true}'}), start + "[assistant] hm")
        thinking = ("--chat-template-kwargs", '{"enable_thinking": true}')
        self.assertEqual(one({}, *thinking), start + "[assistant] hm")
        self.assertEqual(one({"enable_thinking": False}, *thinking), start + "[assistant] ")
        self.assertEqual(one({"date_string": "today"}), "today[user] a.[assistant] ")
        self.assertEqual(one({}, "--date", "2025-01-31"), "31 Jan 2025[user] a.[assistant] ")
        self.assertEqual(one({}, "--date", "1 Jan 2025"), "1 Jan 2025[user] a.[assistant] ")
        self.assertEqual(one({"add_generation_prompt": False}), start)
        self.assertEqual(one({"chat_template": "{{ messages[0].content }}!"}), "a!")
        self.assertEqual(one({"tools": [], "enable_thinking": None}), start + "[assistant] ")
        self.assertEqual(one({"tools": json.dumps(TOOLS)})[0], "{")
        self.assertNotIn("warning", self.said)

        # The template trims what goes on.
        both = {"messages": [user, answer]}
        go_on = ("--chat-template-kwargs", '{"continue_final_message": true}')
        self.assertEqual(one(both), start + "[assistant] b.[assistant] ")
        self.assertIn("warning: 1 of them end with an assistant message", self.said)
        self.assertEqual(one({**both, "continue_final_message": False}), start + "[assistant] b.[assistant] ")
        self.assertNotIn("warning", self.said)
        self.assertEqual(one({**both, "continue_final_message": True}), start + "[assistant] b")
        self.assertNotIn("warning", self.said)
        self.assertEqual(one(both, *go_on), start + "[assistant] b")
        self.assertEqual(one({}, *go_on), start + "[assistant] ")
        self.assertEqual(one({**both, "add_generation_prompt": True}, *go_on), start + "[assistant] b.[assistant] ")

        path = os.path.join(self.folder, "training.jinja")
        with open(path, "w", encoding="utf-8") as file:
            file.write("{{ messages | length }}")
        self.assertEqual(one(both, "--chat-template", path), "2")
        self.assertEqual(self.rendered([{"prompt": "plain <|im_end|>"}])[0], ["plain <|im_end|>"])

    @needs("jinja2", "tokenizers")
    def test_what_cannot_be_rendered(self):
        row = {"messages": [{"role": "user", "content": "a"}]}
        bare = "{{ messages[0].content }}"
        unread = "in.jsonl:1: 'messages': the chat template does not read 'tools'"
        self.turned_down(unread, {**row, "tools": TOOLS}, template=bare)
        self.turned_down("does not read 'enable_thinkng'", {**row, "chat_template_kwargs": {"enable_thinkng": True}})
        twice = {"enable_thinking": True, "chat_template_kwargs": {"enable_thinking": False}}
        self.turned_down("'enable_thinking' is given twice", {**row, **twice})
        self.turned_down("exclude each other", {**row, "continue_final_message": True, "add_generation_prompt": True})
        self.turned_down("the chat template says: no aliens", {"messages": [{"role": "alien", "content": "a"}]})
        self.turned_down("the chat template says: ", row, template="{% if %}")
        self.turned_down("'tools': expected a list of objects", {**row, "tools": {"a": 1}})
        self.turned_down("expected JSON: ", {**row, "chat_template_kwargs": "{"})
        self.turned_down("'chat_template_kwargs': expected an object", {**row, "chat_template_kwargs": [1]})
        self.turned_down("message 1: expected a 'role'", {"messages": [{"content": "a"}]})
        image = {"role": "user", "content": [{"type": "image"}]}
        self.turned_down("message 1: 'image' is not rendered", {"messages": [image]})
        self.turned_down("there are no messages", {"messages": []})
        self.turned_down("the prompt is empty", {"messages": [{"role": "user", "content": ""}]}, template=bare)
        cut = "{{ messages[0].content[:1] }}"
        self.turned_down("cannot be rendered: ", {**row, "continue_final_message": True}, template=cut)
        self.turned_down("has token ids already; .*--drop prompt_tokens", {**row, "prompt_tokens": [1]})
        self.turned_down("reads no date", row, "--date", "2025-01-31", template=bare)
        self.turned_down("--date: expected a date as 2025-01-31", row, "--date", "tomorrow", code=64)
        self.turned_down("--chat-template-kwargs: expected JSON", row, "--chat-template-kwargs", "{", code=64)
        path = self.write([row])
        self.refused("--date: needs --tokenizer DIR", path, self.output, "--date", "2025-01-31", code=64)
        self.refused("nowhere: not a directory", path, self.output, "--tokenizer", os.path.join(self.folder, "nowhere"))
        with mock.patch.dict(sys.modules, {"transformers": None, "jinja2": None}):
            missing = "rendering chat templates needs jinja2.*pip install transformers"
            self.refused(missing, path, self.output, "--tokenizer", self.model(bare), code=64)
        with mock.patch.dict(sys.modules, {"transformers": None, "tokenizers": None}):
            self.refused("needs tokenizers", path, self.output, "--tokenizer", self.model(bare), code=64)

    @needs("jinja2", "tokenizers", "pyarrow")
    def test_nulls_of_parquet_are_absent(self):
        import pyarrow
        from pyarrow import parquet

        rows = [
            {"messages": [{"role": "user", "content": "a"}]},
            {
                "messages": [
                    {
                        "role": "assistant",
                        "content": "b",
                        "tool_calls": [{"function": {"arguments": {"x": 1}}}, {"function": {"arguments": {"y": 2}}}],
                    }
                ]
            },
        ]
        path = os.path.join(self.folder, "in.parquet")
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
        texts, _ = self.rendered(path)
        self.assertEqual(texts[0], "26 Jul 2024[user] a.[assistant] ")
        self.assertIn('{"x": 1}{"y": 2}', texts[1])

    @needs("jinja2", "tokenizers")
    def test_paceline_renders_the_embedded_models_template_alike(self):
        """And what was rendered may be converted again."""
        program = os.environ.get("PACELINE_PROGRAM")
        if program is None:
            self.skipTest("paceline was not built")
        conversation = [{"role": "user", "content": "What is 2 + 3?"}, {"role": "assistant", "content": "It is "}]
        row = {"uid": "a", "messages": conversation, "continue_final_message": True}
        plain = self.write([row], "plain.jsonl")
        with self.engine():
            self.assertEqual(self.main(plain, self.output, "--tokenizer", MODEL)[0], 0)
        again = os.path.join(self.folder, "again.jsonl")
        self.assertEqual(self.main(self.output, again)[0], 0)
        digests = []
        for path in (plain, self.output, again):
            run = os.path.join(self.folder, os.path.basename(path) + ".run")
            settings = [f"prompts.path={path}", "prompts.samples=2", "sampling.max_tokens=12"]
            settings = [word for setting in settings for word in ("--set", setting)]
            quickstart = os.path.join(ROOT, "configs", "quickstart.yaml")
            launch = os.path.join(ROOT, "tests", "mpi", "launch.sh")
            command = [launch, "1", program, "rollout", quickstart, *settings, "--output", run]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            digest = subprocess.run([program, "digest", run], check=True, stdout=subprocess.PIPE)
            digests.append(digest.stdout.split()[0])
        self.assertEqual(len(set(digests)), 1, digests)


@needs("transformers", "jinja2")
class RenderingByTransformers(Rendering):
    @contextlib.contextmanager
    def engine(self):
        yield

    @needs("trl")
    def test_templates_of_trl(self):
        """What trainers swap in: both ways give the same ids."""
        import jinja2
        import tokenizers
        import transformers
        import trl

        folder = os.path.join(os.path.dirname(trl.__file__), "chat_templates")
        user, answer = {"role": "user", "content": "a"}, {"role": "assistant", "content": "<think>\nb\n</think>\n\nc"}
        cases = [
            ([user], {}),
            ([{"role": "system", "content": "s"}, user], {"tools": TOOLS}),
            ([user, {"role": "assistant", "content": "b "}], {"continue_final_message": True}),
            ([user, answer, user], {}),
        ]
        token = "<|endoftext|>"
        special = {f"{kind}_token": token for kind in ("bos", "eos", "pad", "unk")}
        names = [name for name in sorted(os.listdir(folder)) if name.endswith(".jinja")]
        compared = 0
        for name in names:
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                directory = self.model(file.read(), **special)
            engines = (
                chat._Transformers(directory, chat.DATE, jinja2, transformers),
                chat._Jinja(directory, chat.DATE, jinja2, tokenizers),
            )
            for messages, row in cases:
                ids = []
                for engine in engines:
                    with mock.patch.object(chat, "_engine", lambda *_, engine=engine: engine):
                        renderer = chat.Renderer(directory)
                    try:
                        ids.append(renderer.render(messages, row, False))
                    except chat.ChatError as error:
                        ids.append(str(error)[:20])  # the words differ
                self.assertEqual(ids[0], ids[1], (name, messages, row))
                compared += isinstance(ids[0], list)
        self.assertGreater(compared, 2 * len(names))

    @needs("trl")
    def test_paceline_renders_tools_as_published_templates_do(self):
        """The ids of lines with tools, by templates that models were published with."""
        import transformers
        import trl
        from paceline_reader import open_run

        program = os.environ.get("PACELINE_PROGRAM")
        if program is None:
            self.skipTest("paceline was not built")
        tools = [*TOOLS, {"type": "function", "function": {"name": "é\\n", "parameters": {"x": [0.5, 1e-7, None, {}]}}}]
        user, answer = {"role": "user", "content": " a"}, {"role": "assistant", "content": "<think>\nb\n</think>\n\nc"}
        conversations = ([user], [{"role": "system", "content": "s"}, user], [user, answer, user])
        rows = [{"messages": c, "tools": tools[:n]} for c in conversations for n in (1, len(tools))]
        lines = self.write(rows)
        for name in ("qwen2_5", "qwen2_5_training", "qwen3", "qwen3_training", "qwen3_instruct_2507", "llama3_1", "llama3_2"):
            model, run = (os.path.join(self.folder, kind + name) for kind in ("model-", "run-"))
            shutil.copytree(MODEL, model)
            template = os.path.join(os.path.dirname(trl.__file__), "chat_templates", name + ".jinja")
            shutil.copy(template, os.path.join(model, "chat_template.jinja"))
            with open(os.path.join(model, "tokenizer_config.json"), "r+") as file:
                config = {**json.load(file), "bos_token": "<|endoftext|>"}
                file.seek(0)
                json.dump(config, file)
                file.truncate()
            settings = [f"model.path={model}", f"prompts.path={lines}", "prompts.samples=1", "sampling.max_tokens=1"]
            settings = [word for setting in settings for word in ("--set", setting)]
            quickstart = os.path.join(ROOT, "configs", "quickstart.yaml")
            launch = os.path.join(ROOT, "tests", "mpi", "launch.sh")
            command = [launch, "1", program, "rollout", quickstart, *settings, "--output", run]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            tokenizer = transformers.AutoTokenizer.from_pretrained(model)
            with open_run(run) as read:
                self.assertEqual(len(read.prompts), len(rows))
                for row, prompt in zip(rows, read.prompts):
                    options = {"date_string": "26 Jul 2024"} if name == "llama3_2" else {}
                    expected = tokenizer.apply_chat_template(
                        row["messages"], row["tools"], add_generation_prompt=True, return_dict=False, **options
                    )
                    self.assertEqual(prompt.tokens.tolist(), expected, (name, row))


if __name__ == "__main__":
    unittest.main()
