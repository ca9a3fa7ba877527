"""Measure an EAGLE-3 head on unseen prompts: how far its chains are accepted, under shared noise and greedy.

    python evaluate_eagle3.py ../../configs/models/target ../../configs/models/eagle3 --output figures.json

A chain is drafted after every token of responses sampled at T = 1 (greedy: at T = 0), by unrolling the
head along the response. The noise is drawn from what it can have been, given that the target chose
the response's tokens under it; a drafted token is accepted where the head, under the same noise,
names the response's. Position i counts chains whose first i - 1 tokens were accepted.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor

from eagle3 import Eagle3Head, features_of, load_head, unroll
from evaluate import gumbel, load_directory, sample
from model import Qwen2
from tasks import prompt_text


def noise_given(logits: Tensor, chosen: Tensor, generator: torch.Generator) -> Tensor:
    """Gumbel noise [rows, vocabulary] under which argmax(logits + noise) is `chosen` [rows].

    The maximum is independent of where it is, and the others are Gumbel variables cut off at it.
    """
    best = torch.logsumexp(logits, dim=-1, keepdim=True) + gumbel(logits[:, :1].shape, generator)
    perturbed = -torch.logaddexp(-best, -(logits + gumbel(logits.shape, generator)))
    return perturbed.scatter(1, chosen[:, None], best) - logits


@torch.no_grad()
def chain_hits(
    target: Qwen2, head: Eagle3Head, prompt: list[int], response: list[int], positions: int,
    generator: torch.Generator | None,
) -> Tensor:
    """Whether the drafted token is the response's: [chains, positions] bool; without a generator greedily."""
    tokens = torch.tensor(prompt + response)
    length = len(tokens)
    logits, streams, _ = target.rows(tokens[None], torch.arange(length)[None])
    features = features_of(streams)[0]
    # Row t holds the noise at token t.
    noise = torch.zeros(length, logits.shape[-1])
    if generator is not None:
        noise[1:] = noise_given(logits[0, :-1], tokens[1:], generator)
    # Row t of step i predicts token t + 2 + i. The chains that count follow the prompt's last token or
    # one of the response's, and have all their tokens in the response.
    first = max(len(prompt) - 2, 0)
    count = max(length - positions - 1 - first, 0)
    ids = head.target_ids(torch.arange(head.config.draft_vocab_size))
    hits = []
    for step, drafted in enumerate(unroll(head, tokens, features, positions)):
        at = first + 2 + step
        value = drafted[first : first + count] + noise[at : at + count, ids]
        hits.append(ids[value.argmax(-1)] == tokens[at : at + count])
    return torch.stack(hits, dim=1)


def acceptance(hits: Tensor) -> dict:
    """By position, given that all before it were accepted, and the mean length of chains of several lengths."""
    accepted = hits.long().cumprod(1).float()
    survival = torch.cat((torch.ones(1), accepted.mean(0)))
    return {
        "chains": len(hits),
        "by_position": [round(value, 4) for value in (survival[1:] / survival[:-1]).tolist()],
        **{f"mean_accepted_of_{n}": round(survival[1 : n + 1].sum().item(), 3)
           for n in (2, 4, hits.shape[1]) if n <= hits.shape[1]},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=Path)
    parser.add_argument("head", type=Path)
    parser.add_argument("--prompts", type=Path, default=Path(__file__).parent / "../../configs/prompts/unseen.jsonl")
    parser.add_argument("--count", type=int, default=64, help="the first so many prompts")
    parser.add_argument("--samples", type=int, default=4, help="responses to each at T = 1; at T = 0 there is one")
    parser.add_argument("--limit", type=int, default=2048, help="response tokens at most")
    parser.add_argument("--positions", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()

    torch.set_num_threads(arguments.threads)
    generator = torch.Generator().manual_seed(arguments.seed)
    target = load_directory(arguments.target)
    head = load_head(arguments.head, target.model.embed_tokens.weight)
    tokenizer = Tokenizer.from_file(str(arguments.target / "tokenizer.json"))
    end = set(json.loads((arguments.target / "generation_config.json").read_text())["eos_token_id"])
    rows = [json.loads(line) for line in arguments.prompts.read_text().splitlines()][: arguments.count]
    prompts = [tokenizer.encode(prompt_text(row["prompt"][0]["content"])).ids for row in rows]

    figures = {}
    for name, noise, samples in (("shared_noise", generator, arguments.samples), ("greedy", None, 1)):
        asked = [prompt for prompt in prompts for _ in range(samples)]
        responses = sample(target, asked, end, arguments.limit, noise)
        figures[name] = acceptance(torch.cat([
            chain_hits(target, head, prompt, response, arguments.positions, noise)
            for prompt, response in zip(asked, responses)
        ]))
    print(json.dumps(figures, indent=2))
    if arguments.output:
        arguments.output.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
