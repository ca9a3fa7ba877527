"""Decoding by the reader against what the tokenizers library gave (tests/io/text/fixtures)."""

import gzip
import json
import os
import struct
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "..", "io", "python"))
from paceline_run.text import Decoder  # noqa: E402

FIXTURES = os.path.join(HERE, "..", "text", "fixtures")


class Stream:
    def __init__(self, name):
        with gzip.open(os.path.join(FIXTURES, name)) as file:
            self.data = file.read()
        self.at = 0

    def done(self):
        return self.at == len(self.data)

    def take(self, form):
        values = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return values

    def ids(self):
        (count,) = self.take("H")
        return list(self.take(f"{count}H"))


def fnv(data, state):
    for byte in data:
        state = (state ^ byte) * 0x100000001B3 % (1 << 64)
    return state


class Text(unittest.TestCase):
    def decoder(self, name):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "tokenizer.json"), "wb") as file:
                file.write(Stream(name + ".json.gz").data)
            return Decoder(folder)

    def test_lines_with_and_without_special_tokens(self):
        for name in ("gpt2", "qwen2", "llama3", "llama2"):
            decode = self.decoder(name)
            ids, expected = Stream(name + ".ids.gz"), Stream(name + ".decoded.gz")
            blocks = differing = 0
            while not expected.done():
                digest = 0xCBF29CE484222325
                for line in (ids.ids() for _ in range(8) if not ids.done()):
                    for skip in (False, True):
                        digest = fnv(decode(line, skip).encode() + b"\xff", digest)
                blocks += 1
                differing += expected.take("Q") != (digest,)
            self.assertTrue(ids.done())
            self.assertEqual(differing, 0, f"{name}: blocks of 8 lines")
            self.assertGreaterEqual(blocks, 375)

    def test_what_is_cut_anywhere(self):
        for name in ("gpt2", "qwen2", "llama3", "llama2"):
            decode = self.decoder(name)
            cuts = Stream(name + ".cut.gz")
            compared = 0
            while not cuts.done():
                ids = cuts.ids()
                (size,) = cuts.take("H")
                (text,) = cuts.take(f"{size}s")
                self.assertEqual(decode(ids, skip_special_tokens=True), text.decode(), ids)
                compared += 1
            self.assertEqual(compared, 1500)

    def test_tokens_of_the_other_files(self):
        with open(os.path.join(FIXTURES, "tokenizer_files.json"), encoding="utf-8") as file:
            document = json.load(file)
        compared = 0
        for case in document["cases"]:
            expected = case["results"]["4"]
            if case["refused"] or expected is None or expected != case["results"]["5"]:
                continue
            with tempfile.TemporaryDirectory() as folder:
                files = {"tokenizer": document["bases"][case["base"]], **case["files"]}
                for name, content in files.items():
                    with open(os.path.join(folder, name + ".json"), "w") as file:
                        json.dump(content, file)
                decode = Decoder(folder)
            for _, ids, text in expected:
                self.assertEqual(decode(ids, skip_special_tokens=True), text, case["name"])
            compared += 1
        self.assertGreater(compared, 40)


if __name__ == "__main__":
    unittest.main()
