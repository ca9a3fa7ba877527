#!/usr/bin/env python3
"""What ArcticInference's suffix trees accept of versions of texts: arctic_bench.py FILE [--length N].

FILE is edited_texts.py's; `bench_draft --versions FILE N` prints the same of paceline's trees. Version by version each
text is decoded with drafts of at most N tokens, of which the longest beginning that the text says is accepted, and one
more token is its target's. Settings are the package's own. The global tree is told what is committed at once, so that it
has all texts before; alone, each text has a cache of its own. Needs arctic_inference (pip install arctic-inference), of
which nothing but its suffix trees is used.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

try:
    from arctic_inference.suffix_decoding import SuffixDecodingCache
except ImportError as error:
    sys.exit(f"arctic_inference is not there: {error}")


def decode(cache: SuffixDecodingCache, name: tuple, prompt: list[int], text: list[int], length: int) -> tuple[int, int, float]:
    """Steps, drafted tokens, and seconds of drafting and telling."""
    both = np.array(prompt + text, np.int32)
    began = time.perf_counter()
    cache.start_request(name, both[: len(prompt)])
    steps = drafted = 0
    at = len(prompt)
    while at < len(both):
        draft = cache.speculate(name, both[max(0, at - cache.max_tree_depth):at], max_spec_tokens=length)
        right = 0
        while right < len(draft.token_ids) and at + right < len(both) and draft.token_ids[right] == both[at + right]:
            right += 1
        count = min(right + 1, len(both) - at)
        cache.add_active_response(name, both[at:at + count])
        at += count
        drafted += len(draft.token_ids)
        steps += 1
    cache.stop_request(name)
    return steps, drafted, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("texts", type=Path, metavar="FILE")
    parser.add_argument("--length", type=int, default=8)
    arguments = parser.parse_args()
    groups = [json.loads(line) for line in arguments.texts.read_text().splitlines()]
    versions = max(len(group["responses"]) for group in groups)
    cache = SuffixDecodingCache()
    print("tokens a step (drafted a step) by version   alone          global tree    us a token")
    for version in range(versions):
        figures = []
        for shared in (False, True):
            tokens = steps = drafted = 0
            seconds = 0.0
            for number, group in enumerate(groups):
                if version >= len(group["responses"]):
                    continue
                text = group["responses"][version]
                made = decode(cache if shared else SuffixDecodingCache(), (number, version), group["prompt"], text,
                              arguments.length)
                steps, drafted, seconds = steps + made[0], drafted + made[1], seconds + made[2]
                tokens += len(text)
            figures.append((tokens / steps, drafted / steps, 1e6 * seconds / tokens))
        print(f"{version + 1:43} {figures[0][0]:6.2f} ({figures[0][1]:4.1f})  {figures[1][0]:6.2f} ({figures[1][1]:4.1f})"
              f" {figures[1][2]:13.1f}", flush=True)


if __name__ == "__main__":
    main()
