"""The PyTorch half of grpo.py: the policy with its fp32 master weights, log-probabilities, GRPO's update."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from evaluate import load_directory
from model import Qwen2, pack, show
from tower import Seen

# Updates of the weights a rollout. From the second on the policy is no longer the one that sampled, which the clipped
# ratio is for. More of them would wear the samples out, fewer waste a rollout.
UPDATES = 4
# PPO's and GRPO's. There is no KL term beside it: a rule cannot be flattered as a reward model can, and some dozens of
# updates do not lead far from the start.
CLIP = 0.2
# As usual: a batch in which few responses were right is not to throw the weights far.
LARGEST_GRADIENT = 1.0
# What of a checkpoint is not its weights; the last is of a model that reads pictures.
FILES = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "preprocessor_config.json")
# Responses that are computed together where no gradient is wanted: what bounds memory, no result.
TOGETHER = 64


@dataclass
class Sample:
    tokens: list[int]  # prompt and response
    prompt: int  # tokens of the prompt
    logprobs: Tensor  # [sampled tokens of the response] as the rollout has them
    reward: float
    advantage: float
    routing: Tensor | None = None  # [tokens - 1, layers, k] the experts of each token, to be taken again
    seen: Seen | None = None  # the pictures of the prompt
    sampled: Tensor | None = None  # [response] False of tokens that an environment gave; none: all were sampled
    turns: int = 1

    def counted(self) -> Tensor:
        """Of each token but the last, whether the next one was sampled."""
        counted = torch.arange(len(self.tokens) - 1) >= self.prompt - 1
        if self.sampled is not None:
            counted[self.prompt - 1 :] = self.sampled
        return counted


def advantages(rewards: Tensor) -> Tensor:
    """Of rewards [prompts, samples]: how many deviations each is above its group's mean; 0 where all are equal."""
    centred = rewards - rewards.mean(1, keepdim=True)
    spread = rewards.std(1, keepdim=True)
    return torch.where(spread > 0, centred / spread.clamp(min=1e-6), torch.zeros(()))


class Policy:
    """fp32 master weights, and the model that is served and trained: the same, rounded to bf16.

    Gradients are taken where the rollout sampled, at the rounded weights. They move the masters, in which steps that
    are smaller than bf16's eight bits can tell add up.
    """

    def __init__(self, directory: Path, rate: float) -> None:
        self.source = directory
        self.model = load_directory(directory)
        self.masters = [torch.nn.Parameter(weight.detach().clone()) for weight in self.model.parameters()]
        self.optimizer = torch.optim.AdamW(self.masters, lr=rate, betas=(0.9, 0.95), weight_decay=0.0)

    def step(self) -> None:
        """Follows the gradients of the model, and takes them away."""
        for master, weight in zip(self.masters, self.model.parameters()):
            master.grad, weight.grad = weight.grad, None
        torch.nn.utils.clip_grad_norm_(self.masters, LARGEST_GRADIENT)
        self.optimizer.step()
        with torch.no_grad():
            for master, weight in zip(self.masters, self.model.parameters()):
                weight.copy_(master.to(torch.bfloat16))

    def export(self, directory: Path) -> None:
        """As a Hugging Face checkpoint. It appears whole, so that no rollout can read half of one."""
        growing = directory.with_name(directory.name + ".tmp")
        growing.mkdir()
        for name in FILES:
            if (self.source / name).exists():
                shutil.copy(self.source / name, growing)
        weights = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in self.model.state_dict().items()}
        save_file(weights, growing / "model.safetensors", metadata={"format": "pt"})
        growing.rename(directory)


def replay(model: Qwen2, routing: list[Tensor | None]) -> None:
    """Gives the experts of the next pass's tokens, one sample after the other, where there are any; none: the model chooses."""
    experts = torch.cat(routing) if routing and routing[0] is not None else None
    for number, layer in enumerate(model.model.layers):
        if hasattr(layer.mlp, "given"):
            layer.mlp.given = None if experts is None else experts[:, number]


def response_logprobs(model: Qwen2, samples: list[Sample]) -> Tensor:
    """Log-probabilities [tokens] of the responses' sampled tokens at T = 1, one sample after the other."""
    lengths = [len(sample.tokens) - 1 for sample in samples]
    given = torch.tensor([token for sample in samples for token in sample.tokens[:-1]])
    following = torch.tensor([token for sample in samples for token in sample.tokens[1:]])
    counted = torch.cat([sample.counted() for sample in samples])
    replay(model, [sample.routing for sample in samples])
    packing = pack(lengths, len(given))
    if model.shape.tower:
        packing = show(packing, lengths, [sample.seen for sample in samples], model.shape.tower.merge)
    logits = model(given, packing)[counted].float()
    replay(model, [])
    return torch.log_softmax(logits, dim=-1).gather(-1, following[counted, None])[:, 0]


@torch.no_grad()
def recomputed(model: Qwen2, samples: list[Sample], bf16: bool = False) -> Tensor:
    """The same, without gradients; in bf16 as PyTorch itself would do it (autocast), else in fp32."""
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        parts = [response_logprobs(model, samples[i : i + TOGETHER]) for i in range(0, len(samples), TOGETHER)]
    return torch.cat(parts)


def chosen_anew(samples: list[Sample]) -> list[Sample]:
    """The samples without their experts."""
    return [replace(sample, routing=None) for sample in samples]


def agreement(new: Tensor, old: Tensor) -> dict[str, float]:
    """Of log-probabilities of the same tokens: what a trainer sees as the ratio of a policy to itself."""
    difference = new.double() - old.double()
    ratio = difference.exp()
    return {
        "ratio_mean": float(ratio.mean()), "ratio_std": float(ratio.std()),
        "largest_difference": float(difference.abs().max()),
    }


def loss_of(new: Tensor, old: Tensor, advantage: Tensor) -> Tensor:
    """The clipped objective, the mean over tokens [tokens]: a long response weighs more than a short one (DAPO)."""
    ratio = (new - old).exp()
    return -torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage).mean()


def train(policy: Policy, samples: list[Sample], generator: torch.Generator) -> None:
    """UPDATES steps over a rollout. The policy that it is compared with is the rollout's own account of itself."""
    # Groups with equal rewards have nothing to say, and need not be computed (DAPO).
    useful = [sample for sample in samples if sample.advantage != 0]
    order = torch.randperm(len(useful), generator=generator)
    for part in order.split(-(-len(useful) // UPDATES)) if useful else ():
        batch = [useful[i] for i in part.tolist()]
        lengths = torch.tensor([len(sample.logprobs) for sample in batch])
        advantage = torch.tensor([sample.advantage for sample in batch]).repeat_interleave(lengths)
        old = torch.cat([sample.logprobs for sample in batch])
        loss_of(response_logprobs(policy.model, batch), old, advantage).backward()
        policy.step()
