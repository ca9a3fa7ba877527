"""Responses that a stop string ended, held against the same responses without an end.

    stop_values.py MODEL ENDLESS STOPPED STRING    each of STOPPED is that of ENDLESS up to the token with which STRING,
                                                   special tokens' spelling included, is complete

Prints one line that tells what was compared; exits with 1 where it differs.
"""

import json
import os
import sys

import h5py


def spellings(model):
    """Id -> bytes, of a byte-level tokenizer.json."""
    with open(os.path.join(model, "tokenizer.json")) as file:
        tokenizer = json.load(file)
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    byte_of = {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}
    texts = {id: bytes(byte_of[c] for c in token) for token, id in tokenizer["model"]["vocab"].items()}
    return texts | {added["id"]: added["content"].encode() for added in tokenizer["added_tokens"]}


def responses(run):
    with h5py.File(os.path.join(run, "trajectories.h5")) as file:
        group = file["trajectories"]
        offsets, tokens, reasons = group["offsets"][:], group["tokens"][:], group["finish_reason"][:]
    return [(list(tokens[a:b]), int(r)) for a, b, r in zip(offsets, offsets[1:], reasons)]


def main(model, endless, stopped, string):
    texts, wanted = spellings(model), string.encode()
    ended = 0
    for i, ((whole, _), (cut, reason)) in enumerate(zip(responses(endless), responses(stopped), strict=True)):
        text, length = b"", 0
        while length < len(whole) and wanted not in text:
            text += texts[whole[length]]
            length += 1
        found = wanted in text
        ended += found
        assert cut == whole[:length], f"response {i} has {len(cut)} tokens, expected {length}"
        assert (reason == 2) == found, f"response {i} ended for reason {reason}, stop string found: {found}"
    assert ended > 0, "no response has the string"
    print(f"{ended} responses end with it, {len(responses(stopped)) - ended} have none")


if __name__ == "__main__":
    main(*sys.argv[1:])
