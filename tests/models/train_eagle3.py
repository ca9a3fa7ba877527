"""Train an EAGLE-3 head for a target on the target's own rollouts, as published, and write it in bf16.

    paceline rollout ../../configs/quickstart.yaml --set prompts.path=../../configs/prompts/train.jsonl \\
        --set prompts.samples=4 --output ROLLOUTS
    python train_eagle3.py ROLLOUTS ../../configs/models/target --output ../../configs/models/eagle3

The training-time test: 7 unrolled steps, step i weighing 0.8^i, each with soft cross-entropy to the
target's distribution at the token that it predicts, over response tokens. Steps after the first follow one
row in four, drawn anew for each batch: they cost six times the first otherwise, on a CPU. The draft
vocabulary is the target's, whose embedding the head shares and its lm_head begins as.

With --mask-token a P-EAGLE head (arXiv 2602.01469): rows of steps after the first are masked ones, so that all
tokens of a draft come in one pass. Its loss is the same.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "io" / "python"))

from eagle3 import Eagle3Config, Eagle3Head, features_of, load_head, unroll
from evaluate import load_directory
from model import Qwen2
from paceline_reader import open_run

UNROLLED = 7
STEP_WEIGHT = 0.8


@dataclass
class Document:
    tokens: list[int]  # prompt and response
    prompt: int  # tokens of the prompt
    group: int = 0  # the prompt's number in its run


def read_documents(run_directory: Path, longest: int) -> list[Document]:
    """A run's responses after their prompts; what is longer than `longest` is cut."""
    with open_run(run_directory) as run:
        prompts = [prompt.tokens.tolist() for prompt in run.prompts]
        return [
            Document(
                (prompts[response.prompt_index] + response.tokens.tolist())[:longest],
                len(prompts[response.prompt_index]), response.prompt_index,
            )
            for response in run
        ]


def batches(documents: list[Document], size: int, rng: random.Random) -> list[list[Document]]:
    """An epoch: batches of documents of similar length, of at most `size` tokens when padded, in random order."""
    # Ties between lengths are broken at random, so that an epoch's batches are not the next one's.
    order = sorted(documents, key=lambda document: (len(document.tokens), rng.random()))
    made: list[list[Document]] = [[]]
    for document in order:
        if made[-1] and (len(made[-1]) + 1) * len(document.tokens) > size:
            made.append([])
        made[-1].append(document)
    rng.shuffle(made)
    return made


def padded(batch: list[Document]) -> Tensor:
    """Tokens [documents, longest], padded on the right, where no row of a document looks."""
    longest = max(len(document.tokens) for document in batch)
    return torch.tensor([document.tokens + [0] * (longest - len(document.tokens)) for document in batch])


def predicted(batch: list[Document], rows: Tensor, step: int) -> Tensor:
    """Which of `rows` [documents, rows] of an unrolled step predict a token of a response."""
    first = torch.tensor([document.prompt for document in batch])[:, None]
    last = torch.tensor([len(document.tokens) for document in batch])[:, None]
    return (rows + 2 + step >= first) & (rows + 2 + step < last)


@torch.no_grad()
def target_pass(target: Qwen2, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """The target's features [documents, longest, 3 hidden] and logits of padded documents."""
    logits, streams, _ = target.rows(tokens, torch.arange(tokens.shape[1]).expand_as(tokens))
    return features_of(streams), logits


def losses_of(head: Eagle3Head, target: Qwen2, batch: list[Document], steps: int, followed: Tensor) -> list[Tensor]:
    """The cross-entropy of each unrolled step, less the target's entropy: what a better head could gain."""
    tokens = padded(batch)
    longest = tokens.shape[1]
    features, target_logits = target_pass(target, tokens)
    target_log = torch.log_softmax(target_logits, dim=-1)
    losses = []
    for step, logits in enumerate(unroll(head, tokens, features, steps, followed)):
        rows = followed if step else torch.arange(longest)
        counted = predicted(batch, rows, step)
        wanted = target_log[:, (rows + step + 1).clamp(max=longest - 1)][counted]
        divergence = F.kl_div(torch.log_softmax(logits[counted], dim=-1), wanted, log_target=True, reduction="sum")
        losses.append(divergence / counted.sum().clamp(min=1))
    return losses


def schedule(step: int, steps: int, warm: int) -> float:
    """Warm-up, then linear to zero."""
    return (step + 1) / warm if step < warm else (steps - step) / (steps - warm)


def new_head(target: Qwen2, intermediate: int, layers: int = 1, mask: int | None = None) -> Eagle3Head:
    shape = target.shape
    embedding = target.model.embed_tokens.weight.detach()
    head = Eagle3Head(
        Eagle3Config(
            hidden_size=shape.hidden,
            target_hidden_size=shape.hidden,
            intermediate_size=intermediate,
            num_attention_heads=shape.heads,
            num_key_value_heads=shape.kv_heads,
            head_dim=shape.head_dim,
            vocab_size=shape.vocabulary,
            draft_vocab_size=shape.vocabulary,
            rms_norm_eps=shape.epsilon,
            rope_theta=shape.theta,
            # The target's streams are some twenty times as large as what a new layer adds to them.
            norm_before_residual=True,
            num_hidden_layers=layers,
            mask_token_id=mask,
        ),
        embedding,
    )
    for name, parameter in head.named_parameters():
        if parameter.dim() == 2:
            torch.nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)
    if mask is not None:
        torch.nn.init.normal_(head.mask_hidden)
    head.lm_head.weight.data.copy_(embedding)
    head.norm.weight.data.copy_(target.model.norm.weight.data)
    return head


def export(head: Eagle3Head, target: Qwen2, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    weights = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in head.state_dict().items()}
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    (directory / "model.safetensors").chmod(0o644)
    config = {
        **head.config.as_dict(), "max_position_embeddings": target.shape.max_positions, "torch_dtype": "bfloat16"
    }
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rollouts", type=Path, help="the directory of a complete run at T = 1")
    parser.add_argument("target", type=Path)
    parser.add_argument("--begin", type=Path, help="a head to go on from, as exported")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--intermediate", type=int, default=640)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--mask-token", type=int, help="P-EAGLE: the token of masked rows, one that texts do not have")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--stop-after", type=int, help="steps of the schedule that are made; all by default")
    parser.add_argument("--warm-up", type=int, default=40)
    parser.add_argument("--rate", type=float, default=5e-5, help="of AdamW; the default is the published one")
    parser.add_argument("--tokens-per-step", type=int, default=2048)
    parser.add_argument("--longest", type=int, default=1024, help="longer texts are cut here")
    parser.add_argument("--follow-one-in", type=int, default=4, help="rows that steps after the first are trained on")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()

    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    rng = random.Random(arguments.seed)
    target = load_directory(arguments.target)
    head = new_head(target, arguments.intermediate, arguments.layers, arguments.mask_token)
    if arguments.begin:
        head = load_head(arguments.begin, target.model.embed_tokens.weight.detach())
        head.requires_grad_(True)
    documents = read_documents(arguments.rollouts, arguments.longest)
    optimizer = torch.optim.AdamW(head.parameters(), lr=arguments.rate, betas=(0.9, 0.95), weight_decay=0.0)
    print(f"{sum(p.numel() for p in head.parameters()):,} parameters, {len(documents)} documents of "
          f"{sum(len(d.tokens) for d in documents):,} tokens", flush=True)

    weights = torch.tensor([STEP_WEIGHT**step for step in range(UNROLLED)])
    epoch: list[list[Document]] = []
    reported: list[Tensor] = []
    seen, started = 0, time.time()
    last = min(arguments.steps, arguments.stop_after or arguments.steps)
    for step in range(last):
        epoch = epoch or batches(documents, arguments.tokens_per_step, rng)
        batch = epoch.pop()
        for group in optimizer.param_groups:
            group["lr"] = arguments.rate * schedule(step, arguments.steps, arguments.warm_up)
        longest = max(len(document.tokens) for document in batch)
        followed = torch.randperm(longest)[: max(1, longest // arguments.follow_one_in)].sort().values
        losses = torch.stack(losses_of(head, target, batch, UNROLLED, followed))
        optimizer.zero_grad(set_to_none=True)
        (losses * weights).sum().backward()
        torch.nn.utils.clip_grad_norm_(head.parameters(), 0.5)
        optimizer.step()
        seen += sum(len(document.tokens) for document in batch)
        reported.append(losses.detach())
        if (step + 1) % 50 == 0 or step + 1 == last:
            mean = torch.stack(reported).mean(0)
            reported.clear()
            print(f"step {step + 1} kl by unrolled step {' '.join(f'{value:.4f}' for value in mean.tolist())} "
                  f"seen {seen / 1e6:.2f}M {time.time() - started:.0f} s", flush=True)
            if arguments.output:
                export(head, target, arguments.output)


if __name__ == "__main__":
    main()
