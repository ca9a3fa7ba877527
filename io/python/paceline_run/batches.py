"""A run as padded arrays, as verl and TRL train on them: methods of Run."""

from __future__ import annotations

import copy
import dataclasses
import warnings
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Sequence, Set, Union

import numpy as np

from .optional import imported
from .pictures import ProcessedPictures, merge_of, positions_of
from .records import ReaderError, logprob_column
from .routing import routing_of

if TYPE_CHECKING:
    from verl import DataProto

    from .complete import Run
    from .scores import Scores


def to_verl(
    run: Run,
    prompt_length: Optional[int] = None,
    response_length: Optional[int] = None,
    pad_token_id: int = 0,
    as_torch: bool = False,
    logprob: str = "sampling",
    truncate: bool = False,
    routing: Optional[Scores] = None,
    processor: Any = None,
) -> Dict[str, Dict[str, Any]]:
    """What verl's DataProto.from_dict takes, one row a response: tensors, non_tensors, meta_info.

    tensors: prompts [B, P] left-padded, responses [B, R] right-padded, response_mask [B, R] (1 on
    sampled tokens, 0 on those that an environment gave), input_ids, attention_mask and position_ids
    [B, P + R]: int64. rollout_log_probs [B, R]: 0 on
    padding, float32. rm_scores [B, R]: the reward on the last token, float32; only when every
    response has a reward, because verl takes this key as the reward and scores nothing itself.

    non_tensors, object arrays [B]: uid, equal for the responses to one prompt of this run alone
    (Run.group_uids), so that GRPO's groups stay apart where runs are concatenated; and of
    data_source, reward_model, extra_info, ability and raw_prompt (the messages or text) those that
    some prompt has. A prompt without one gets an empty dict (reward_model, extra_info) or None.
    Where there are rm_scores, also what verl's reward loop has beside them: reward_extra_info, a
    dict each, its entries as columns, and their names in meta_info's reward_extra_keys. Of a reward
    function that returned a dict these are its entries, of one that returned a number acc is that.
    Of a run with an environment also __num_turns__, int32 [B]: Response.num_turns.
    meta_info: temperature, of the run: a warning where lines have their own, or where penalties or
    biases make another distribution of the one that verl computes log-probabilities of. (global_token_num is of a whole batch: verl's trainer counts it, and
    concatenates none that have it.)

    P and R are the longest prompt and response unless given. What does not fit is a ReaderError
    that names it, or, with `truncate`, loses its beginning (prompts) or end (responses).

    Of a run with sampling.logprobs: K there are also top_ids, int64 [B, R, K], and top_log_probs,
    float32; both are 0 on padding and on given tokens.

    Of a run with pictures, `processor` is the trainer's (transformers' AutoProcessor). position_ids
    are [B, 4, P + R] then, as verl has them: the place in the text, and what get_rope_index gives,
    1 on padding. multi_modal_inputs, an object array [B], has a dict of each response: pixel_values,
    image_grid_thw and images_seqlens by the processor, of its prompt's files as they are; empty where
    the prompt has none. A grid that is not the run's is a ReaderError.

    Of a run with sampling.keep_routing, or where `routing` is given, scores with experts,
    there is also routed_experts, int16 [B, P + R, layers, k]; 0 on padding, in layers without experts
    and for the last token.
    """
    _warn_of_sampling(run, logprob)
    padded = _padded(run, prompt_length, response_length, pad_token_id, logprob, truncate)
    tensors = {
        "prompts": padded.prompts,
        "responses": padded.responses,
        "response_mask": padded.response_mask * padded.loss_mask,
        "input_ids": np.concatenate([padded.prompts, padded.responses], axis=1),
        "attention_mask": np.concatenate([padded.prompt_mask, padded.response_mask], axis=1),
    }
    positions = np.cumsum(tensors["attention_mask"], axis=1) - 1
    tensors["position_ids"] = np.clip(positions, 0, None)
    pictured = any(prompt.pictures for prompt in run.prompts)
    if pictured:
        tensors["position_ids"] = _positions(run, tensors["attention_mask"], padded)
    tensors["rollout_log_probs"] = padded.log_probs
    if run.attributes["sampling"].get("logprobs", 0) > 0:
        tensors.update(_top(run, padded.responses.shape[1]))
    experts = routing_of(run, routing)
    if experts is not None:
        tensors["routed_experts"] = _routed_experts(run, padded, experts)
    if len(run) and not np.isnan(run.reward).any():
        scores = np.zeros(padded.responses.shape, dtype=np.float32)
        counts = padded.response_mask.sum(axis=1)
        rows = np.flatnonzero(counts)
        scores[rows, counts[rows] - 1] = run.reward[rows]
        tensors["rm_scores"] = scores

    columns = {
        "data_source": ([p.extra.get("data_source") for p in run.prompts], None),
        "reward_model": ([p.reward_model for p in run.prompts], {}),
        "extra_info": ([p.extra.get("extra_info") for p in run.prompts], {}),
        "ability": ([p.extra.get("ability") for p in run.prompts], None),
        "raw_prompt": ([p.source for p in run.prompts], None),
    }
    non_tensors = {"uid": _rows(run, run.group_uids, None)}
    for name, (values, missing) in columns.items():
        if any(value is not None for value in values):
            non_tensors[name] = _rows(run, values, missing)
    if pictured:
        non_tensors["multi_modal_inputs"] = _multi_modal_inputs(run, processor)
    if run.converses:
        turns = [response.num_turns for response in run.responses()]
        non_tensors["__num_turns__"] = np.array(turns, dtype=np.int32)
    extras = _reward_extras(run, {*tensors, *non_tensors}) if "rm_scores" in tensors else {}
    non_tensors.update(extras)
    return {
        "tensors": _as_torch(tensors) if as_torch else tensors,
        "non_tensors": non_tensors,
        "meta_info": {
            "temperature": run.attributes["sampling"]["temperature"],
            **({"reward_extra_keys": list(extras)[1:]} if extras else {}),
        },
    }


#: What changes logits, and the value that changes none.
_EDITS = {"repetition_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0, "logit_bias": {}}


def _warn_of_sampling(run: Run, logprob: str) -> None:
    """Warns where responses were not drawn as a trainer takes a batch to have been."""
    sampling = run.attributes["sampling"]
    lines = [prompt.own_sampling for prompt in run.prompts]
    if any(own.get("temperature", sampling["temperature"]) != sampling["temperature"] for own in lines):
        warnings.warn(
            f"{run.path}: lines have temperatures of their own, but verl takes one of a batch",
            stacklevel=3,
        )
    edits = [
        name
        for name, none in _EDITS.items()
        if any(settings.get(name, none) != none for settings in (sampling, *lines))
    ]
    if edits and logprob == "sampling":
        warnings.warn(
            f"{run.path}: sampled with {', '.join(edits)}, of which verl's own log-probabilities know "
            "nothing; logprob='full' gives rollout_log_probs of the same distribution as its own",
            stacklevel=3,
        )


def to_dataproto(
    run: Run,
    prompt_length: Optional[int] = None,
    response_length: Optional[int] = None,
    pad_token_id: int = 0,
    logprob: str = "sampling",
    truncate: bool = False,
    routing: Optional[Scores] = None,
    processor: Any = None,
) -> "DataProto":
    """What to_verl gives, as verl's own class. Raises ImportError without verl."""
    verl = imported("verl", "to_dataproto", "pip install verl")
    batch = to_verl(
        run, prompt_length, response_length, pad_token_id, True, logprob, truncate, routing, processor
    )
    return verl.DataProto.from_dict(**batch)


def to_trl(
    run: Run,
    prompt_length: Optional[int] = None,
    response_length: Optional[int] = None,
    pad_token_id: int = 0,
    as_torch: bool = False,
    logprob: str = "sampling",
    truncate: bool = False,
) -> Dict[str, Any]:
    """The padded arrays of a rollout as TRL's GRPO trainer makes them, one row a response.

    prompt_ids and prompt_mask [B, P] left-padded, completion_ids and completion_mask [B, R]
    right-padded: int64. sampling_per_token_logps [B, R] (0 on padding): float32. rewards [B]:
    float32, only when every response has one. Rows are in (prompt, sample) order, so that the
    generations of a prompt are neighbours, as TRL's groups are. Widths are as for to_verl. Of a run
    with an environment also tool_mask [B, R]: 1 on sampled tokens, 0 on given ones and padding.
    """
    padded = _padded(run, prompt_length, response_length, pad_token_id, logprob, truncate)
    batch = {
        "prompt_ids": padded.prompts,
        "prompt_mask": padded.prompt_mask,
        "completion_ids": padded.responses,
        "completion_mask": padded.response_mask,
        "sampling_per_token_logps": padded.log_probs,
    }
    if run.converses:
        batch["tool_mask"] = padded.response_mask * padded.loss_mask
    if len(run) and not np.isnan(run.reward).any():
        batch["rewards"] = run.reward.astype(np.float32)
    return _as_torch(batch) if as_torch else batch


@dataclasses.dataclass
class _Padded:
    """A run as arrays of one row a response, prompts [B, P] left-padded, the rest [B, R] right."""

    prompts: np.ndarray  #: int64
    prompt_mask: np.ndarray  #: int64, 1 on tokens
    responses: np.ndarray  #: int64
    response_mask: np.ndarray  #: int64, 1 on tokens
    loss_mask: np.ndarray  #: int64, 0 on tokens that were given
    log_probs: np.ndarray  #: float32, 0 on padding


def _padded(
    run: Run,
    prompt_length: Optional[int],
    response_length: Optional[int],
    pad_token_id: int,
    logprob: str,
    truncate: bool,
) -> _Padded:
    column = logprob_column(logprob)
    lengths = run.lengths
    prompt_sizes = np.array([len(prompt.tokens) for prompt in run.prompts], dtype=np.int64)
    used = prompt_sizes[run.prompt_index] if len(run) else np.zeros(0, dtype=np.int64)
    width_p = int(used.max(initial=0)) if prompt_length is None else prompt_length
    width_r = int(lengths.max(initial=0)) if response_length is None else response_length
    if not truncate:
        _check_fits(used, width_p, "prompt", run)
        _check_fits(lengths, width_r, "response", run)
    rows = len(run)
    padded = _Padded(
        prompts=np.full((rows, width_p), pad_token_id, dtype=np.int64),
        prompt_mask=np.zeros((rows, width_p), dtype=np.int64),
        responses=np.full((rows, width_r), pad_token_id, dtype=np.int64),
        response_mask=np.zeros((rows, width_r), dtype=np.int64),
        loss_mask=np.ones((rows, width_r), dtype=np.int64),
        log_probs=np.zeros((rows, width_r), dtype=np.float32),
    )
    for row, response in enumerate(run.responses()):
        prompt = run.prompts[response.prompt_index]
        kept = min(len(prompt.tokens), width_p)
        if kept > 0:
            padded.prompts[row, width_p - kept :] = prompt.tokens[-kept:]
            padded.prompt_mask[row, width_p - kept :] = 1
        count = min(len(response.tokens), width_r)
        padded.responses[row, :count] = response.tokens[:count]
        padded.response_mask[row, :count] = 1
        padded.loss_mask[row, :count] = response.loss_mask[:count]
        padded.log_probs[row, :count] = getattr(response, column)[:count]
    return padded


def _positions(run: Run, attention_mask: np.ndarray, padded: _Padded) -> np.ndarray:
    """[B, 4, P + R]: the place in the text, then the three parts; 1 on padding."""
    merges = {merge_of(prompt) for prompt in run.prompts if prompt.pictures}
    positions = np.ones((len(run), 4, attention_mask.shape[1]), dtype=np.int64)
    for row, index in enumerate(run.prompt_index):
        prompt = run.prompts[index]
        used = int(attention_mask[row].sum())
        begin = padded.prompts.shape[1] - len(prompt.tokens)
        if prompt.pictures and begin < 0:
            raise ReaderError(
                f"{run.path}: prompt {index} has pictures and is longer than prompt_length; such a "
                "prompt is not truncated"
            )
        begin = max(begin, 0)
        positions[row, 0, begin : begin + used] = np.arange(used)
        positions[row, 1:, begin : begin + used] = positions_of(prompt, used, max(merges))
    return positions


def _multi_modal_inputs(run: Run, processor: Any) -> np.ndarray:
    """A dict of each response; those of a prompt's responses share their tensors."""
    pictures = ProcessedPictures(run, processor)
    rows = np.empty(len(run), dtype=object)
    for row, index in enumerate(run.prompt_index):
        rows[row] = dict(pictures.of(run.prompts[index]))
        if rows[row]:
            grids = rows[row]["image_grid_thw"]
            rows[row]["images_seqlens"] = grids[:, 1] * grids[:, 2]
    return rows


def _top(run: Run, width: int) -> Dict[str, np.ndarray]:
    """The most probable tokens of what fits, [B, R, K]."""
    shape = (len(run), width, int(run.attributes["sampling"]["logprobs"]))
    ids, logprobs = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.float32)
    for row, response in enumerate(run.responses()):
        assert response.top_ids is not None and response.top_logprob is not None
        length = min(len(response.tokens), width)
        ids[row, :length] = np.maximum(response.top_ids[:length], 0)
        logprobs[row, :length] = response.top_logprob[:length]
    return {"top_ids": ids, "top_log_probs": logprobs}


def _routed_experts(run: Run, padded: _Padded, routing: Union[Run, Scores]) -> np.ndarray:
    """[B, P + R, layers, k] of what fits."""
    width_p = padded.prompts.shape[1]
    experts: Optional[np.ndarray] = None
    for row, prompt in enumerate(run.prompt_index):
        own = np.maximum(routing.routed_experts(row), 0)
        if experts is None:
            width = width_p + padded.responses.shape[1]
            experts = np.zeros((len(run), width, *own.shape[1:]), dtype=np.int16)
        first = width_p - len(run.prompts[prompt].tokens)  # negative: the beginning is cut off
        own = own[max(-first, 0) :][: experts.shape[1] - max(first, 0)]
        experts[row, max(first, 0) : max(first, 0) + len(own)] = own
    return np.zeros((0, 0, 0, 0), dtype=np.int16) if experts is None else experts


def _check_fits(sizes: np.ndarray, width: int, what: str, run: Run) -> None:
    over = np.flatnonzero(sizes > width)
    if len(over) == 0:
        return
    row = int(over[0])
    prompt = int(run.prompt_index[row])
    raise ReaderError(
        f"{run.path}: {len(over)} of {len(sizes)} {what}s are longer than {what}_length={width}; "
        f"the first is prompt {prompt} (uid {run.prompts[prompt].uid!r}), sample "
        f"{int(run.sample_index[row])}, with {int(sizes[row])} tokens. Give a larger "
        f"{what}_length, or truncate=True"
    )


def _rows(run: Run, of_prompts: Sequence[Any], missing: Any) -> np.ndarray:
    """A value of each prompt for each response: copies, since reward functions write into them."""
    column = np.empty(len(run), dtype=object)
    for row, prompt in enumerate(run.prompt_index):
        value = of_prompts[prompt]
        column[row] = copy.deepcopy(missing if value is None else value)
    return column


def _reward_extras(run: Run, taken: Set[str]) -> Dict[str, np.ndarray]:
    """reward_extra_info, then its entries by their names, but for names that are taken.

    An entry that a response lacks is None.
    """
    infos = [
        {"score": float(score), **extra} if extra else {"acc": float(score)}
        for score, extra in zip(run.reward, run.reward_extra)
    ]
    names = [name for name in dict.fromkeys(n for info in infos for n in info) if name not in taken]
    columns = {"reward_extra_info": infos}
    columns.update({name: [info.get(name) for info in infos] for name in names})
    arrays: Dict[str, np.ndarray] = {}
    for name, values in columns.items():
        numbers = all(isinstance(value, (bool, int, float)) for value in values)
        arrays[name] = np.array(values) if numbers else np.empty(len(values), dtype=object)
        for row, value in enumerate(values if not numbers else []):  # one by one: some are lists
            arrays[name][row] = value
    return arrays


def _as_torch(arrays: Mapping[str, np.ndarray]) -> Dict[str, Any]:
    import torch  # here, not above: the rest of the reader works without it

    return {name: torch.from_numpy(values) for name, values in arrays.items()}
