"""slime's rollout by a resident job.

    --rollout-function-path paceline_run.rollouts.slime.generate_rollout
    --save-hf /shared/policies/{rollout_id} --save-interval 1
"""

from __future__ import annotations

import asyncio
import os
from typing import Any, Dict, List

from ..records import ReaderError, Response
from ..slime import SLIME_STATUS, experts_of
from ..steps import Steps, require_all_prompts, steps_of_environment, unsupported

#: Of slime's arguments, what has no counterpart, and the values with which it does nothing.
NEUTRAL: Dict[str, List[Any]] = {
    "partial_rollout": [False, None],
    "dynamic_sampling_filter_path": [None],
    "over_sampling_batch_size": [None],
    "custom_generate_function_path": [None],
    "multimodal_keys": [None],
}


def generate_rollout(args: Any, rollout_id: int, data_source: Any, evaluation: bool = False) -> Any:
    """slime's --rollout-function-path, by a resident job whose folder PACELINE_STEPS names.

    `paceline_steps` in a --custom-config-path file names the folder too. The weights of a step are
    what --save-hf wrote after the step before (--save-interval 1), and --hf-checkpoint at first.
    Rewards are the job's where it computes them, else those of slime's own reward functions.
    """
    if evaluation:
        raise ReaderError(
            "paceline_run.rollouts.slime does not evaluate; leave --eval-interval unset, or "
            "give --eval-function-path"
        )
    from slime.rollout.base_types import RolloutFnTrainOutput

    given = dict(vars(args))
    if given.get("over_sampling_batch_size") == args.rollout_batch_size:
        given["over_sampling_batch_size"] = None  # slime's own default
    refused = unsupported(given, NEUTRAL)
    if refused:
        raise ReaderError(f"paceline has no {', '.join(refused)}; leave them to their defaults")
    folder = getattr(args, "paceline_steps", None)
    steps = Steps(folder) if folder else steps_of_environment()
    groups = data_source.get_samples(args.rollout_batch_size)
    request = {
        "model": {"path": _weights(args, rollout_id), "weight_version": rollout_id},
        "prompts": {"samples": args.n_samples_per_prompt},
        "sampling": _sampling(args),
    }
    with steps.submit(f"rollout-{rollout_id}", request, [_line(group[0]) for group in groups]) as run:
        require_all_prompts(run, len(groups))
        decode = run.decoder(None)
        responses = iter(run.responses())
        samples = [sample for group in groups for sample in group]
        for index, sample in enumerate(samples):
            response = next(responses)
            prompt = run.prompts[response.prompt_index]
            _fill(sample, prompt.tokens.tolist(), response, decode(response.tokens))
            if run.keeps_routing:
                sample.rollout_routed_experts = experts_of(run, index)
    if any(sample.reward is None for sample in samples):
        from slime.rollout.rm_hub import batched_async_rm

        for sample, reward in zip(samples, asyncio.run(batched_async_rm(args, samples))):
            sample.reward = reward
    return RolloutFnTrainOutput(samples=groups)


def _weights(args: Any, rollout_id: int) -> str:
    """The directory of the policy that a rollout is by."""
    if rollout_id > 0 and getattr(args, "save_hf", None):
        saved: str = args.save_hf.format(rollout_id=rollout_id - 1)
        if os.path.isdir(saved):
            return saved
        raise ReaderError(f"{saved} is not there: set --save-interval 1, so that --save-hf has it")
    if rollout_id > 0:
        raise ReaderError(
            "the weights of a rollout are read from files: set --save-hf PATH/{rollout_id} and "
            "--save-interval 1"
        )
    first: str = args.hf_checkpoint
    return first


def _sampling(args: Any) -> Dict[str, Any]:
    sampling: Dict[str, Any] = {
        "temperature": args.rollout_temperature,
        "top_p": args.rollout_top_p,
        "top_k": max(args.rollout_top_k or 0, 0),  # -1: off
        "max_tokens": args.rollout_max_response_len,
        "seed": args.rollout_seed,
    }
    if getattr(args, "use_rollout_routing_replay", False):
        sampling["keep_routing"] = True
    if getattr(args, "rollout_stop", None):
        stop = args.rollout_stop
        sampling["stop_strings"] = [stop] if isinstance(stop, str) else list(stop)
    if getattr(args, "rollout_stop_token_ids", None):
        sampling["stop_ids"] = list(args.rollout_stop_token_ids)
    return sampling


def _line(sample: Any) -> Dict[str, Any]:
    """A prompt's line. What slime's data source has rendered by a template is text by now."""
    if sample.tokens:
        raise ReaderError("a sample that has tokens already (a partial rollout) cannot go on")
    line = {"prompt": sample.prompt}
    if sample.label is not None:
        line["ground_truth"] = sample.label
    return line


def _fill(sample: Any, prompt: List[int], response: Response, text: str) -> None:
    sample.tokens = prompt + response.tokens.tolist()
    sample.response = text
    sample.response_length = len(response.tokens)
    sample.loss_mask = response.loss_mask.tolist()
    sample.rollout_log_probs = response.sampling_logprob.tolist()
    sample.weight_versions = [str(response.weight_version)]
    sample.status = type(sample).Status(SLIME_STATUS[response.finish_reason])
    sample.reward = response.reward
