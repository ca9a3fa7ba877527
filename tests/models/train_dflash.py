"""Train a DFlash head for a target on the target's own rollouts, and write it in bf16, as published.

    paceline rollout ../../configs/quickstart.yaml --set prompts.path=../../configs/prompts/train.jsonl \\
        --set prompts.samples=4 --output ROLLOUTS
    python train_dflash.py ROLLOUTS ../../configs/models/target --output ../../configs/models/dflash

Blocks begin at tokens drawn anew for each batch, from a prompt's last one on. The loss of a masked row is the
divergence from the target's distribution of the token there; of the i-th it weighs exp(-(i - 1) / 4), as published
for blocks of 8. Embeddings and output are the target's, which are tied.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

from dflash import DFlashConfig, DFlashHead, load_head
from evaluate import load_directory
from model import Qwen2
from train_eagle3 import Document, batches, padded, read_documents, schedule

DECAY = 4.0


def draw_anchors(batch: list[Document], count: int) -> Tensor:
    """First tokens of blocks [documents, count]: known ones, with at least one token behind them."""
    first = torch.tensor([document.prompt - 1 for document in batch])[:, None]
    last = torch.tensor([len(document.tokens) - 1 for document in batch])[:, None]
    return (first + torch.rand(len(batch), count) * (last - first).clamp(min=1)).long().clamp(min=1)


def block_mask(anchors: Tensor, length: int, block: int) -> Tensor:
    """What rows of blocks see [documents, 1, rows, length + rows]: the context before them, and their own block."""
    rows = anchors.shape[1] * block
    context = torch.arange(length) < anchors.repeat_interleave(block, dim=1)[..., None]
    own = torch.arange(rows) // block
    return torch.cat((context, (own[:, None] == own).expand(len(anchors), rows, rows)), dim=-1)[:, None]


def losses_of(head: DFlashHead, target: Qwen2, batch: list[Document], count: int) -> Tensor:
    """Divergence from the target of each masked row [block - 1], in nats, mean of `count` blocks a document."""
    block = head.config.block_size
    tokens = padded(batch)
    length = tokens.shape[1]
    with torch.no_grad():
        wanted, streams, _ = target.rows(tokens, torch.arange(length).expand_as(tokens))
        features = head.features_of(streams)
    anchors = draw_anchors(batch, count)
    positions = (anchors[..., None] + torch.arange(block)).flatten(1)
    blocks = head.block_of(tokens.gather(1, anchors)).flatten(1)
    logits = head(blocks, features, positions, block_mask(anchors, length, block)).unflatten(1, (count, block))
    # A masked row at a position has the token there, which the target predicts at the one before.
    places = anchors[..., None] + torch.arange(1, block)
    counted = places < torch.tensor([len(document.tokens) for document in batch])[:, None, None]
    at = (places - 1).clamp(max=length - 1).flatten(1)[..., None].expand(-1, -1, wanted.shape[-1])
    wanted = torch.log_softmax(wanted.gather(1, at).view(*places.shape, -1), dim=-1)
    drafted = torch.log_softmax(logits[:, :, 1:], dim=-1)
    divergence = F.kl_div(drafted, wanted, log_target=True, reduction="none").sum(-1) * counted
    return divergence.sum((0, 1)) / counted.sum((0, 1)).clamp(min=1)


def new_head(target: Qwen2, sizes: dict) -> DFlashHead:
    shape = target.shape
    embedding = target.model.embed_tokens.weight.detach()
    config = DFlashConfig(hidden_size=shape.hidden, target_hidden_size=shape.hidden, vocab_size=shape.vocabulary,
                          draft_vocab_size=shape.vocabulary, rms_norm_eps=shape.epsilon, rope_theta=shape.theta, **sizes)
    head = DFlashHead(config, embedding, embedding)  # tied
    for parameter in head.parameters():
        if parameter.dim() == 2:
            torch.nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)
    head.norm.weight.data.copy_(target.model.norm.weight.data)
    return head


def export(head: DFlashHead, target: Qwen2, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    weights = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in head.state_dict().items()}
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    (directory / "model.safetensors").chmod(0o644)
    config = {**head.config.as_dict(), "max_position_embeddings": target.shape.max_positions, "dtype": "bfloat16"}
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rollouts", type=Path, help="the directory of a complete run at T = 1")
    parser.add_argument("target", type=Path)
    parser.add_argument("--begin", type=Path, help="a head to go on from, as exported")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--block", type=int, default=8)
    parser.add_argument("--mask-token", type=int, default=0, help="one that texts do not have")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--intermediate", type=int, default=256)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--warm-up", type=int, default=40)
    parser.add_argument("--rate", type=float, default=3e-3, help="of AdamW")
    parser.add_argument("--tokens-per-step", type=int, default=2048)
    parser.add_argument("--longest", type=int, default=640, help="longer texts are cut here")
    parser.add_argument("--anchors", type=int, default=40, help="blocks of a document")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()

    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    rng = random.Random(arguments.seed)
    target = load_directory(arguments.target)
    head = new_head(target, {"block_size": arguments.block, "mask_token_id": arguments.mask_token,
                             "num_hidden_layers": arguments.layers, "intermediate_size": arguments.intermediate})
    if arguments.begin:
        head = load_head(arguments.begin, head.embedding, head.output)
        head.requires_grad_(True)
    documents = [d for d in read_documents(arguments.rollouts, arguments.longest) if len(d.tokens) > d.prompt + 1]
    optimizer = torch.optim.AdamW(head.parameters(), lr=arguments.rate, betas=(0.9, 0.95), weight_decay=0.0)
    print(f"{sum(p.numel() for p in head.parameters()):,} parameters, {len(documents)} documents of "
          f"{sum(len(d.tokens) for d in documents):,} tokens", flush=True)

    weights = torch.exp(-torch.arange(arguments.block - 1) / DECAY)
    epoch: list[list[Document]] = []
    reported: list[Tensor] = []
    seen, started = 0, time.time()
    for step in range(arguments.steps):
        epoch = epoch or batches(documents, arguments.tokens_per_step, rng)
        batch = epoch.pop()
        for group in optimizer.param_groups:
            group["lr"] = arguments.rate * schedule(step, arguments.steps, arguments.warm_up)
        losses = losses_of(head, target, batch, arguments.anchors)
        optimizer.zero_grad(set_to_none=True)
        (losses * weights).sum().backward()
        torch.nn.utils.clip_grad_norm_(head.parameters(), 0.5)
        optimizer.step()
        seen += sum(len(document.tokens) for document in batch)
        reported.append(losses.detach())
        if (step + 1) % 50 == 0 or step + 1 == arguments.steps:
            mean = torch.stack(reported).mean(0)
            reported.clear()
            print(f"step {step + 1} kl by masked row {' '.join(f'{value:.4f}' for value in mean.tolist())} "
                  f"seen {seen / 1e6:.2f}M {time.time() - started:.0f} s", flush=True)
            if arguments.output:
                export(head, target, arguments.output)


if __name__ == "__main__":
    main()
