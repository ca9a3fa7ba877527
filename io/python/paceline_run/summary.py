"""A run in a few lines, complete or not."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Mapping, Sequence

import numpy as np

from .complete import open_run
from .live import iter_live, live_manifest, live_prompts
from .manifest import longest_response, samples_of
from .records import PathLike, Response


def summary(path: PathLike) -> str:
    """What `python3 paceline_reader.py PATH` prints."""
    name = os.fspath(path)
    complete = not os.path.isdir(name) or os.path.exists(os.path.join(name, "trajectories.h5"))
    reasons: Dict[str, int] = {}
    rewards: List[float] = []
    lengths: List[int] = []

    def count(response: Response) -> None:
        reasons[response.finish_reason] = reasons.get(response.finish_reason, 0) + 1
        lengths.append(len(response.tokens))
        if response.reward is not None:
            rewards.append(response.reward)

    if complete:
        with open_run(name) as run:
            about: Mapping[str, Any] = run.attributes
            prompts = run.prompts
            for response in run.responses():
                count(response)
    else:
        about = live_manifest(name)
        prompts = live_prompts(name)
        for response in iter_live(name, partial=True):
            count(response)
    expected = int(samples_of(about).sum())
    finished = len(lengths) - reasons.get("partial", 0)
    lines = [
        f"{name}: {'complete' if complete else 'in progress or stopped'}",
        f"  program     {about['program_version']}, "
        f"{about['backend']} {about['isa']} {about['dtype']}",
        f"  model       {about['model_fingerprint']}, weight version {about['weight_version']}",
        f"  sampling    seed {about['seed']}, temperature {about['sampling']['temperature']}, "
        f"at most {longest_response(about)} tokens",
        f"  prompts     {len(prompts)}: {_describe([len(p.tokens) for p in prompts])} tokens",
        f"  responses   {finished} finished of {expected}",
        f"  tokens      {_describe(lengths)}",
        "  finished by " + (", ".join(f"{k} {reasons[k]}" for k in sorted(reasons)) or "none"),
    ]
    if rewards:
        noun = "response" if len(rewards) == 1 else "responses"
        lines.append(f"  reward      mean {np.mean(rewards):.4g} over {len(rewards)} {noun}")
    return "\n".join(lines)


def _describe(lengths: Sequence[int]) -> str:
    values = np.asarray(lengths, dtype=np.int64)
    if len(values) == 0:
        return "none"
    p50, p90 = np.percentile(values, [50, 90])
    return (
        f"total {values.sum()}, mean {values.mean():.1f}, median {p50:.0f}, 90% {p90:.0f}, "
        f"longest {values.max()}"
    )
