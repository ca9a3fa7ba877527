"""A complete run: its trajectories.h5."""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any, Dict, Iterator, List, Optional, Tuple, Union, overload

import numpy as np

from .batches import to_dataproto, to_trl, to_verl
from .columns import are_offsets, column_of, guarded, opened, strings_of
from .manifest import (
    TOKEN_COLUMNS,
    KeptColumns,
    TopColumns,
    TurnColumns,
    VersionColumns,
    are_tokens,
    attributes_of,
    longest_response,
    read_prompts,
    samples_of,
)
from .records import FINISH_REASONS, PathLike, Prompt, ReaderError, Response, are_turns
from .routing import Routing
from .scores import scores_under
from .slime import iter_slime, to_slime
from .text import Decoder, decoder, text
from .trl_rollout import to_trl_rollout


def open_run(path: PathLike) -> "Run":
    """Opens a complete run: its directory or its trajectories.h5.

    Raises FileNotFoundError when there is no final file (a run in progress: see iter_live), and
    ReaderError when the file is of another kind or version or is seen to be damaged, now or when a
    response is read. Checksums are not verified: `paceline digest` does that.
    """
    name = os.fspath(path)
    if os.path.isdir(name):
        name = os.path.join(name, "trajectories.h5")
    if not os.path.exists(name):
        hint = ""
        if os.path.isdir(os.path.join(os.path.dirname(name), "shards")):
            hint = " (the run is not complete: iter_live() reads what is there)"
        raise FileNotFoundError(f"{name} does not exist{hint}")
    return Run(name)


class Run:
    """A complete run. Indexing gives responses in (prompt, sample) order, slices give lists of them;
    a context manager."""

    to_verl = to_verl
    to_dataproto = to_dataproto
    to_trl = to_trl
    to_trl_rollout = to_trl_rollout
    iter_slime = iter_slime
    to_slime = to_slime
    text = text
    decoder = decoder
    scores_under = scores_under

    def __init__(self, path: str) -> None:
        self.path = path
        #: Those that `decoder` has read, by their directories.
        self.decoders: Dict[str, Decoder] = {}
        self._file = opened(path, "not a trajectory file")
        try:
            with guarded(path, "not a trajectory file"):
                self.attributes = attributes_of(self._file, path)
                group = self._file["trajectories"]
                self._offsets: np.ndarray = column_of(group, "offsets")[:]
                #: One element a response.
                self.prompt_index: np.ndarray = column_of(group, "prompt_index")[:]
                self.sample_index: np.ndarray = column_of(group, "sample_index")[:]
                self.finish_reason: np.ndarray = column_of(group, "finish_reason")[:]
                self.reward: np.ndarray = column_of(group, "reward")[:]
                self.weight_version: np.ndarray = column_of(group, "weight_version")[:]
                #: uint64: equal for responses that are equal to the bit.
                self.checksums: np.ndarray = column_of(group, "checksum")[:]
                #: JSON of each, empty where nothing was said beside its reward; none where nowhere.
                self._extras = strings_of(group, "reward_extra") if "reward_extra" in group else []
                self._columns = [column_of(group, name) for name in TOKEN_COLUMNS]
                self._kept = KeptColumns.of(group, self.attributes)
                self._top = TopColumns.of(group, self.attributes)
                self._turns = TurnColumns.of(group, self.attributes, len(self.prompt_index))
                self._spans = VersionColumns.of(group, self.lengths)
                self.prompts: List[Prompt] = read_prompts(self._file["prompts"], self.attributes)
                self._check()
                self._routing = Routing.of_file(self._file, "trajectories", self, stays_open=True)
        except BaseException:
            self._file.close()
            raise

    def _check(self) -> None:
        """Raises ReaderError unless the columns are those of a complete run."""
        whole = len(self.prompts) == self.attributes["prompts"]
        samples = samples_of(self.attributes) if whole else np.zeros(0, dtype=np.int64)
        count = int(samples.sum())
        columns = (
            self.sample_index,
            self.finish_reason,
            self.reward,
            self.weight_version,
            self.checksums,
        )
        sound = (
            whole
            and all(len(column) == count for column in (self.prompt_index, *columns))
            and np.array_equal(self.prompt_index, np.repeat(np.arange(len(samples)), samples))
            and np.array_equal(
                self.sample_index, np.arange(count) - np.repeat(np.cumsum(samples) - samples, samples)
            )
            and are_offsets(self._offsets, count)
            and len(self._extras) in (0, count)
            and all(len(column) == self._offsets[-1] for column in self._columns)
            and (self._kept is None or len(self._kept.offsets) == self._offsets[-1] + 1)
            and bool(np.all(self.lengths <= longest_response(self.attributes)))
            and set(np.unique(self.finish_reason).tolist()) <= set(FINISH_REASONS)
            and bool(np.all(self.weight_version == self.attributes["weight_version"]))
        )
        if not sound:
            raise ReaderError(f"{self.path}: the columns of /trajectories are damaged")

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self.prompt_index)

    @property
    def key(self) -> str:
        """12 hexadecimal digits of what identifies the run and of where it lies.

        No other run and no other step of a training has the same.
        """
        about = json.dumps([os.path.realpath(self.path), self.attributes], sort_keys=True)
        return hashlib.blake2b(about.encode(), digest_size=6).hexdigest()

    @property
    def group_uids(self) -> List[str]:
        """One for each prompt, the same for none of another run: by it trainers group responses.

        Prompt.uid is that of the prompt wherever it is asked, so that runs have it in common.
        """
        key = self.key
        return [f"{prompt.uid}@{key}" for prompt in self.prompts]

    @property
    def converses(self) -> bool:
        """Whether responses are conversations with an environment."""
        return self._turns is not None

    @property
    def lengths(self) -> np.ndarray:
        """int64 [responses]: tokens of each response."""
        return np.diff(self._offsets)

    @property
    def reward_extra(self) -> List[Dict[str, Any]]:
        """What reward functions returned beside each response's reward."""
        extras = self._extras or [""] * len(self)
        return [json.loads(extra) if extra else {} for extra in extras]

    @property
    def keeps_routing(self) -> bool:
        """Whether the run recorded experts (sampling.keep_routing)."""
        return self._routing is not None

    def routed_experts(self, index: int) -> np.ndarray:
        """int16 [prompt + response - 1, layers, k]: the experts that tokens of a response use.

        Ascending, by the model's own numbers of layers; -1 in layers without experts. The last token
        has none, for nothing follows it. Raises ReaderError unless the run has sampling.keep_routing.
        """
        if self._routing is None:
            raise ReaderError(f"{self.path}: no experts were recorded: set sampling.keep_routing")
        with guarded(self.path, "its experts cannot be read"):
            return self._routing.of(index)

    @overload
    def __getitem__(self, index: int) -> Response: ...

    @overload
    def __getitem__(self, index: slice) -> List[Response]: ...

    def __getitem__(self, index: Union[int, slice]) -> Union[Response, List[Response]]:
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(f"response {index} of {len(self)}")
        begin, end = int(self._offsets[index]), int(self._offsets[index + 1])
        return self._response(index, self._read(begin, end))

    def __iter__(self) -> Iterator[Response]:
        return self.responses()

    def responses(self, block_tokens: int = 1 << 22) -> Iterator[Response]:
        """All responses in order, read in blocks of about `block_tokens` tokens."""
        first = 0
        while first < len(self):
            limit = int(self._offsets[first]) + block_tokens
            last = max(first + 1, int(np.searchsorted(self._offsets, limit, side="right")) - 1)
            base = int(self._offsets[first])
            end = int(self._offsets[last])
            columns = self._read(base, end)
            for index in range(first, last):
                part = slice(int(self._offsets[index]) - base, int(self._offsets[index + 1]) - base)
                yield self._response(index, [column[part] for column in columns])
            first = last

    def _read(self, begin: int, end: int) -> List[np.ndarray]:
        with guarded(self.path, "its tokens cannot be read"):
            columns = [column[begin:end] for column in self._columns]
        if not are_tokens(columns[0], self.attributes):
            raise ReaderError(f"{self.path}: tokens {begin} to {end} are damaged")
        return columns

    def _read_kept(self, begin: int, end: int) -> Optional[Tuple[np.ndarray, np.ndarray]]:
        if self._kept is None:
            return None
        with guarded(self.path, "its kept ids cannot be read"):
            kept = self._kept.read(begin, end)
        if not are_tokens(kept[0], self.attributes):
            raise ReaderError(f"{self.path}: kept ids of tokens {begin} to {end} are damaged")
        return kept

    def _read_top(self, begin: int, end: int) -> Optional[Tuple[np.ndarray, np.ndarray]]:
        if self._top is None:
            return None
        with guarded(self.path, "its most probable tokens cannot be read"):
            return self._top.read(begin, end)

    def _response(self, index: int, columns: List[np.ndarray]) -> Response:
        # Of a response alone: each token has many.
        place = int(self._offsets[index]), int(self._offsets[index + 1])
        kept, top = self._read_kept(*place), self._read_top(*place)
        row = {
            "prompt_index": self.prompt_index[index],
            "sample_index": self.sample_index[index],
            "finish_reason": self.finish_reason[index],
            "weight_version": self.weight_version[index],
        }
        reward = float(self.reward[index])
        extra = self._extras[index] if self._extras else ""
        turns = [] if self._turns is None else self._turns.read(index)
        if not are_turns(turns, len(columns[0])):
            raise ReaderError(f"{self.path}: the turns of response {index} are damaged")
        response = Response.stored(
            row, columns, None if np.isnan(reward) else reward, kept, extra, turns, top
        )
        response.version_spans = [] if self._spans is None else self._spans.read(index)
        return response
