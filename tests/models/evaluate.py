"""Measure an exported model at T = 1 on unseen prompts: accuracy, lengths, groups, draft agreement.

    python evaluate.py ../../configs/models/target --draft ../../configs/models/draft --output figures.json

Lengths count response tokens with the closing <|im_end|>. Intra-group length correlation is ICC(1),
the share of length variance that lies between prompts, and the mean Pearson correlation of the
lengths of sample i and sample j over prompts. Draft agreement is the chance that target and draft,
given the same context and the same Gumbel noise, name the same token.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor

from model import Cache, Qwen2, Shape, pack
from tasks import CHECKS, check, prompt_text
from tower import TowerShape


def shape_of(config: dict) -> Shape:
    """Of a config.json that export.py wrote."""
    experts = config.get("num_experts", 0)
    vision = config.get("vision_config")
    tower = None
    if vision:
        tower = TowerShape(
            width=vision["embed_dim"], layers=vision["depth"], heads=vision["num_heads"],
            intermediate=vision["embed_dim"] * vision["mlp_ratio"], patch=vision["patch_size"],
            temporal_patch=vision["temporal_patch_size"], merge=vision["spatial_merge_size"],
        )
    return Shape(
        vocabulary=config["vocab_size"], hidden=config["hidden_size"], layers=config["num_hidden_layers"],
        heads=config["num_attention_heads"], kv_heads=config["num_key_value_heads"],
        intermediate=config["moe_intermediate_size" if experts else "intermediate_size"], experts=experts,
        chosen=config.get("num_experts_per_tok", 0), shared=config.get("shared_expert_intermediate_size", 0),
        theta=config["rope_theta"], epsilon=config["rms_norm_eps"], max_positions=config["max_position_embeddings"],
        tower=tower, sections=tuple(config["rope_scaling"]["mrope_section"]) if vision else (),
    )


def shape_at(directory: Path) -> Shape:
    return shape_of(json.loads((directory / "config.json").read_text()))


def load_directory(directory: Path) -> Qwen2:
    """An exported model: its bf16 weights, computed with in fp32."""
    model = Qwen2(shape_at(directory))
    model.load_state_dict({name: tensor.float() for name, tensor in load_file(directory / "model.safetensors").items()})
    return model.eval()


def gumbel(shape: torch.Size, generator: torch.Generator) -> Tensor:
    return -torch.log(-torch.log(torch.rand(shape, generator=generator).clamp(1e-20, 1 - 1e-7)))


@torch.no_grad()
def sample(model: Qwen2, prompts: list[list[int]], end: set[int], limit: int,
           generator: torch.Generator | None) -> list[list[int]]:
    """One response (prompt excluded, end token included) for each row, at T = 1; greedy without a generator."""
    responses: list[list[int]] = [[] for _ in prompts]
    live = list(range(len(prompts)))
    position = torch.zeros(len(live), dtype=torch.long)
    current = torch.tensor([p[0] for p in prompts])
    cache = Cache(model.shape, len(live), 256)
    while live:
        cache.reserve(int(position.max()) + 1)
        logits = model.step(current, position, cache)
        noise = 0.0 if generator is None else gumbel(logits.shape, generator)
        chosen = (logits + noise).argmax(-1).tolist()
        position += 1
        kept, tokens = [], []
        for row, (request, token, at) in enumerate(zip(live, chosen, position.tolist())):
            if at < len(prompts[request]):
                token = prompts[request][at]
            else:
                responses[request].append(token)
                if token in end or len(responses[request]) >= limit:
                    continue
            kept.append(row)
            tokens.append(token)
        if len(kept) < len(live):
            rows = torch.tensor(kept, dtype=torch.long)
            live = [live[row] for row in kept]
            position = position[rows]
            cache.keep(rows)
        current = torch.tensor(tokens, dtype=torch.long)
    return responses


def intraclass_correlation(groups: np.ndarray) -> float:
    """ICC(1) of groups [prompts, samples]."""
    count, size = groups.shape
    between = size * groups.mean(1).var(ddof=1)
    within = groups.var(axis=1, ddof=1).mean()
    return float((between - within) / (between + (size - 1) * within))


def mean_pairwise_correlation(groups: np.ndarray) -> float:
    matrix = np.corrcoef(groups.T)
    return float(matrix[np.triu_indices(len(matrix), 1)].mean())


@torch.no_grad()
def agreement(target: Qwen2, draft: Qwen2, rows: list[tuple[list[int], list[int]]], generator: torch.Generator,
              window: int = 4) -> dict[str, float]:
    """How often both models name the same token under shared noise, and drafts accepted of `window`."""
    same = argmax = total = 0
    accepted: list[int] = []
    for prompt, response in rows:
        tokens = torch.tensor(prompt + response[:-1])
        packing = pack([len(tokens)], len(tokens))
        a, b = (m(tokens, packing)[len(prompt) - 1:] for m in (target, draft))
        noise = gumbel(a.shape, generator)
        equal = (a + noise).argmax(-1) == (b + noise).argmax(-1)
        same += int(equal.sum())
        argmax += int((a.argmax(-1) == b.argmax(-1)).sum())
        total += len(equal)
        if len(equal) >= window:
            accepted += equal.unfold(0, window, 1).long().cumprod(1).sum(1).tolist()
    return {
        "shared_noise": round(same / total, 4),
        "greedy": round(argmax / total, 4),
        f"mean_accepted_of_{window}": round(float(np.mean(accepted)), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--draft", type=Path)
    parser.add_argument("--prompts", type=Path, default=Path(__file__).parent / "../../configs/prompts/unseen.jsonl")
    parser.add_argument("--count", type=int, default=64, help="the first so many prompts")
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--limit", type=int, default=2048, help="response tokens at most")
    parser.add_argument("--rows", type=int, default=256, help="requests decoded together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--show", type=int, default=0, help="print so many wrong responses")
    arguments = parser.parse_args()

    torch.set_num_threads(arguments.threads)
    generator = torch.Generator().manual_seed(arguments.seed)
    model = load_directory(arguments.model)
    tokenizer = Tokenizer.from_file(str(arguments.model / "tokenizer.json"))
    end = set(json.loads((arguments.model / "generation_config.json").read_text())["eos_token_id"])
    rows = [json.loads(line) for line in arguments.prompts.read_text().splitlines()][: arguments.count]
    prompts = [tokenizer.encode(prompt_text(row["prompt"][0]["content"])).ids for row in rows]
    requests = [index for index in range(len(rows)) for _ in range(arguments.samples)]
    started = time.time()
    responses: list[list[int]] = []
    for first in range(0, len(requests), arguments.rows):
        part = [prompts[index] for index in requests[first: first + arguments.rows]]
        responses += sample(model, part, end, arguments.limit, generator)
    seconds = time.time() - started

    texts = [tokenizer.decode(tokens) for tokens in responses]
    right = np.array([check(text, rows[i]["reward_model"]["ground_truth"]) for i, text in zip(requests, texts)])
    lengths = np.array([len(tokens) for tokens in responses])
    groups = lengths.reshape(len(rows), arguments.samples).astype(float)
    tasks = np.array([rows[i]["extra_info"]["task"] for i in requests])
    percentile = {f"p{p}": float(np.percentile(lengths, p)) for p in (5, 50, 90, 95, 99)}
    distinct = np.mean([len(set(texts[i: i + arguments.samples])) / arguments.samples
                        for i in range(0, len(texts), arguments.samples)])
    figures = {
        "prompts": len(rows), "samples": arguments.samples, "temperature": 1.0, "seed": arguments.seed,
        "accuracy": round(float(right.mean()), 4),
        "accuracy_by_task": {t: round(float(right[tasks == t].mean()), 4) for t in sorted(set(tasks))},
        "solved_by_any_sample": round(float(right.reshape(len(rows), -1).any(1).mean()), 4),
        "length": {**percentile, "mean": round(float(lengths.mean()), 1), "max": int(lengths.max())},
        "p95_over_p50": round(percentile["p95"] / percentile["p50"], 2),
        "max_over_p50": round(float(lengths.max()) / percentile["p50"], 2),
        "cut_at_limit": int(sum(tokens[-1] not in end for tokens in responses)),
        "icc1_length": round(intraclass_correlation(groups), 3),
        "mean_pairwise_length_correlation": round(mean_pairwise_correlation(groups), 3),
        "distinct_samples_per_group": round(float(distinct), 3),
        "second_pass_share": round(float(np.mean([any(c in t for c in CHECKS) for t in texts])), 3),
    }
    if arguments.draft:
        pairs = [(prompts[i], tokens) for i, tokens in zip(requests, responses)][::4]
        figures["draft_agreement"] = agreement(model, load_directory(arguments.draft), pairs, generator)
    print(json.dumps(figures, indent=2))
    print(f"{lengths.sum()} tokens in {seconds:.0f} s")
    wrong = [i for i in range(len(texts)) if not right[i]]
    for i in wrong[:: max(1, len(wrong) // max(1, arguments.show))][: arguments.show]:
        print("=" * 20, rows[requests[i]]["prompt"][0]["content"], rows[requests[i]]["reward_model"]["ground_truth"])
        print(texts[i])
    if arguments.output:
        arguments.output.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
