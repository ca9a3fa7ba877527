"""Write fixtures/kimi.*: a small tiktoken.model as Moonlight and Kimi-K2 have it, and what `tiktoken` makes of a corpus.

The test (test_tiktoken.cpp) needs no Python; this script is run when the fixtures should change, after
make_tokenizer_fixtures.py, whose corpus.gz it reads:

    make_tiktoken_fixtures.py [FOLDER]

    kimi.model.gz    base64 of a token, a space and its rank, a line for each
    kimi.ids.gz      for every fourth line of corpus.gz, and then for the lines of kimi.wild.gz: [u16 count][u16 ids]
    kimi.wild.gz     lines of random code points, as corpus.gz
"""

from __future__ import annotations

import base64
import collections
import gzip
import random
import struct
import sys
from pathlib import Path

import regex
import tiktoken

VOCABULARY = 2000
WILD = 1500
# The published class attribute of both models' Python classes.
LETTERS = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
PATTERN = "|".join((
    r"[\p{Han}]+",
    r"[^\r\n\p{L}\p{N}]?" + LETTERS[0] + "*" + LETTERS[1] + "+" + ENDINGS,
    r"[^\r\n\p{L}\p{N}]?" + LETTERS[0] + "+" + LETTERS[1] + "*" + ENDINGS,
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+",
))
# By id after the ranks; the others are <|reserved_token_ID|>.
NAMED = {0: "[BOS]", 1: "[EOS]", 2: "<|im_end|>", 3: "<|im_user|>", 4: "<|im_assistant|>", 8: "<|im_middle|>",
         254: "[UNK]", 255: "[PAD]"}
# No merges lead to these: only a whole word becomes one.
ALONE = [" unreachable", "汉字输入法", "qzqzqz", "\u00a0\u00a0\u00a0\u00a0"]


def train(lines: list[str], tokens: list[bytes]) -> None:
    """Adds the most frequent pairs of neighbours, one after another."""
    # `regex` shares `tiktoken`'s syntax of sets.
    counts = collections.Counter(word.encode() for line in lines for word in regex.findall(PATTERN, line, regex.V1))
    words = [([bytes([b]) for b in word], count) for word, count in sorted(counts.items())]
    while len(tokens) < VOCABULARY:
        pairs: collections.Counter = collections.Counter()
        for parts, count in words:
            for pair in zip(parts, parts[1:]):
                pairs[pair] += count
        left, right = max(pairs, key=lambda pair: (pairs[pair], pair))
        if left + right not in tokens:
            tokens.append(left + right)
        for parts, _ in words:
            at = 0
            while at + 1 < len(parts):
                if parts[at] == left and parts[at + 1] == right:
                    parts[at:at + 2] = [left + right]
                at += 1
        words = [word for word in words if len(word[0]) > 1]


def wild_line(generator: random.Random) -> str:
    """Code points of all planes, in runs of a kind, so that words form."""
    kinds = [(0x20, 0x7F), (0x20, 0x7F), (0xA0, 0x2FF), (0x300, 0x370), (0x370, 0x600), (0x600, 0x1100), (0x1100, 0x2000),
             (0x2000, 0x2E80), (0x2E80, 0x3100), (0x3100, 0x3400), (0x3400, 0x4E00), (0x4E00, 0xA000), (0x4E00, 0xA000),
             (0xA000, 0xD800), (0xF900, 0x10000), (0x10000, 0x14700), (0x16800, 0x17000), (0x1D000, 0x1D800),
             (0x1F000, 0x1FB00), (0x20000, 0x323B0), (0xE0000, 0xE01F0)]
    line = ""
    for _ in range(generator.randint(1, 12)):
        first, end = generator.choice(kinds)
        line += "".join(chr(generator.randrange(first, end)) for _ in range(generator.randint(1, 6)))
        line += generator.choice(["", "", " ", "  ", "\n", " \r\n", "\t", "\u3000", "'s", "'LL", "'ſ", "007", "[EOS]", "<|im_"])
    return line


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "fixtures"
    data, lines = gzip.decompress((folder / "corpus.gz").read_bytes()), []
    while data:
        size = struct.unpack("<I", data[:4])[0]
        lines.append(data[4:4 + size].decode())
        data = data[4 + size:]
    lines = lines[::4]
    generator = random.Random(5)
    single = [bytes([b]) for b in range(256)]
    generator.shuffle(single)
    tokens = single + [word.encode() for word in ALONE]
    train(lines, tokens)
    ranks = {token: rank for rank, token in enumerate(tokens)}
    special = {NAMED.get(i, f"<|reserved_token_{len(tokens) + i}|>"): len(tokens) + i for i in range(256)}
    encoding = tiktoken.Encoding("kimi", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens=special)
    wild = [wild_line(generator) for _ in range(WILD)] + ALONE + [
        "a[BOS]b<|im_user|>user<|im_middle|>汉字 test<|im_end|>", f"<|reserved_token_{len(tokens) + 5}|>", "汉" * 300 + "a" * 700]
    ids = b""
    for line in lines + wild:
        found = encoding.encode(line, allowed_special="all")
        ids += struct.pack(f"<H{len(found)}H", len(found), *found)

    def write(name: str, content: bytes) -> None:
        (folder / name).write_bytes(gzip.compress(content, mtime=0))

    write("kimi.model.gz", b"".join(base64.b64encode(t) + b" %d\n" % r for t, r in ranks.items()))
    write("kimi.wild.gz", b"".join(struct.pack("<I", len(line.encode())) + line.encode() for line in wild))
    write("kimi.ids.gz", ids)


if __name__ == "__main__":
    main()
