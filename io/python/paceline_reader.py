"""Reads what a paceline run wrote: trajectories.h5 of a complete run, its shards while it goes on.

    run = open_run("DIR")                # or DIR/trajectories.h5
    len(run), run.attributes["seed"]
    run[0].tokens, run[0].logprob        # ragged access, in (prompt, sample) order
    run.text(run[0], skip_special_tokens=True)  # by the run's own tokenizer
    batch = run.to_dataproto()           # verl's DataProto, padded, as its agent loop makes it
    batch = run.to_verl()                # the same arrays without verl
    batch = run.to_trl()                 # padded, as TRL's GRPO trainer makes it
    batch = run.to_trl_rollout(prompts)  # what a rollout_func of that trainer returns
    groups = run.to_slime()              # slime's Samples, a list for each prompt
    for sample in run.iter_slime(): ...  # samples with the same fields without slime
    run.scores_under("ref").logprob      # ragged, of other weights: what `paceline score` wrote

    for response in iter_live("DIR"): ...  # finished so far, of a run in progress or killed

    with Steps.launch("my.yaml", "steps", ["mpirun", "-n", "8"]) as steps:  # a resident job
        run = steps.submit("17", {"model": {"path": "policies/17", "weight_version": 17}})

    table = acceptance("DIR", by=("drafter", "position"))  # how well drafts did, from telemetry.h5
    table["drafter"], table["position"], table["rate"]
    spans = timeline("DIR")              # what every rank did when: to be drawn as bars
    spans["rank"], spans["what"], spans["start"], spans["duration"]
    helped = races("DIR")                # requests that several groups generated (best-of-N)
    draft_servers("DIR")                 # what ranks told draft servers and heard from them
    scores("DIR")                        # what became of responses that were to be scored, and when
    model_scale("DIR"), kv_scale("DIR")  # seconds that changes of roles and moves of KV took
    kv_pool("DIR")                       # what ranks put into the KV pool and took out of it
    draft_memory("DIR")                  # memory of draft models that became KV's, and was theirs again
    stop_points("DIR")                   # what a network that ends drafts is trained on (RADAR)
    attempts("DIR")                      # when the run's attempts began and ended
    rank_seconds("DIR"), writes("DIR")   # hosts of ranks, and their seconds by what they went to

Needs h5py and numpy; torch, verl and slime only where what is asked for is made of theirs.
`pip install` of this folder makes it importable from anywhere, and so does PYTHONPATH. One run, one
thread: h5py serialises HDF5 itself, but a Run object keeps its file open. `python3 -m
paceline_reader DIR` prints a summary. The parts are in paceline_run/.

Two log-probabilities come with every token: `logprob` at the sampling temperature over the full
vocabulary ("full"), and `sampling_logprob` after top-k / top-p / min-p ("sampling"): the
distribution the token was really drawn from, which importance weights want.
"""

from __future__ import annotations

import argparse
import sys
from typing import Optional, Sequence

from paceline_run.complete import Run, open_run
from paceline_run.live import iter_live, live_manifest, live_prompts
from paceline_run.records import FINISH_REASONS, GIVEN_BY, Prompt, ReaderError, Response, Turn
from paceline_run.scores import Scores
from paceline_run.slime import SlimeSample
from paceline_run.steps import JobEnded, StepRefused, Steps
from paceline_run.summary import summary
from paceline_run.telemetry import (
    acceptance,
    attempts,
    draft_memory,
    draft_servers,
    kv_pool,
    kv_scale,
    model_scale,
    races,
    rank_seconds,
    scores,
    stop_points,
    timeline,
    writes,
)

__all__ = [
    "FINISH_REASONS",
    "GIVEN_BY",
    "JobEnded",
    "Prompt",
    "ReaderError",
    "Response",
    "Run",
    "Scores",
    "SlimeSample",
    "StepRefused",
    "Steps",
    "Turn",
    "acceptance",
    "attempts",
    "draft_memory",
    "draft_servers",
    "iter_live",
    "kv_pool",
    "kv_scale",
    "live_manifest",
    "live_prompts",
    "model_scale",
    "open_run",
    "races",
    "rank_seconds",
    "scores",
    "stop_points",
    "summary",
    "timeline",
    "writes",
]


def main(arguments: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(description="Summarises a paceline run.")
    parser.add_argument("path", help="run directory or trajectories.h5")
    try:
        print(summary(parser.parse_args(arguments).path))
    except (OSError, ReaderError) as error:
        print(f"paceline_reader: {error}", file=sys.stderr)
        return 74
    return 0


if __name__ == "__main__":
    sys.exit(main())
