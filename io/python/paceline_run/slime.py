"""A run as ragged samples, as slime trains on them. iter_slime and to_slime are methods of Run."""

from __future__ import annotations

import copy
import dataclasses
import warnings
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Union

import numpy as np

from .optional import imported
from .pictures import ProcessedPictures
from .records import PathLike, ReaderError, Response, logprob_column
from .routing import routing_of

if TYPE_CHECKING:
    from slime.utils.types import Sample

    from .complete import Run
    from .scores import Scores

#: slime's Sample.Status for each finish reason. A response cut by a limit is truncated.
SLIME_STATUS = {
    "stop_id": "completed",
    "stop_string": "completed",
    "length": "truncated",
    "context": "truncated",
    "turns": "truncated",
    "failed": "failed",
    "partial": "aborted",
}


#: Fields of the ids that top-k, top-p and min-p left (sampling.keep_masks).
MASK_FIELDS = ("rollout_top_p_token_ids", "rollout_top_p_token_offsets")
#: Fields of prompts' pictures.
PICTURE_FIELDS = ("multimodal_inputs", "multimodal_train_inputs")


@dataclasses.dataclass
class SlimeSample:
    """The fields of slime's `Sample` that a rollout fills, by the same names."""

    group_index: int
    index: int
    prompt: Union[str, List[Dict[str, str]]]  #: messages where the line had them, or else text
    tokens: List[int]  #: prompt, then response
    response: str  #: the response's text, special tokens included, as slime has it
    response_length: int
    loss_mask: List[int]  #: of the response: 1 of a sampled token, 0 of a given one
    rollout_log_probs: List[float]  #: of the response
    reward: Optional[float]
    label: Optional[str]  #: the ground truth
    status: str
    weight_versions: List[str]
    metadata: Dict[str, Any]
    #: What each token of the response could have been: Response.kept_ids and kept_offsets.
    rollout_top_p_token_ids: Optional[List[int]] = None
    rollout_top_p_token_offsets: Optional[List[int]] = None
    #: int32 [tokens - 1, layers, k]: the experts of each token but the last (Run.routed_experts).
    rollout_routed_experts: Optional[np.ndarray] = None
    #: {"images": [Pillow's]} of a prompt with pictures.
    multimodal_inputs: Optional[Dict[str, Any]] = None
    #: What the processor made of them: pixel_values, image_grid_thw.
    multimodal_train_inputs: Optional[Dict[str, Any]] = None

    def to_dict(self) -> Dict[str, Any]:
        """As slime's Sample.to_dict gives it."""
        return dataclasses.asdict(self)


def iter_slime(
    run: Run,
    logprob: str = "sampling",
    tokenizer: Optional[PathLike] = None,
    routing: Optional[Scores] = None,
    processor: Any = None,
) -> Iterator[SlimeSample]:
    """Ragged samples with slime's fields; `index` counts responses.

    `group_index` is the prompt's index above the run's number, 31 bits of Run.key, shifted by 32:
    no two runs have one in common, for slime's own metrics group samples by it.

    Text is decoded by the tokenizer.json of the run's model, or of the directory `tokenizer`.
    Samples of a run with sampling.keep_routing have its experts; `routing`: scores with those to take
    in their place. `processor`: the trainer's, of a run with pictures (ProcessedPictures).
    """
    column = logprob_column(logprob)
    decode = run.decoder(tokenizer)
    experts = routing_of(run, routing)
    pictured = any(prompt.pictures for prompt in run.prompts)
    pictures = ProcessedPictures(run, processor) if pictured else None
    first_group = (int(run.key, 16) & 0x7FFFFFFF) << 32
    for index, response in enumerate(run.responses()):
        prompt = run.prompts[response.prompt_index]
        source = prompt.source
        fields = {k: v for k, v in prompt.extra.items() if k not in ("prompt", "messages")}
        yield SlimeSample(
            group_index=first_group + response.prompt_index,
            index=index,
            prompt=decode(prompt.tokens) if source is None else copy.deepcopy(source),
            tokens=prompt.tokens.tolist() + response.tokens.tolist(),
            response=decode(response.tokens),
            response_length=len(response.tokens),
            loss_mask=response.loss_mask.tolist(),
            rollout_log_probs=getattr(response, column).tolist(),
            reward=response.reward,
            label=prompt.ground_truth or None,
            status=SLIME_STATUS[response.finish_reason],
            weight_versions=[str(response.weight_version)],
            metadata={
                "uid": prompt.uid,
                "finish_reason": response.finish_reason,
                **({"num_turns": response.num_turns} if run.converses else {}),
                **({"reward_extra": response.reward_extra} if response.reward_extra else {}),
                **_top_of(response),
                **copy.deepcopy(fields),
            },
            rollout_top_p_token_ids=_list_of(response.kept_ids),
            rollout_top_p_token_offsets=_list_of(response.kept_offsets),
            rollout_routed_experts=None if experts is None else experts_of(experts, index),
            multimodal_inputs=(
                {"images": [picture.image() for picture in prompt.pictures]}
                if prompt.pictures
                else None
            ),
            multimodal_train_inputs=(pictures.of(prompt) or None) if pictures else None,
        )


def _top_of(response: Response) -> Dict[str, Any]:
    """The most probable tokens, [response, K], where they were recorded."""
    if response.top_ids is None or response.top_logprob is None:
        return {}
    return {"top_ids": response.top_ids.tolist(), "top_logprob": response.top_logprob.tolist()}


def _list_of(values: Optional[np.ndarray]) -> Optional[List[int]]:
    return None if values is None else values.tolist()


def experts_of(routing: Union[Run, Scores], index: int) -> np.ndarray:
    """What slime replays of a response: int32 [tokens - 1, layers, k]."""
    return np.maximum(routing.routed_experts(index), 0).astype(np.int32)


def to_slime(
    run: Run,
    logprob: str = "sampling",
    tokenizer: Optional[PathLike] = None,
    routing: Optional[Scores] = None,
    processor: Any = None,
) -> List[List["Sample"]]:
    """The samples of iter_slime as slime's own class, a list for each prompt.

    This is what a function of --rollout-function-path gives as the samples to train on. Raises
    ImportError without slime, and ReaderError where its Sample lacks one of SlimeSample's fields.
    Warns of a run with top_p below 1 that kept no masks: slime refuses to train on it.
    """
    where = "not from PyPI, but from https://github.com/THUDM/slime"
    types = imported("slime.utils.types", "to_slime", where)
    sample_class = types.Sample
    known = {field.name for field in dataclasses.fields(sample_class)}
    masks = bool(run.attributes["sampling"].get("keep_masks"))
    wanted = [field.name for field in dataclasses.fields(SlimeSample)]
    if not masks:  # versions of slime before there were any have no fields for them
        wanted = [name for name in wanted if name not in MASK_FIELDS]
    if routing_of(run, routing) is None:
        wanted.remove("rollout_routed_experts")
    if not any(prompt.pictures for prompt in run.prompts):
        wanted = [name for name in wanted if name not in PICTURE_FIELDS]
    lacking = [name for name in wanted if name not in known]
    if lacking:
        raise ReaderError(
            f"the Sample of the slime that is installed has no {', '.join(lacking)}; "
            f"iter_slime() gives samples without its class"
        )
    top_p = min(
        [run.attributes["sampling"].get("top_p", 1)]
        + [prompt.own_sampling.get("top_p", 1) for prompt in run.prompts]
    )
    if top_p < 1 and not masks:
        warnings.warn(
            f"{run.path}: sampled with top_p {top_p}, but without sampling.keep_masks: slime refuses "
            f"samples without rollout_top_p_token_ids where its --rollout-top-p is not 1",
            stacklevel=2,
        )
    groups: List[List[Sample]] = [[] for _ in run.prompts]
    for prompt, sample in zip(run.prompt_index, run.iter_slime(logprob, tokenizer, routing, processor)):
        fields = {name: getattr(sample, name) for name in wanted}
        fields["status"] = sample_class.Status(sample.status)
        groups[prompt].append(sample_class(**fields))
    return groups
