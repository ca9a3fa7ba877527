"""Train the target on generated solutions, the draft on them by distillation from the target, a mixture of experts, or
the model that calls a calculator.

    python train.py target
    python train.py draft --teacher checkpoints/target.pt
    python train.py experts --begin ../../configs/models/draft
    python train.py calculator --begin ../../configs/models/draft

Each step draws its documents from (seed, step), so a run that was cut goes on as if it had not
been. Muon for the matrices of the layers, AdamW for the rest; warm-up, then constant, then linear
to zero. Short documents first: the cap on length rises over the first part of the run.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import defaultdict
from pathlib import Path
from typing import Callable

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor

from build_tokenizer import build
from calculator_tasks import make_calculator_problem, spans
from evaluate import load_directory
from model import DRAFT, EXPERTS, TARGET, Layer, Packing, Qwen2, Shape, balance_loss, made_of, pack
from tasks import make_problem, prompt_text, solve

HERE = Path(__file__).parent
BALANCE = 0.01  # weight of the loss that keeps all experts in use


# A document: its task, and its text in parts, of which the model says some.
Document = tuple[str, list[tuple[str, bool]]]


def solved(rng: random.Random) -> Document:
    problem = make_problem(rng, "train")
    return problem.task, [(prompt_text(problem.question), False), (solve(problem, rng) + "<|im_end|>", True)]


def conversation(rng: random.Random) -> Document:
    problem = make_calculator_problem(rng, "train")
    return f"{len(problem.verbs)} steps", spans(problem, rng)


class Batch:
    """A flat row of whole documents; targets are -100 but where the next token is one that the model says."""

    def __init__(self, tokenizer: Tokenizer, seed: int, step: int, size: int, cap: int,
                 document: Callable[[random.Random], Document] = solved) -> None:
        rng = random.Random(seed * 1_000_003 + step)
        pad = tokenizer.token_to_id("<|endoftext|>")
        tokens: list[int] = []
        targets: list[int] = []
        tasks: list[str] = []
        lengths: list[int] = []
        misses = 0
        while misses < 6:
            task, parts = document(rng)
            ids: list[int] = []
            said: list[int] = []
            for text, by_model in parts:
                part = tokenizer.encode(text).ids
                ids += part
                said += part if by_model else [-100] * len(part)
            length = len(ids) - 1
            if length > cap:
                continue
            if len(tokens) + length > size:
                misses += 1
                continue
            tokens += ids[:-1]
            targets += said[1:]
            tasks += [task] * length
            lengths.append(length)
        self.documents = len(lengths)
        self.used = len(tokens)
        self.tasks = tasks
        self.packing: Packing = pack(lengths, size)
        self.tokens = torch.tensor(tokens + [pad] * (size - len(tokens)))
        self.targets = torch.tensor(targets + [-100] * (size - len(targets)))


def schedule(step: int, steps: int, decay_from: int, warm: int = 40) -> float:
    """Warm-up, constant, then linear to zero."""
    if step < warm:
        return (step + 1) / warm
    return 1.0 if step < decay_from else max(0.0, (steps - step) / (steps - decay_from))


def length_cap(step: int, ramp: int) -> int:
    """The longest document of a step: 128 tokens at first, everything from `ramp` on."""
    return int(128 * 16 ** (step / ramp)) if step < ramp else 4000


def optimizers(model: Qwen2, muon_lr: float, adam_lr: float) -> list[torch.optim.Optimizer]:
    def is_matrix(name: str, parameter: Tensor) -> bool:
        return parameter.dim() == 2 and not name.endswith(("embed_tokens.weight", "mlp.gate.weight", "_gate.weight"))

    matrices = [p for n, p in model.named_parameters() if is_matrix(n, p)]
    others = [p for n, p in model.named_parameters() if not is_matrix(n, p)]
    return [
        torch.optim.Muon(matrices, lr=muon_lr, momentum=0.95, weight_decay=0.01, ns_steps=5),
        torch.optim.AdamW(others, lr=adam_lr, betas=(0.9, 0.98), weight_decay=0.0),
    ]


def loss_of(logits: Tensor, targets: Tensor, teacher_logits: Tensor | None) -> tuple[Tensor, Tensor]:
    """The loss to descend (cross entropy, or KL to the teacher) and each token's cross entropy."""
    each = F.cross_entropy(logits, targets, ignore_index=-100, reduction="none")
    count = (targets >= 0).sum()
    if teacher_logits is None:
        return each.sum() / count, each.detach()
    mask = targets >= 0
    divergence = F.kl_div(
        F.log_softmax(logits[mask], -1), F.log_softmax(teacher_logits[mask], -1), log_target=True, reduction="sum"
    )
    return divergence / count, each.detach()


def save(path: Path, model: Qwen2, opts: list[torch.optim.Optimizer], state: dict) -> None:
    temporary = path.with_suffix(".tmp")
    torch.save({"shape": model.shape.as_dict(), "model": model.state_dict(),
                "optimizers": [o.state_dict() for o in opts], **state}, temporary)
    temporary.replace(path)


def load_model(path: Path) -> Qwen2:
    data = torch.load(path, weights_only=True)
    model = Qwen2(Shape.of(data["shape"]))
    model.load_state_dict(data["model"])
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", choices=("target", "draft", "experts", "calculator"))
    parser.add_argument("--begin", type=Path, help="directory of the model to begin with (experts, calculator)")
    parser.add_argument("--teacher", type=Path, help="checkpoint to distil from (draft)")
    parser.add_argument("--steps", type=int, default=780, help="where the rates reach zero")
    parser.add_argument("--decay-from", type=int, default=400, help="step at which the rates start to fall")
    parser.add_argument("--until", type=int, help="stop at this step of the schedule")
    parser.add_argument("--ramp", type=int, default=350, help="steps until documents may have any length")
    parser.add_argument("--tokens-per-step", type=int, default=6144)
    parser.add_argument("--muon-lr", type=float, default=0.02)
    parser.add_argument("--adam-lr", type=float, default=4e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--save-minutes", type=float, default=3)
    arguments = parser.parse_args()

    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    path = arguments.checkpoint or HERE / "checkpoints" / f"{arguments.which}.pt"
    path.parent.mkdir(parents=True, exist_ok=True)
    tokenizer = build()
    if arguments.compile:
        Layer.before = torch.compile(Layer.before, dynamic=False)
        Layer.after = torch.compile(Layer.after, dynamic=False)
    if arguments.which == "experts":
        model = made_of(load_directory(arguments.begin), EXPERTS)
    elif arguments.which == "calculator":
        model = load_directory(arguments.begin)
    else:
        model = Qwen2(TARGET if arguments.which == "target" else DRAFT)
    document = conversation if arguments.which == "calculator" else solved
    teacher = load_model(arguments.teacher).eval() if arguments.teacher else None
    opts = optimizers(model, arguments.muon_lr, arguments.adam_lr)
    base = [[g["lr"] for g in o.param_groups] for o in opts]
    step, seen, documents = 0, 0, 0
    if path.exists():
        data = torch.load(path, weights_only=True)
        model.load_state_dict(data["model"])
        for optimizer, state in zip(opts, data["optimizers"]):
            optimizer.load_state_dict(state)
        step, seen, documents = data["step"], data["seen"], data["documents"]
    by_task: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    started = saved = reported = time.time()
    counted = 0
    last = min(arguments.steps, arguments.until or arguments.steps)
    while step < last:
        cap = length_cap(step, arguments.ramp)
        batch = Batch(tokenizer, arguments.seed, step, arguments.tokens_per_step, cap, document)
        factor = schedule(step, arguments.steps, arguments.decay_from)
        for optimizer, rates in zip(opts, base):
            for group, rate in zip(optimizer.param_groups, rates):
                group["lr"] = rate * factor
        logits = model(batch.tokens, batch.packing)
        teacher_logits = None
        if teacher is not None:
            with torch.no_grad():
                teacher_logits = teacher(batch.tokens, batch.packing)
        loss, each = loss_of(logits, batch.targets, teacher_logits)
        if arguments.which == "experts":
            loss = loss + BALANCE * balance_loss(model)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in opts:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        step, seen, documents = step + 1, seen + batch.used, documents + batch.documents
        counted += batch.used
        right = (logits.detach().argmax(-1) == batch.targets).tolist()
        for task, value, target, hit in zip(batch.tasks, each.tolist(), batch.targets.tolist(), right):
            if target >= 0:
                entry = by_task[task]
                entry[0] += value
                entry[1] += 1
                entry[2] += hit
        now = time.time()
        if step % 25 == 0 or step == last:
            total = [sum(column) for column in zip(*by_task.values())]
            parts = " ".join(f"{t} {v[0] / v[1]:.3f}" for t, v in sorted(by_task.items()))
            print(f"step {step} loss {total[0] / total[1]:.4f} hit {total[2] / total[1]:.4f} | {parts} | kl/ce {loss.item():.4f} "
                  f"seen {seen / 1e6:.2f}M {counted / (now - reported):.0f} tok/s {(now - started) / 60:.1f} min", flush=True)
            by_task.clear()
            reported, counted = now, 0
        if now - saved > 60 * arguments.save_minutes or step == last:
            save(path, model, opts, {"step": step, "seen": seen, "documents": documents})
            saved = now


if __name__ == "__main__":
    main()
