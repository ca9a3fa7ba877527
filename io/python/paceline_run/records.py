"""What a run consists of: its prompts, and the responses to them."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import os
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from .optional import imported

FINISH_REASONS = {
    0: "stop_id",
    1: "length",
    2: "stop_string",
    3: "context",
    4: "turns",
    5: "failed",
    255: "partial",
}

#: Who gave tokens of a response.
GIVEN_BY = {0: "nobody", 1: "tool", 2: "user", 3: "tokens"}

LOGPROBS = {"sampling": "sampling_logprob", "full": "logprob"}

PathLike = Union[str, "os.PathLike[str]"]


class ReaderError(Exception):
    """The file is not what this module reads, is damaged, or does not fit what was asked of it."""


@dataclasses.dataclass
class Picture:
    """A picture of a prompt, in the order of the prompt's places for pictures."""

    source: str  #: the absolute path of its file, or a data URI where the prompt's line had the bytes
    hash: str  #: of the file: XXH3, 128 bits, 32 hexadecimal digits
    grid: Tuple[int, int, int]  #: a row of image_grid_thw: frames, rows and columns of patches
    first: int  #: place in the prompt's tokens of its first row; the others follow it

    def file(self) -> bytes:
        """The file's bytes. Raises OSError where it is gone.

        Where the package xxhash is there, also ReaderError where the bytes are no longer those that
        the run read.
        """
        if self.source.startswith("data:"):
            data = base64.b64decode(self.source.partition(",")[2])
        else:
            with open(self.source, "rb") as file:
                data = file.read()
        try:
            import xxhash
        except ImportError:
            return data
        if xxhash.xxh3_128_hexdigest(data) != self.hash:
            raise ReaderError(f"{self.source:.200}: the file is another one than when the run began")
        return data

    def image(self) -> Any:
        """The picture as Pillow has it, turned as its metadata say."""
        imported("PIL.Image", "a picture's pixels", "pip install pillow")
        from PIL import Image, ImageOps

        return ImageOps.exif_transpose(Image.open(io.BytesIO(self.file())))


@dataclasses.dataclass
class Prompt:
    """One line of the prompt file."""

    index: int
    uid: str
    tokens: np.ndarray  #: int32 [prompt]
    ground_truth: str
    extra: Dict[str, Any]  #: fields of the line: messages or text, reward_model and so on
    #: What the line had of its own of how responses are sampled, in place of the run's:
    #: max_tokens, temperature and so on.
    own_sampling: Dict[str, Any] = dataclasses.field(default_factory=dict)
    #: In the order of their places; `extra` has their files, as `images`.
    pictures: List[Picture] = dataclasses.field(default_factory=list)
    #: Its number among all prompts of the run: another than `index` where prompts.enough kept some.
    run_index: int = -1

    def __post_init__(self) -> None:
        if self.run_index < 0:
            self.run_index = self.index

    @property
    def source(self) -> Union[str, List[Dict[str, str]], None]:
        """The text or the messages of the line; None when it gave token ids."""
        return self.extra.get("messages", self.extra.get("prompt"))

    @property
    def reward_model(self) -> Optional[Dict[str, Any]]:
        """verl's column, made of the ground truth when the line has that alone."""
        given = self.extra.get("reward_model")
        if given is None and self.ground_truth:
            return {"style": "rule", "ground_truth": self.ground_truth}
        return given


@dataclasses.dataclass
class Turn:
    """A turn of a response that its environment answered: sampled tokens, then given ones.

    It begins where the turn before it ends.
    """

    given: int  #: tokens of the response before the given ones
    end: int  #: tokens of the response up to the last given one
    seconds: float  #: waited for the answer
    reward: Optional[float]  #: of the turn; None when the answer had none
    by: str  #: who gave the tokens: one of GIVEN_BY
    reason: str  #: why the sampled part ended: one of FINISH_REASONS

    @classmethod
    def stored(cls, row: Mapping[str, Any]) -> "Turn":
        """Of what a file holds: its row of numbers."""
        reward = float(row["reward"])
        return cls(
            given=int(row["given"]),
            end=int(row["end"]),
            seconds=float(row["seconds"]),
            reward=None if np.isnan(reward) else reward,
            by=GIVEN_BY[int(row["by"])],
            reason=FINISH_REASONS[int(row["reason"])],
        )


def are_turns(turns: Sequence[Turn], length: int) -> bool:
    """Whether the turns can be those of a response of so many tokens."""
    places = [0] + [place for turn in turns for place in (turn.given, turn.end)] + [length]
    return all(a <= b for a, b in zip(places, places[1:]))


@dataclasses.dataclass
class Response:
    """One response; the arrays have one element a token, the stop token included."""

    prompt_index: int
    sample_index: int
    tokens: np.ndarray  #: int32 [response]
    logprob: np.ndarray  #: float32 [response]
    sampling_logprob: np.ndarray  #: float32 [response]
    finish_reason: str
    reward: Optional[float]  #: None when no reward was computed
    weight_version: int
    #: int32 [sum of kept]: what each token could have been, after top-k / top-p / min-p, ascending,
    #: one token after the other; None unless the run has sampling.keep_masks.
    kept_ids: Optional[np.ndarray] = None
    #: int32 [response + 1]: token t could have been kept_ids[kept_offsets[t] : kept_offsets[t + 1]].
    kept_offsets: Optional[np.ndarray] = None
    #: int32 [response, K]: the most probable tokens in the place of each token, best first, -1 where
    #: it was given; None unless the run has sampling.logprobs.
    top_ids: Optional[np.ndarray] = None
    #: float32 [response, K]: their log-probabilities at temperature 1, over the full vocabulary.
    top_logprob: Optional[np.ndarray] = None
    #: What the reward function returned beside it: the other entries of its dict.
    reward_extra: Dict[str, Any] = dataclasses.field(default_factory=dict)
    #: The turns that an environment answered; none in runs without one.
    turns: List[Turn] = dataclasses.field(default_factory=list)
    #: (tokens up to here, version of the weights that sampled them), in order; none where they are
    #: all of weight_version.
    version_spans: List[Tuple[int, int]] = dataclasses.field(default_factory=list)

    @classmethod
    def stored(
        cls,
        row: Mapping[str, Any],
        columns: Sequence[np.ndarray],
        reward: Optional[float] = None,
        kept: Optional[Tuple[np.ndarray, np.ndarray]] = None,
        reward_extra: str = "",
        turns: Sequence[Turn] = (),
        top: Optional[Tuple[np.ndarray, np.ndarray]] = None,
    ) -> "Response":
        """Of what a file holds: its row of numbers, its parts of TOKEN_COLUMNS, and its reward.

        `kept`, `top`: as KeptColumns.read() and TopColumns.read() give them. `reward_extra` is JSON,
        or empty.
        """
        tokens, logprob, sampling_logprob = columns
        return cls(
            prompt_index=int(row["prompt_index"]),
            sample_index=int(row["sample_index"]),
            tokens=tokens,
            logprob=logprob,
            sampling_logprob=sampling_logprob,
            finish_reason=FINISH_REASONS[int(row["finish_reason"])],
            reward=reward,
            weight_version=int(row["weight_version"]),
            kept_ids=None if kept is None else kept[0],
            kept_offsets=None if kept is None else kept[1].astype(np.int32),
            top_ids=None if top is None else top[0],
            top_logprob=None if top is None else top[1],
            reward_extra=json.loads(reward_extra) if reward_extra else {},
            turns=list(turns),
        )

    @property
    def weight_versions(self) -> np.ndarray:
        """uint64 [response]: the version of the weights that sampled each token."""
        versions = np.full(len(self.tokens), self.weight_version, dtype=np.uint64)
        begin = 0
        for end, version in self.version_spans:
            versions[begin:end] = version
            begin = end
        return versions

    @property
    def loss_mask(self) -> np.ndarray:
        """uint8 [response]: 1 of a sampled token, 0 of a given one."""
        mask = np.ones(len(self.tokens), dtype=np.uint8)
        for turn in self.turns:
            mask[turn.given : turn.end] = 0
        return mask

    @property
    def num_turns(self) -> int:
        """Parts of the conversation as verl counts them: the prompt, sampled parts, given parts."""
        given = sum(turn.end > turn.given for turn in self.turns)
        last = self.turns[-1].end if self.turns else 0
        return 1 + len(self.turns) + given + (len(self.tokens) > last)

    @property
    def finished(self) -> bool:
        return self.finish_reason != "partial"


def logprob_column(which: str) -> str:
    if which not in LOGPROBS:
        raise ValueError(f"logprob is {which!r}, expected one of {sorted(LOGPROBS)}")
    return LOGPROBS[which]
