"""A run as what TRL's rollout_func returns. to_trl_rollout is a method of Run."""

from __future__ import annotations

import collections
import json
from typing import TYPE_CHECKING, Any, Deque, Dict, List, Mapping, Optional, Sequence, Union

from .records import ReaderError, logprob_column

if TYPE_CHECKING:
    from .complete import Run

#: What TRL hands to a rollout_func: text or messages.
TrlPrompt = Union[str, Sequence[Mapping[str, Any]]]


def to_trl_rollout(
    run: Run, prompts: Optional[Sequence[TrlPrompt]] = None, logprob: str = "sampling"
) -> Dict[str, List[Any]]:
    """What a rollout_func of TRL's GRPOTrainer returns: lists of one element a response.

    prompt_ids and completion_ids, lists of token ids; logprobs, a list of floats a completion; of a
    run with an environment env_mask, a list of 1 of a sampled token and 0 of a given one. TRL
    hands the others to reward functions, by their names: uid (Run.group_uids), finish_reason, and
    reward where every response of the run has one, with reward_extra, a dict each, where something
    was said beside one.

    `prompts` are those that TRL passed (1.16: as the data set has them, each as often as it wants
    responses to it). The first time a prompt gets sample 0, and so on. Raises ReaderError where the
    run has none left. Where several processes share the responses to a prompt, give what all were
    passed, gathered, and take each process's part of the lists. Without `prompts` all responses
    come in (prompt, sample) order.
    """
    return trl_lists(run, range(len(run)) if prompts is None else _rows_of(run, prompts), logprob)


def trl_lists(run: Run, rows: Sequence[int], logprob: str) -> Dict[str, List[Any]]:
    """The lists that TRL wants, of these responses."""
    column = logprob_column(logprob)
    responses = list(run.responses())
    uids = run.group_uids
    batch: Dict[str, List[Any]] = {
        "prompt_ids": [],
        "completion_ids": [],
        "logprobs": [],
        "uid": [],
        "finish_reason": [],
        **({"env_mask": []} if run.converses else {}),
    }
    for row in rows:
        response = responses[row]
        prompt = run.prompts[response.prompt_index]
        batch["prompt_ids"].append(prompt.tokens.tolist())
        batch["completion_ids"].append(response.tokens.tolist())
        batch["logprobs"].append(getattr(response, column).tolist())
        batch["uid"].append(uids[response.prompt_index])
        batch["finish_reason"].append(response.finish_reason)
        if run.converses:
            batch["env_mask"].append(response.loss_mask.tolist())
    if all(response.reward is not None for response in responses):
        batch["reward"] = [responses[row].reward for row in rows]
        if any(response.reward_extra for response in responses):
            batch["reward_extra"] = [responses[row].reward_extra for row in rows]
    return batch


def _rows_of(run: Run, prompts: Sequence[TrlPrompt]) -> List[int]:
    """The response that each of `prompts` gets: those to a prompt in the order of the run."""
    left: Dict[str, Deque[int]] = collections.defaultdict(collections.deque)
    for row, index in enumerate(run.prompt_index):
        source = run.prompts[index].source
        if source is not None:
            left[trl_key(source)].append(row)
    if len(run) and not left:
        raise ReaderError(
            f"{run.path}: its prompts were given as token ids, so that TRL's cannot be found among "
            f"them; without prompts= all responses come in (prompt, sample) order"
        )
    rows = []
    for number, prompt in enumerate(prompts):
        key = trl_key(prompt)
        if key not in left:
            raise ReaderError(f"{run.path}: prompts[{number}] is none of the run's: {key:.200}")
        if not left[key]:
            raise ReaderError(
                f"{run.path}: prompts[{number}] wants one response more than the run has "
                f"to it: {key:.200}"
            )
        rows.append(left[key].popleft())
    return rows


def trl_key(prompt: TrlPrompt) -> str:
    """The same for prompts that are the same to the model: datasets adds keys that are None."""
    if isinstance(prompt, str):
        return json.dumps(prompt, ensure_ascii=False)
    messages = [[message.get("role"), message.get("content")] for message in prompt]
    return json.dumps(messages, ensure_ascii=False)
