"""Train the model of latent attention with its next-token layer, by distillation from the target.

    python train_latent.py --teacher ../../configs/models/target

As train.py does it: documents follow from (seed, step), a run that was cut goes on from its checkpoint. The next-token
layer is trained along, towards the model's own distribution at the token after the next. Drafts are chains, in which
its own states follow one another, so it is unrolled: in a second and a third pass most rows have the state that the
pass before made.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from build_tokenizer import build
from evaluate import load_directory
from latent import DeepseekV3, LatentShape
from train import Batch, length_cap, loss_of, save, schedule

HERE = Path(__file__).parent
AHEAD = 0.3  # weight of the next-token layer's loss (DeepSeek-V3's)
PASSES = 3  # of it from step `--ramp` on, before that one; each weighs 0.8 of the one before
OWN = 0.7  # share of rows that have a state of its own, from the second pass on
BALANCE = 0.002  # what corrections of scores move by


def optimizers(model: DeepseekV3, muon_lr: float, adam_lr: float) -> list[torch.optim.Optimizer]:
    apart = ("embed_tokens.weight", "lm_head.weight", "mlp.gate.weight")
    named = list(model.named_parameters())
    matrices = [p for n, p in named if p.dim() == 2 and not n.endswith(apart)]
    others = [p for n, p in named if p.dim() != 2 or n.endswith(apart)]
    return [
        torch.optim.Muon(matrices, lr=muon_lr, momentum=0.95, weight_decay=0.01, ns_steps=5),
        torch.optim.AdamW(others, lr=adam_lr, betas=(0.9, 0.98), weight_decay=0.0),
    ]


def begin(directory: Path) -> DeepseekV3:
    """A new model whose embedding and head are those of the directory's, of the same width."""
    model = DeepseekV3(LatentShape())
    embedding = load_directory(directory).model.embed_tokens.weight
    with torch.no_grad():
        model.model.embed_tokens.weight.copy_(embedding)
        model.lm_head.weight.copy_(embedding)
    return model


def ahead_losses(
    model: DeepseekV3, batch: Batch, states: Tensor, logits: Tensor, passes: int
) -> tuple[list[Tensor], list[float]]:
    """Of each pass of the next-token layer: KL from the model's own distribution, and how often both name one token."""
    positions, targets = batch.packing.positions, batch.targets
    next_tokens = torch.where(targets >= 0, targets, batch.tokens.roll(-1))
    inside = positions.roll(-1) > 0  # the row after is of the same document
    counted = (targets.roll(-1) >= 0) & inside
    wanted = F.log_softmax(logits.detach().roll(-1, 0)[counted], -1)
    named = wanted.argmax(-1)
    losses, agreed, given = [], [], states
    for _ in range(passes):
        made = model.following(next_tokens, given, batch.packing)
        out = F.log_softmax(model.lm_head(made[counted]), -1)
        losses.append(F.kl_div(out, wanted, log_target=True, reduction="sum") / counted.sum())
        agreed.append(float((out.argmax(-1) == named).float().mean()))
        own = (torch.rand(len(states)) < OWN) & (positions > 0)
        given = torch.where(own[:, None], made.roll(1, 0), states)
    return losses, agreed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--begin", type=Path, default=HERE / "../../configs/models/draft", help="whose embedding it has at first")
    parser.add_argument("--teacher", type=Path, default=HERE / "../../configs/models/target")
    parser.add_argument("--steps", type=int, default=500, help="where the rates reach zero")
    parser.add_argument("--decay-from", type=int, default=250, help="step at which the rates start to fall")
    parser.add_argument("--until", type=int, help="stop at this step of the schedule")
    parser.add_argument("--ramp", type=int, default=150, help="steps until documents may have any length")
    parser.add_argument("--tokens-per-step", type=int, default=4096)
    parser.add_argument("--muon-lr", type=float, default=0.02)
    parser.add_argument("--adam-lr", type=float, default=4e-3)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--checkpoint", type=Path, default=HERE / "checkpoints" / "latent.pt")
    parser.add_argument("--save-minutes", type=float, default=1)
    arguments = parser.parse_args()

    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    path = arguments.checkpoint
    path.parent.mkdir(parents=True, exist_ok=True)
    tokenizer = build()
    model, teacher = begin(arguments.begin), load_directory(arguments.teacher)
    opts = optimizers(model, arguments.muon_lr, arguments.adam_lr)
    base = [[g["lr"] for g in o.param_groups] for o in opts]
    step, seen, documents = 0, 0, 0
    if path.exists():
        data = torch.load(path, weights_only=True)
        model.load_state_dict(data["model"])
        for optimizer, state in zip(opts, data["optimizers"]):
            optimizer.load_state_dict(state)
        step, seen, documents = data["step"], data["seen"], data["documents"]
    started = saved = reported = time.time()
    sums, counted = torch.zeros(3 + PASSES), 0
    last = min(arguments.steps, arguments.until or arguments.steps)
    while step < last:
        batch = Batch(tokenizer, arguments.seed, step, arguments.tokens_per_step, length_cap(step, arguments.ramp))
        factor = schedule(step, arguments.steps, arguments.decay_from)
        for optimizer, rates in zip(opts, base):
            for group, rate in zip(optimizer.param_groups, rates):
                group["lr"] = rate * factor
        states = model.states(batch.tokens, batch.packing)
        logits = model.lm_head(states)
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            wanted = teacher(batch.tokens, batch.packing).float()
        loss, each = loss_of(logits, batch.targets, wanted)
        ahead, agreed = ahead_losses(model, batch, states, logits, PASSES if step >= arguments.ramp else 1)
        agreed += [float("nan")] * (PASSES - len(agreed))
        (loss + AHEAD * sum(0.8**i * one for i, one in enumerate(ahead))).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in opts:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        for mixture in model.mixtures():
            mixture.balance(BALANCE * factor)
        response = batch.targets >= 0
        right = (logits.detach().argmax(-1) == batch.targets)[response].float().mean()
        sums += torch.tensor([float(each[response].mean()), float(right), loss.item(), *agreed])
        step, seen, documents = step + 1, seen + batch.used, documents + batch.documents
        counted += 1
        now = time.time()
        if step % 25 == 0 or step == last:
            ce, hit, kl, *ahead_hits = (sums / counted).tolist()
            fullest = max(float(m.used.max() / m.used.mean()) for m in model.mixtures())
            print(f"step {step} loss {ce:.4f} hit {hit:.4f} kl {kl:.4f} | ahead " + " ".join(f"{h:.3f}" for h in ahead_hits)
                  + f" | fullest expert {fullest:.2f} seen {seen / 1e6:.2f}M {(now - reported) / counted:.2f} s/step "
                  f"{(now - started) / 60:.1f} min", flush=True)
            sums, counted, reported = torch.zeros(3 + PASSES), 0, now
        if now - saved > 60 * arguments.save_minutes or step == last:
            save(path, model, opts, {"step": step, "seen": seen, "documents": documents})
            saved = now


if __name__ == "__main__":
    main()
