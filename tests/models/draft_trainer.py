"""Keep a drafter up with a policy that is trained: a draft model or an EAGLE-3 head, from a run's own responses.

    python draft_trainer.py steps/16 policies/17 drafters/16 --output drafters/17

Of the run's prompts one in eight is held out. On the others the drafter is trained towards the policy that will be
served next: the divergence of its distributions from the policy's, at every token of the responses (of a head, at
every unrolled step). On those held out both drafters are then asked, the one before and the one after, how many tokens
of four would be accepted, under the same noise. One that accepts less is not handed over: --output is not written, and
the exit code is 3.

A drafter never changes a token of a response, so whatever this does is a matter of speed alone. What a head reads of
the policy is computed again here: a pass of the policy, a fraction of what training the policy costs.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from safetensors.torch import save_file
from torch import Tensor

from eagle3 import Eagle3Head, load_head
from evaluate import load_directory
from evaluate_eagle3 import chain_hits, noise_given
from model import Qwen2, pack
from train import loss_of
from train_eagle3 import Document, STEP_WEIGHT, UNROLLED, batches, export as export_head, losses_of, read_documents

# A drafter's longest useful draft at the acceptance of today's drafters, and what the shipped figures have.
WINDOW = 4
# One prompt in so many is held out.
HELD_OUT = 8
# Of AdamW; falls to zero over the updates of a run.
RATES = {"model": 3e-4, "head": 3e-4}


class Drafter(Protocol):
    """A drafter in training; `rate` is AdamW's."""

    rate: float

    def parameters(self) -> list[torch.nn.Parameter]: ...
    def loss(self, policy: Qwen2, batch: list[Document]) -> Tensor: ...
    def hits(self, policy: Qwen2, document: Document, generator: torch.Generator) -> Tensor: ...
    def export(self, directory: Path) -> None: ...


class DraftModel:
    def __init__(self, directory: Path) -> None:
        self.source = directory
        self.rate = RATES["model"]
        self.model = load_directory(directory)

    def parameters(self) -> list[torch.nn.Parameter]:
        return list(self.model.parameters())

    def loss(self, policy: Qwen2, batch: list[Document]) -> Tensor:
        lengths = [len(document.tokens) - 1 for document in batch]
        given = torch.tensor([token for document in batch for token in document.tokens[:-1]])
        wanted = torch.tensor([
            token if at + 1 >= document.prompt else -100
            for document in batch for at, token in enumerate(document.tokens[1:])
        ])
        packing = pack(lengths, len(given))
        with torch.no_grad():
            teacher = policy(given, packing)
        return loss_of(self.model(given, packing), wanted, teacher)[0]

    @torch.no_grad()
    def hits(self, policy: Qwen2, document: Document, generator: torch.Generator) -> Tensor:
        """[chains, WINDOW]: whether a chain's token would be accepted, given that those before it were."""
        tokens = torch.tensor(document.tokens)
        packing = pack([len(tokens) - 1], len(tokens) - 1)
        first = document.prompt - 1
        wanted, drafted = (model(tokens[:-1], packing)[first:] for model in (policy, self.model))
        chosen = tokens[first + 1 :]
        right = (drafted + noise_given(wanted, chosen, generator)).argmax(-1) == chosen
        return right.unfold(0, WINDOW, 1) if len(right) >= WINDOW else right.new_zeros(0, WINDOW)

    def export(self, directory: Path) -> None:
        shutil.copytree(self.source, directory)
        weights = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in self.model.state_dict().items()}
        (directory / "model.safetensors").unlink()
        save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})


class DraftHead:
    def __init__(self, directory: Path, policy: Qwen2) -> None:
        self.rate = RATES["head"]
        self.policy = policy
        self.head: Eagle3Head = load_head(directory, policy.model.embed_tokens.weight.detach())
        self.head.requires_grad_(True)
        self.weights = torch.tensor([STEP_WEIGHT**step for step in range(UNROLLED)])
        self.generator = torch.Generator().manual_seed(1)

    def parameters(self) -> list[torch.nn.Parameter]:
        return list(self.head.parameters())

    def reads(self, policy: Qwen2) -> None:
        """A head shares the embeddings of the policy that it drafts for."""
        self.policy = policy
        self.head.embedding = policy.model.embed_tokens.weight.detach()

    def loss(self, policy: Qwen2, batch: list[Document]) -> Tensor:
        self.reads(policy)
        longest = max(len(document.tokens) for document in batch)
        # As many as in the shipped head's last steps.
        followed = torch.randperm(longest, generator=self.generator)[: max(1, longest // 8)].sort().values
        return (torch.stack(losses_of(self.head, policy, batch, UNROLLED, followed)) * self.weights).sum()

    def hits(self, policy: Qwen2, document: Document, generator: torch.Generator) -> Tensor:
        self.reads(policy)
        prompt, response = document.tokens[: document.prompt], document.tokens[document.prompt :]
        return chain_hits(policy, self.head, prompt, response, WINDOW, generator)

    def export(self, directory: Path) -> None:
        export_head(self.head, self.policy, directory)


def load_drafter(directory: Path, policy: Qwen2) -> Drafter:
    """By the architecture that its config.json names."""
    architecture = json.loads((directory / "config.json").read_text())["architectures"][0]
    return DraftHead(directory, policy) if "Eagle3" in architecture else DraftModel(directory)


@dataclass
class Verdict:
    before: float  # tokens accepted of WINDOW, of the drafter that is served
    after: float  # of the trained one
    chains: int
    seconds: float

    @property
    def better(self) -> bool:
        return self.after >= self.before


class DraftTrainer:
    """Trains one drafter over the steps of an RL run. Used by one thread."""

    def __init__(self, directory: Path, policy: Qwen2, steps: int, tokens_per_step: int, seed: int = 1) -> None:
        """`steps`: updates for each run that is learnt from."""
        self.drafter = load_drafter(directory, policy)
        self.parameters = self.drafter.parameters()
        self.steps, self.tokens = steps, tokens_per_step
        self.rng, self.seed = random.Random(seed), seed

    def learn(self, policy: Qwen2, documents: list[Document]) -> Verdict:
        """Trains towards `policy`; what was learnt is kept where it accepts no less than what was there before."""
        started = time.monotonic()
        held = [document for document in documents if document.group % HELD_OUT == HELD_OUT - 1]
        seen = [document for document in documents if document.group % HELD_OUT != HELD_OUT - 1]
        if not held:
            raise ValueError(f"expected responses to {HELD_OUT} prompts or more")
        served = [parameter.detach().clone() for parameter in self.parameters]
        before, chains = self.accepted(policy, held)
        optimizer = torch.optim.AdamW(self.parameters, lr=self.drafter.rate, betas=(0.9, 0.95), weight_decay=0.0)
        epoch: list[list[Document]] = []
        for step in range(self.steps):
            epoch = epoch or batches(seen, self.tokens, self.rng)
            for group in optimizer.param_groups:
                group["lr"] = self.drafter.rate * (self.steps - step) / self.steps
            self.drafter.loss(policy, epoch.pop()).backward()
            torch.nn.utils.clip_grad_norm_(self.parameters, 0.5)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():  # what is measured is what will be served
            for parameter in self.parameters:
                parameter.copy_(parameter.to(torch.bfloat16))
        after, _ = self.accepted(policy, held)
        verdict = Verdict(before, after, chains, time.monotonic() - started)
        if not verdict.better:
            with torch.no_grad():
                for parameter, value in zip(self.parameters, served):
                    parameter.copy_(value)
        return verdict

    def accepted(self, policy: Qwen2, held: list[Document]) -> tuple[float, int]:
        """Mean tokens accepted of WINDOW, and of how many chains. The same noise each time."""
        generator = torch.Generator().manual_seed(self.seed)
        hits = torch.cat([self.drafter.hits(policy, document, generator) for document in held])
        return float(hits.long().cumprod(1).sum(1).float().mean()), len(hits)

    def export(self, directory: Path) -> None:
        """Writes the drafter. It appears whole, so that no rollout can read half of it."""
        growing = directory.with_name(directory.name + ".tmp")
        self.drafter.export(growing)
        growing.rename(directory)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="the directory of a complete run at T = 1")
    parser.add_argument("policy", type=Path, help="the checkpoint that will be served next")
    parser.add_argument("drafter", type=Path, help="a draft model or an EAGLE-3 head")
    parser.add_argument("--output", type=Path, required=True, help="where the trained one goes")
    parser.add_argument("--steps", type=int, default=8, help="updates")
    parser.add_argument("--tokens-per-step", type=int, default=2048)
    parser.add_argument("--longest", type=int, default=1024, help="longer texts are cut here")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.output.exists():
        sys.exit(f"draft_trainer: {arguments.output} is there already")
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    policy = load_directory(arguments.policy)
    trainer = DraftTrainer(arguments.drafter, policy, arguments.steps, arguments.tokens_per_step, arguments.seed)
    verdict = trainer.learn(policy, read_documents(arguments.run, arguments.longest))
    print(f"of {WINDOW} tokens {verdict.before:.3f} were accepted before, {verdict.after:.3f} after "
          f"({verdict.chains:,} drafts to prompts held out; {verdict.seconds:.1f} s)")
    if not verdict.better:
        print("it is not handed over")
        sys.exit(3)
    trainer.export(arguments.output)


if __name__ == "__main__":
    main()
