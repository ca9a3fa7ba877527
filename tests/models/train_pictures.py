"""Train the model that reads pictures: the draft model with a tower, on generated problems about drawn pictures.

    python train_pictures.py --begin ../../configs/models/draft

As train.py does it: documents follow from (seed, step), a run that was cut goes on from its checkpoint. Beside the text's
there is a loss for the tower: a linear layer is to tell of each of its rows what is drawn there. Without it nothing is
read for a long time, for it takes a tower that tells digits apart to learn where to look, and the other way round.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import defaultdict
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor, nn

from build_tokenizer import build_for_pictures
from evaluate import load_directory
from model import PICTURES, Packing, Qwen2, Shape, pack, show
from picture_tasks import ROW, expand, make_picture_problem, picture_prompt_text, solve_picture
from pictures import MARKS, seen_of
from tower import Seen
from train import loss_of, optimizers, save, schedule

HERE = Path(__file__).parent
LOOK = 0.5  # weight of the tower's own loss


class PictureBatch:
    """A flat row of whole documents, as train.Batch has them, with their pictures."""

    def __init__(self, tokenizer: Tokenizer, shape: Shape, seed: int, step: int, size: int) -> None:
        rng = random.Random(seed * 1_000_003 + step)
        tower, row = shape.tower, tokenizer.token_to_id(ROW)
        tokens: list[int] = []
        targets: list[int] = []
        seen: list[Seen | None] = []
        labels: list[Tensor] = []
        self.tasks: list[str] = []
        lengths: list[int] = []
        while True:
            problem = make_picture_problem(rng, "train")
            rows = [p.shape[0] * p.shape[1] // (tower.patch * tower.merge) ** 2 for p in problem.pictures]
            prompt, first = expand(tokenizer.encode(picture_prompt_text(problem.question)).ids, row, rows)
            response = tokenizer.encode(solve_picture(problem, rng) + "<|im_end|>").ids
            length = len(prompt) + len(response) - 1
            if len(tokens) + length > size:
                break
            tokens += (prompt + response)[:-1]
            targets += [-100] * (len(prompt) - 1) + response
            labels += [drawing.labels() for drawing in problem.drawings]
            seen.append(seen_of(problem.pictures, first, tower))
            self.tasks += [problem.task] * length
            lengths.append(length)
        self.documents, self.used = len(lengths), len(tokens)
        pad = tokenizer.token_to_id("<|endoftext|>")
        self.packing: Packing = show(pack(lengths, size), lengths, seen, tower.merge)
        self.tokens = torch.tensor(tokens + [pad] * (size - len(tokens)))
        self.targets = torch.tensor(targets + [-100] * (size - len(targets)))
        self.labels = torch.cat(labels)  # of all rows of pictures


@torch.no_grad()
def begin(directory: Path) -> Qwen2:
    """A model of PICTURES whose decoder is the directory's, as far as its vocabulary goes."""
    model = Qwen2(PICTURES)
    own = model.state_dict()
    for name, weight in load_directory(directory).state_dict().items():
        own[name][: len(weight)].copy_(weight)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--begin", type=Path, default=HERE / "../../configs/models/draft")
    parser.add_argument("--steps", type=int, default=2000, help="where the rates reach zero")
    parser.add_argument("--decay-from", type=int, default=1200, help="step at which the rates start to fall")
    parser.add_argument("--until", type=int, help="stop at this step of the schedule")
    parser.add_argument("--tokens-per-step", type=int, default=3072)
    parser.add_argument("--muon-lr", type=float, default=0.01)
    parser.add_argument("--adam-lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--checkpoint", type=Path, default=HERE / "checkpoints" / "pictures.pt")
    parser.add_argument("--save-minutes", type=float, default=1)
    arguments = parser.parse_args()

    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    path = arguments.checkpoint
    path.parent.mkdir(parents=True, exist_ok=True)
    tokenizer = build_for_pictures()
    model = begin(arguments.begin)
    looks = nn.Linear(model.shape.hidden, len(MARKS) + 1)
    opts = [*optimizers(model, arguments.muon_lr, arguments.adam_lr), torch.optim.AdamW(looks.parameters(), lr=arguments.adam_lr)]
    base = [[g["lr"] for g in o.param_groups] for o in opts]
    step, seen, documents = 0, 0, 0
    if path.exists():
        data = torch.load(path, weights_only=True)
        model.load_state_dict(data["model"])
        looks.load_state_dict(data["looks"])
        for optimizer, state in zip(opts, data["optimizers"]):
            optimizer.load_state_dict(state)
        step, seen, documents = data["step"], data["seen"], data["documents"]
    by_task: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    started = saved = reported = time.time()
    counted, looked = 0, [0, 0]
    last = min(arguments.steps, arguments.until or arguments.steps)
    while step < last:
        batch = PictureBatch(tokenizer, model.shape, arguments.seed, step, arguments.tokens_per_step)
        factor = schedule(step, arguments.steps, arguments.decay_from)
        for optimizer, rates in zip(opts, base):
            for group, rate in zip(optimizer.param_groups, rates):
                group["lr"] = rate * factor
        rows = model.visual(batch.packing.seen)
        logits = model(batch.tokens, batch.packing, rows)
        loss, each = loss_of(logits, batch.targets, None)
        look = looks(rows)
        marked = batch.labels < len(MARKS)
        (loss + LOOK * F.cross_entropy(look, batch.labels)).backward()
        looked[0] += int((look.argmax(-1) == batch.labels)[marked].sum())
        looked[1] += int(marked.sum())
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
            print(f"step {step} loss {total[0] / total[1]:.4f} hit {total[2] / total[1]:.4f} | {parts} | marks seen {looked[0] / looked[1]:.3f} "
                  f"seen {seen / 1e6:.2f}M {counted / (now - reported):.0f} tok/s {(now - started) / 60:.1f} min", flush=True)
            by_task.clear()
            reported, counted, looked = now, 0, [0, 0]
        if now - saved > 60 * arguments.save_minutes or step == last:
            save(path, model, opts, {"looks": looks.state_dict(), "step": step, "seen": seen, "documents": documents})
            saved = now


if __name__ == "__main__":
    main()
