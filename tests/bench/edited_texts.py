#!/usr/bin/env python3
"""Versions of texts with small edits in between, as a policy that changes slowly would say them: edited_texts.py IN OUT.

IN is JSON Lines of token ids, {"prompt": [...], "response": [...]}; a line of OUT has a prompt with all versions of its
response, {"prompt": [...], "responses": [[...], ...]}, the first as it is in IN (tests/bench/response_texts.hpp). Each
version is the one before with --edits edits a token: 1 to 4 tokens are replaced, deleted or put in, each as often. New
tokens are a run from elsewhere in IN, 1 to 4 of them.
"""

import argparse
import json
import random
from pathlib import Path


def edited(text: list[int], stock: list[list[int]], edits: float, chance: random.Random) -> list[int]:
    out: list[int] = []
    at = 0
    while at < len(text):
        if chance.random() >= edits:
            out.append(text[at])
            at += 1
            continue
        kind = chance.choice(("replace", "delete", "insert"))
        if kind != "insert":
            at += chance.randint(1, 4)
        if kind != "delete":
            source = chance.choice(stock)
            begin = chance.randrange(len(source))
            out += source[begin:begin + chance.randint(1, 4)]
    return out or text[:1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("texts", type=Path, metavar="IN")
    parser.add_argument("output", type=Path, metavar="OUT")
    parser.add_argument("--edits", type=float, default=0.02, help="a token, from version to version")
    parser.add_argument("--versions", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    lines = [json.loads(line) for line in arguments.texts.read_text().splitlines()]
    lines = [line for line in lines if line["response"]]
    stock = [line["response"] for line in lines]
    chance = random.Random(arguments.seed)
    with arguments.output.open("w") as file:
        for line in lines:
            versions = [line["response"]]
            while len(versions) < arguments.versions:
                versions.append(edited(versions[-1], stock, arguments.edits, chance))
            file.write(json.dumps({"prompt": line["prompt"], "responses": versions}) + "\n")


if __name__ == "__main__":
    main()
