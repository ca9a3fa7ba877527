"""A run as ragged samples, as slime trains on them. iter_slime is a method of Run."""

from __future__ import annotations

import copy
import dataclasses
import os
import re
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Union

from .records import PathLike, ReaderError, logprob_column
from .text import Decoder

if TYPE_CHECKING:
    from .complete import Run

#: slime's Sample.Status for each finish reason. A response cut by a limit is truncated.
SLIME_STATUS = {
    "stop_id": "completed",
    "stop_string": "completed",
    "length": "truncated",
    "context": "truncated",
    "partial": "aborted",
}


@dataclasses.dataclass
class SlimeSample:
    """The fields of slime's `Sample` that a rollout fills, by the same names."""

    group_index: int
    index: int
    prompt: Union[str, List[Dict[str, str]]]  #: messages where the line had them, or else text
    tokens: List[int]  #: prompt, then response
    response: str  #: the response's text, special tokens included, as slime has it
    response_length: int
    loss_mask: List[int]  #: of the response
    rollout_log_probs: List[float]  #: of the response
    reward: Optional[float]
    label: Optional[str]  #: the ground truth
    status: str
    weight_versions: List[str]
    metadata: Dict[str, Any]

    def to_dict(self) -> Dict[str, Any]:
        """As slime's Sample.to_dict gives it."""
        return dataclasses.asdict(self)


def iter_slime(
    run: Run, logprob: str = "sampling", tokenizer: Optional[PathLike] = None
) -> Iterator[SlimeSample]:
    """Ragged samples with slime's fields; `index` counts responses, `group_index` prompts.

    Text is decoded by the tokenizer.json of the run's model, or of the directory `tokenizer`.
    """
    column = logprob_column(logprob)
    decode = Decoder(_model_directory(run) if tokenizer is None else os.fspath(tokenizer))
    for index, response in enumerate(run.responses()):
        prompt = run.prompts[response.prompt_index]
        source = prompt.source
        fields = {k: v for k, v in prompt.extra.items() if k not in ("prompt", "messages")}
        yield SlimeSample(
            group_index=response.prompt_index,
            index=index,
            prompt=decode(prompt.tokens) if source is None else copy.deepcopy(source),
            tokens=prompt.tokens.tolist() + response.tokens.tolist(),
            response=decode(response.tokens),
            response_length=len(response.tokens),
            loss_mask=[1] * len(response.tokens),
            rollout_log_probs=getattr(response, column).tolist(),
            reward=response.reward,
            label=prompt.ground_truth or None,
            status=SLIME_STATUS[response.finish_reason],
            weight_versions=[str(response.weight_version)],
            metadata={
                "uid": prompt.uid,
                "finish_reason": response.finish_reason,
                **copy.deepcopy(fields),
            },
        )


def _model_directory(run: Run) -> str:
    """model.path of the configuration in the run's file, which the program wrote line by line."""
    config = str(run.attributes.get("config_text", ""))
    match = re.search(r'^model:\n  path: "(.*)"$', config, re.MULTILINE)
    if match is None:
        raise ReaderError(
            f"{run.path}: its config_text names no model.path; give tokenizer=DIRECTORY"
        )
    escape = {"n": "\n", '"': '"', "\\": "\\"}
    return re.sub(
        r"\\(?:x(..)|(.))", lambda m: chr(int(m[1], 16)) if m[1] else escape[m[2]], match[1]
    )
