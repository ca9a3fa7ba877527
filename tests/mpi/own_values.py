"""Responses of lines with a max_tokens and stops of their own, held against the same responses without an end.

    own_values.py MODEL ENDLESS RUN PROMPTS MAX_TOKENS STOP    RUN is of PROMPTS, with that max_tokens and stop string for
                                                               lines that have none, ENDLESS of the same without any end

Prints one line that tells what was compared; exits with 1 where it differs.
"""

import collections
import json
import os
import sys

import h5py

from stop_values import responses, spellings


def prompts(run):
    with h5py.File(os.path.join(run, "trajectories.h5")) as file:
        uid, offsets = bytes(file["prompts/uid"][:]), file["prompts/uid_offsets"][:]
        return [uid[a:b].decode() for a, b in zip(offsets, offsets[1:])], json.loads(file.attrs["sampling"])


def main(model, endless, run, lines, max_tokens, stop):
    texts = spellings(model)
    special = {text.decode(): id for id, text in texts.items() if text.startswith(b"<|") and text.endswith(b"|>")}
    with open(os.path.join(model, "generation_config.json")) as file:
        ends = json.load(file)["eos_token_id"]
    ends = set(ends if isinstance(ends, list) else [ends])
    (uids, sampling), (others, _) = prompts(run), prompts(endless)
    assert uids == others, "the same prompts have other uids"
    assert sampling["by_line"] == ["max_tokens", "stop_ids", "stop_strings"], sampling
    assert sampling["longest_response"] == 200, sampling
    with open(lines) as file:
        rows = [json.loads(line) for line in file]
    whole, cut = responses(endless), responses(run)
    samples = len(cut) // len(rows)
    reasons = collections.Counter()
    for i, ((tokens, _), (found, reason)) in enumerate(zip(whole, cut, strict=True)):
        row = {name: value for name, value in rows[i // samples].items() if value is not None}
        strings = row.get("stop_strings", [stop])
        ids = ends | set(row.get("stop_ids", [])) | {special[s] for s in strings if s in special}
        most = row.get("max_tokens", int(max_tokens))
        text, length, expected = b"", 0, None
        while expected is None:
            text += texts[tokens[length]]
            length += 1
            if tokens[length - 1] in ids:
                expected = 0
            elif any(s.encode() in text for s in strings):
                expected = 2
            elif length == most:
                expected = 1
        assert found == tokens[:length], f"response {i} has {len(found)} tokens, expected {length}"
        assert reason == expected, f"response {i} ended for reason {reason}, expected {expected}"
        reasons[(i // samples, reason)] += 1
    for line, reason in ((1, 1), (3, 2)):
        assert reasons[line, reason] > 0, f"no response to line {line} ended for reason {reason}: {reasons}"
    assert max(len(tokens) for tokens, _ in cut) > int(max_tokens), "none is longer than the run's"
    print(f"{len(cut)} responses end where their lines say")


if __name__ == "__main__":
    main(*sys.argv[1:])
