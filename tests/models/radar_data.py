"""RADAR's dataset: what the stop policy sees of a growing draft tree, and what each stop is worth.

    python radar_data.py record ROLLOUTS ../../configs/models/target ../../configs/models/eagle3 radar.h5
    python radar_data.py check ROLLOUTS ../../configs/models/target ../../configs/models/eagle3

Ma and Li, "RADAR", section 2.2, equations 1 and 8 to 10. A data point is a
prefix of one of the target's responses; there the head's tree grows by 8 calls, the root's included.

The file (HDF5) has, for n points:
    /states   [n, 8, 10] float32  the frontier after each call: ten cumulative log-probabilities, best first
    /lengths  [n, 8, 9]  float32  row c: how likely 0 ... 8 drafted tokens are accepted after c + 1 calls
and the attributes `total` (rows of the verified tree, its root included) and `temperature` (the target's).
Points of one text lie together, texts in the order of the run.

The acceptance rule is ours: the target samples with its own noise, and a drafted path is accepted as
far as it names those tokens. Siblings are different tokens of which at most one is sampled, so that
with p the target's distribution after the parent,
    P_acc(child | parent) = p(child),    P_rej(all children | parent) = 1 - sum of p(child).
Equation 10 has 1 - sum (1 - P_acc), which is negative for two unlikely children; for the published rule,
where siblings are tried one after another, it must be the product of (1 - P_acc), which for ours is the
sum above. Summed over the nodes of a depth (equation 8), P_stop is what the paths to this depth have
together, less what those one deeper have: that is how it is computed here.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import torch
from torch import Tensor

from eagle3 import Eagle3Head, Rows, Tree, features_of, grow_tree, load_head
from evaluate import gumbel, load_directory
from model import Past, Qwen2
from train_eagle3 import Document, read_documents

CALLS = 8  # the root's and the expansions of 7 depths
WIDTH = 10  # the frontier, which is what the published policy sees


@dataclass
class Text:
    """A whole text as target and head have computed it: what every prefix of it begins from."""

    tokens: Tensor  # [length]
    prompt: int
    logits: Tensor  # [length, vocabulary], the target's
    past: Past  # [1, kv heads, length, head_dim] for each layer
    drafted: Rows  # of the head, rows [1, length - 1]


@torch.no_grad()
def read_text(target: Qwen2, head: Eagle3Head, document: Document) -> Text:
    tokens = torch.tensor(document.tokens)
    logits, streams, past = target.rows(tokens[None], torch.arange(len(tokens))[None])
    drafted = head(tokens[None, 1:], features_of(streams)[:, :-1])
    return Text(tokens, document.prompt, logits[0], past, drafted)


def tree_after(head: Eagle3Head, text: Text, ends: Tensor) -> Tree:
    """A tree for each prefix [prefixes] of the text whose last token, the root, is at `ends`."""
    rows, count = ends - 1, len(ends)
    drafted = text.drafted
    root = Rows(
        drafted.logits[0, rows], drafted.features[0, rows],
        drafted.keys.expand(count, -1, -1, -1), drafted.values.expand(count, -1, -1, -1),
    )
    seen = torch.arange(len(text.tokens) - 1) <= rows[:, None]
    return grow_tree(head, root, seen, rows, CALLS - 1, WIDTH)


def target_probabilities(target: Qwen2, text: Text, ends: Tensor, tree: Tree, temperature: float) -> Tensor:
    """What the target samples from after every expanded row: [prefixes, rows, vocabulary], the root's first."""
    count = len(ends)
    seen = torch.arange(len(text.tokens)) <= ends[:, None]
    mask = torch.cat((seen[:, None].expand(-1, tree.row_tokens.shape[1] - 1, -1), tree.ancestry[:, 1:, 1:]), dim=-1)
    past = [(k.expand(count, -1, -1, -1), v.expand(count, -1, -1, -1)) for k, v in text.past]
    positions = ends[:, None] + tree.row_depths[1:]
    logits, _, _ = target.rows(tree.row_tokens[:, 1:], positions, mask, past)
    return torch.softmax(torch.cat((text.logits[ends][:, None], logits), dim=1) / temperature, dim=-1)


def path_probabilities(tree: Tree, probabilities: Tensor) -> Tensor:
    """How likely each candidate is accepted, in a tree that has it: [prefixes, candidates]."""
    prefixes, candidates = tree.tokens.shape
    spread = torch.arange(prefixes)[:, None]
    own = probabilities[spread, tree.parents, tree.tokens]
    reached = torch.zeros(prefixes, candidates)
    row_reached = torch.ones(prefixes, tree.row_tokens.shape[1])
    for depth in range(1, int(tree.depths[-1]) + 1):
        drafted = tree.depths == depth
        reached[:, drafted] = row_reached[spread, tree.parents[:, drafted]] * own[:, drafted]
        expanded = tree.row_depths == depth
        row_reached[:, expanded] = reached[spread, tree.row_candidates[:, expanded]]
    return reached


def flat_tree(head: Eagle3Head, root_logits: Tensor, total: int) -> Tensor:
    """The tree of a single call, as published: the total - 1 likeliest tokens [prefixes, total - 1], side by side."""
    count = min(total - 1, root_logits.shape[-1])
    return head.target_ids(root_logits.topk(count, dim=-1).indices)


def length_distributions(tree: Tree, probabilities: Tensor, flat: Tensor, total: int) -> Tensor:
    """How many drafted tokens are accepted after each number of calls: [prefixes, calls, calls + 1]."""
    reached = path_probabilities(tree, probabilities)
    # How likely paths of at least a depth are accepted; paths of one depth exclude one another.
    at_least = torch.zeros(len(reached), CALLS, CALLS + 2)
    at_least[..., 0] = 1.0
    at_least[:, 0, 1] = probabilities[:, 0].gather(1, flat).sum(1)
    for calls in range(2, CALLS + 1):
        chosen = tree.best(calls, total)
        at_least[:, calls - 1].scatter_add_(1, tree.depths[chosen], reached.gather(1, chosen))
    return (at_least[..., :-1] - at_least[..., 1:]).clamp(min=0.0)


def prefixes_of(document: Document, most: int, rng: random.Random) -> Tensor:
    """Ends of up to `most` prefixes: tokens of the response after which it goes on."""
    possible = range(document.prompt, len(document.tokens) - 1)
    return torch.tensor(sorted(rng.sample(possible, min(most, len(possible)))), dtype=torch.long)


@dataclass
class Points:
    """The data points of one text, and all they were made of."""

    text: Text
    ends: Tensor  # [prefixes]
    tree: Tree
    flat: Tensor  # [prefixes, total - 1]
    lengths: Tensor  # [prefixes, calls, calls + 1]


@torch.no_grad()
def points_of(
    target: Qwen2, head: Eagle3Head, documents: list[Document], count: int, each: int, total: int,
    temperature: float, seed: int
) -> Iterator[Points]:
    """At least `count` points (where there are as many), up to `each` of a text, of texts drawn at random."""
    rng = random.Random(seed)
    made = 0
    for document in rng.sample(documents, len(documents)):
        if made >= count:
            return
        ends = prefixes_of(document, each, rng)
        if len(ends) == 0:
            continue
        text = read_text(target, head, document)
        tree = tree_after(head, text, ends)
        flat = flat_tree(head, text.drafted.logits[0, ends - 1], total)
        probabilities = target_probabilities(target, text, ends, tree, temperature)
        yield Points(text, ends, tree, flat, length_distributions(tree, probabilities, flat, total))
        made += len(ends)


@torch.no_grad()
def continuations(
    target: Qwen2, text: Text, end: int, count: int, length: int, temperature: float, generator: torch.Generator
) -> Tensor:
    """Tokens [count, length] that the target samples after the prefix, a token at a time and without a tree."""
    past = [(k[:, :, : end + 1].expand(count, -1, -1, -1), v[:, :, : end + 1].expand(count, -1, -1, -1)) for k, v in text.past]
    logits = text.logits[end].expand(count, -1)
    sampled = []
    for step in range(length):
        sampled.append((logits / temperature + gumbel(logits.shape, generator)).argmax(-1))
        if step + 1 < length:
            mask = torch.ones(count, 1, end + 2 + step, dtype=torch.bool)
            logits, _, past = target.rows(sampled[-1][:, None], torch.full((count, 1), end + 1 + step), mask, past)
            logits = logits[:, 0]
    return torch.stack(sampled, dim=1)


def accepted_lengths(points: Points, prefix: int, sampled: Tensor, calls: int, total: int) -> list[int]:
    """How many tokens of each sampled continuation [samples, length] the verified tree has, walked as a verifier does."""
    tree = points.tree
    if calls == 1:
        children = {(0, token): None for token in points.flat[prefix].tolist()}
    else:
        row_of = {candidate: row for row, candidate in enumerate(tree.row_candidates[prefix].tolist())}
        children = {
            (int(tree.parents[prefix, candidate]), int(tree.tokens[prefix, candidate])): row_of.get(candidate)
            for candidate in tree.best(calls, total)[prefix].tolist()
        }
    lengths = []
    for tokens in sampled.tolist():
        row, length = 0, 0
        while row is not None and length < calls and (row, tokens[length]) in children:
            row, length = children[row, tokens[length]], length + 1
        lengths.append(length)
    return lengths


def chi_square(expected: np.ndarray, observed: np.ndarray, least: float = 5.0) -> tuple[float, int]:
    """The statistic and its degrees of freedom, lengths expected fewer than `least` times taken together."""
    # What was observed although it cannot be must not hide in a bin with what can.
    if observed[expected < 1e-5].any():
        return float("inf"), 1
    rare = expected < least
    bins = list(zip(expected[~rare].tolist(), observed[~rare].tolist()))
    bins.append((expected[rare].sum(), observed[rare].sum()))
    # All the rare together can still be rare: then they join the least of the others.
    if len(bins) > 1 and bins[-1][0] < least:
        bins.sort()
        (e, o), (more_e, more_o) = bins[0], bins[1]
        bins[:2] = [(e + more_e, o + more_o)]
    return float(sum((o - e) ** 2 / e for e, o in bins)), len(bins) - 1


def tail_probability(statistic: float, freedom: int) -> float:
    """How likely chi-square is at least `statistic`; 1 where there is nothing to vary."""
    if freedom == 0:
        return 1.0
    return float(torch.special.gammaincc(torch.tensor(freedom / 2.0).double(), torch.tensor(statistic / 2.0).double()))


def check(target: Qwen2, head: Eagle3Head, made: Iterator[Points], samples: int, total: int, temperature: float,
          seed: int) -> list[tuple[float, int]]:
    """For each number of calls, chi-square of the lengths that sampling gives against what was computed."""
    generator = torch.Generator().manual_seed(seed)
    sums = [[0.0, 0] for _ in range(CALLS)]
    for points in made:
        for prefix, end in enumerate(points.ends.tolist()):
            sampled = continuations(target, points.text, end, samples, CALLS, temperature, generator)
            for calls in range(1, CALLS + 1):
                lengths = accepted_lengths(points, prefix, sampled, calls, total)
                observed = np.bincount(lengths, minlength=CALLS + 1)
                expected = samples * points.lengths[prefix, calls - 1].double().numpy()
                statistic, freedom = chi_square(expected, observed)
                sums[calls - 1][0] += statistic
                sums[calls - 1][1] += freedom
    return [(statistic, freedom) for statistic, freedom in sums]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("record", "check"))
    parser.add_argument("rollouts", type=Path, help="the directory of a complete run")
    parser.add_argument("target", type=Path)
    parser.add_argument("head", type=Path)
    parser.add_argument("output", type=Path, nargs="?", help="the dataset to write (record)")
    parser.add_argument("--points", type=int, help="16384 to record, 64 to check")
    parser.add_argument("--each", type=int, help="points of a text at most: 16 to record, 1 to check")
    parser.add_argument("--samples", type=int, default=1000, help="continuations sampled at each point (check)")
    parser.add_argument("--total", type=int, default=60, help="rows of the verified tree, its root included")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--longest", type=int, default=1024, help="longer texts are cut here")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    recording = arguments.what == "record"
    if recording and arguments.output is None:
        parser.error("record needs a file to write")

    torch.set_num_threads(arguments.threads)
    target = load_directory(arguments.target)
    head = load_head(arguments.head, target.model.embed_tokens.weight)
    documents = read_documents(arguments.rollouts, arguments.longest)
    count = arguments.points or (16384 if recording else 64)
    each = arguments.each or (16 if recording else 1)
    started = time.time()
    made = points_of(target, head, documents, count, each, arguments.total, arguments.temperature, arguments.seed)
    if not recording:
        results = check(target, head, made, arguments.samples, arguments.total, arguments.temperature, arguments.seed)
        for calls, (statistic, freedom) in enumerate(results, 1):
            print(f"{calls} calls: chi-square {statistic:.1f} at {freedom} degrees of freedom, "
                  f"p = {tail_probability(statistic, freedom):.3f}")
        return
    states, lengths = [], []
    for points in made:
        states.append(points.tree.frontiers.numpy())
        lengths.append(points.lengths.numpy())
    with h5py.File(arguments.output, "w") as file:
        file["states"] = np.concatenate(states).astype(np.float32)
        file["lengths"] = np.concatenate(lengths).astype(np.float32)
        file.attrs["total"] = arguments.total
        file.attrs["temperature"] = arguments.temperature
        mean = (file["lengths"][:] * np.arange(CALLS + 1)).sum(-1).mean(0)
        print(f"{len(file['states'])} points in {time.time() - started:.0f} s, accepted on average after "
              f"1 ... {CALLS} calls: {' '.join(f'{value:.3f}' for value in mean)}")


if __name__ == "__main__":
    main()
