"""What identifies a run, and its prompts, as files of complete and of live runs hold them."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import h5py
import numpy as np

from .columns import are_offsets, column_of, strings_of
from .pictures import pictures_of
from .records import Picture, Prompt, ReaderError, Turn

SCHEMA_VERSION = 3  #: of trajectories.h5 and of run.json
MOST_PROMPTS = 1 << 28  #: of a run
#: The columns of /trajectories, and the datasets of a shard, that have an element a token.
TOKEN_COLUMNS = ("tokens", "logprob", "sampling_logprob")


class KeptColumns:
    """What tokens could have been, of a run with sampling.keep_masks: see Response.kept_ids."""

    def __init__(self, group: Mapping[str, h5py.Dataset]) -> None:
        self.ids, self.offsets = (column_of(group, name) for name in ("kept_ids", "kept_offsets"))

    @classmethod
    def of(
        cls, group: Mapping[str, h5py.Dataset], manifest: Mapping[str, Any]
    ) -> Optional["KeptColumns"]:
        """None where the run keeps no masks."""
        return cls(group) if manifest["sampling"].get("keep_masks") else None

    def read(self, begin: int, end: int) -> Tuple[np.ndarray, np.ndarray]:
        """Of tokens [begin, end): ids, and where each token's begin in them, from 0 on."""
        offsets = self.offsets[begin : end + 1]
        if len(offsets) != end - begin + 1 or np.any(np.diff(offsets) < 0) or offsets[0] < 0:
            raise ReaderError("kept_offsets are damaged")
        ids = self.ids[offsets[0] : offsets[-1]]
        if len(ids) != offsets[-1] - offsets[0]:
            raise ReaderError("kept_ids are damaged")
        return ids, offsets - offsets[0]


class TopColumns:
    """The most probable tokens, of a run with sampling.logprobs: see Response.top_ids."""

    def __init__(self, group: Mapping[str, h5py.Dataset], width: int) -> None:
        names = ("top_ids", "top_logprob")
        self._columns = [column_of(group, name, compressed=True) for name in names]
        self._width = width

    @classmethod
    def of(
        cls, group: Mapping[str, h5py.Dataset], manifest: Mapping[str, Any]
    ) -> Optional["TopColumns"]:
        """None where the run records none."""
        width = int(manifest["sampling"].get("logprobs", 0))
        return cls(group, width) if width > 0 else None

    def read(self, begin: int, end: int) -> Tuple[np.ndarray, np.ndarray]:
        """Of tokens [begin, end): ids and log-probabilities, [tokens, width]."""
        size = (end - begin) * self._width
        ids, logprobs = (c[begin * self._width : end * self._width] for c in self._columns)
        if len(ids) != size or len(logprobs) != size:
            raise ReaderError("top_ids are damaged")
        return ids.reshape(-1, self._width), logprobs.reshape(-1, self._width)


class VersionColumns:
    """Which weights sampled which tokens, of a run that went on with others' responses."""

    def __init__(self, group: Mapping[str, h5py.Dataset], lengths: np.ndarray) -> None:
        self._offsets = column_of(group, "version_offsets")[:]
        self._ends = column_of(group, "span_end")[:]
        self._versions = column_of(group, "span_version")[:]
        sound = (
            are_offsets(self._offsets, len(lengths))
            and self._offsets[-1] == len(self._ends) == len(self._versions)
            and bool(np.all(np.diff(self._offsets) > 0))
            and np.array_equal(self._ends[self._offsets[1:] - 1], lengths)
            and all(
                bool(np.all(np.diff(self._ends[a:b]) > 0))
                for a, b in zip(self._offsets[:-1], self._offsets[1:])
                if b > a + 1
            )
        )
        if not sound:
            raise ReaderError("the versions of tokens are damaged")

    @classmethod
    def of(
        cls, group: Mapping[str, h5py.Dataset], lengths: np.ndarray
    ) -> Optional["VersionColumns"]:
        """None where all tokens of the run are of its own weights."""
        return cls(group, lengths) if "version_offsets" in group else None

    def read(self, index: int) -> List[Tuple[int, int]]:
        part = slice(int(self._offsets[index]), int(self._offsets[index + 1]))
        return list(zip(self._ends[part].tolist(), self._versions[part].tolist()))


class TurnColumns:
    """The turns of responses, of a run with an environment: see Response.turns."""

    #: Of /trajectories, beside turn_offsets.
    NAMES = ("given", "end", "seconds", "reward", "by", "reason")

    def __init__(self, group: Mapping[str, h5py.Dataset], responses: int) -> None:
        self._offsets = column_of(group, "turn_offsets")[:]
        columns = {name: column_of(group, f"turn_{name}")[:] for name in self.NAMES}
        count = len(columns["given"])
        sound = (
            are_offsets(self._offsets, responses)
            and self._offsets[-1] == count
            and all(len(column) == count for column in columns.values())
        )
        if not sound:
            raise ReaderError("the turns of responses are damaged")
        self._columns = columns

    @classmethod
    def of(
        cls, group: Mapping[str, h5py.Dataset], manifest: Mapping[str, Any], responses: int
    ) -> Optional["TurnColumns"]:
        """None where responses are of one turn."""
        return cls(group, responses) if manifest["sampling"].get("environment") else None

    def read(self, response: int) -> List[Turn]:
        rows = range(int(self._offsets[response]), int(self._offsets[response + 1]))
        return [Turn.stored({name: self._columns[name][row] for name in self.NAMES}) for row in rows]


def kept_of(
    kept: Tuple[np.ndarray, np.ndarray], begin: int, end: int
) -> Tuple[np.ndarray, np.ndarray]:
    """The part of tokens [begin, end) of what KeptColumns.read() gave."""
    ids, offsets = kept
    return ids[offsets[begin] : offsets[end]], (offsets[begin : end + 1] - offsets[begin])


def checked_manifest(about: Dict[str, Any]) -> Dict[str, Any]:
    """What identifies a run, when what the reader takes from it is there."""
    numbers = ("prompts", "samples", "seed", "vocabulary", "weight_version")
    texts = ("program_version", "model_fingerprint", "backend", "isa", "dtype")
    for kind, names in ((int, numbers), (str, texts), (dict, ("sampling",))):
        for name in names:
            if not isinstance(about.get(name), kind):
                raise ReaderError(f"{name} is {about.get(name)!r}, expected {kind.__name__}")
    for name in ("max_tokens", "temperature"):
        if not isinstance(about["sampling"].get(name), (int, float)):
            raise ReaderError(
                f"sampling.{name} is {about['sampling'].get(name)!r}, expected a number"
            )
    samples_of(about)
    return about


def longest_response(manifest: Mapping[str, Any]) -> int:
    """Tokens: some lines of the prompts may have a max_tokens of their own."""
    sampling = manifest["sampling"]
    return max(sampling["max_tokens"], sampling.get("longest_response", 0))


def samples_of(manifest: Mapping[str, Any]) -> np.ndarray:
    """int64 [prompts]: responses to each, of which lines may have their own number."""
    runs = manifest["sampling"].get("samples", [[manifest["samples"], manifest["prompts"]]])
    if not 0 <= manifest["prompts"] <= MOST_PROMPTS:
        raise ReaderError(f"prompts is {manifest['prompts']}, more than a run can have")
    try:
        counts = np.asarray(runs, dtype=np.int64).reshape(-1, 2)
        if np.any(counts < 0) or np.any(counts[:, 0] > manifest["samples"]):
            raise ValueError(f"expected up to {manifest['samples']}, found {runs!r:.80}")
        if sum(counts[:, 1].tolist()) != manifest["prompts"]:
            raise ValueError("they are of other prompts")
        return np.repeat(counts[:, 0], counts[:, 1])
    except (ValueError, TypeError, OverflowError, MemoryError) as error:
        raise ReaderError(f"the samples of prompts are damaged: {error}") from error


def attributes_of(file: h5py.File, path: str) -> Dict[str, Any]:
    attributes: Dict[str, Any] = {}
    for name, value in file.attrs.items():
        value = value.item() if isinstance(value, np.generic) else value
        attributes[name] = value.decode() if isinstance(value, bytes) else value
    version = attributes.get("schema_version")
    if version is None:
        raise ReaderError(f"{path}: not a trajectory file: it has no schema version")
    if version != SCHEMA_VERSION:
        raise ReaderError(f"{path}: schema version {version}, expected {SCHEMA_VERSION}")
    attributes["sampling"] = json.loads(attributes["sampling"])
    return checked_manifest(attributes)


def read_prompts(
    group: Mapping[str, h5py.Dataset], manifest: Mapping[str, Any]
) -> List[Prompt]:
    by_line = manifest["sampling"].get("by_line", ())
    tokens = column_of(group, "tokens")[:]
    offsets = column_of(group, "offsets")[:]
    strings = [strings_of(group, name) for name in ("uid", "ground_truth", "extra")]
    count = len(strings[0])
    if not are_offsets(offsets, count) or any(len(values) != count for values in strings):
        raise ReaderError("the columns of /prompts are damaged")
    fields = [json.loads(extra) if extra else {} for extra in strings[2]]
    pictures = read_pictures(group, fields)
    numbers = column_of(group, "index")[:] if "index" in group else np.arange(count)
    if len(numbers) != count or (count > 0 and (numbers[0] < 0 or np.any(np.diff(numbers) <= 0))):
        raise ReaderError("the numbers of /prompts are damaged")
    return [
        Prompt(
            index=index,
            uid=uid,
            tokens=tokens[offsets[index] : offsets[index + 1]],
            ground_truth=truth,
            extra=extra,
            own_sampling={k: extra[k] for k in by_line if extra.get(k) is not None},
            pictures=pictures[index],
            run_index=int(numbers[index]),
        )
        for index, (uid, truth, extra) in enumerate(zip(strings[0], strings[1], fields))
    ]


def read_pictures(
    group: Mapping[str, h5py.Dataset], fields: Sequence[Mapping[str, Any]]
) -> List[List[Picture]]:
    """The pictures of each prompt. `fields`: those of its line."""
    if "picture_offsets" not in group:
        return [[] for _ in fields]
    offsets = column_of(group, "picture_offsets")[:]
    first = column_of(group, "picture_first")[:]
    hashes = column_of(group, "picture_hash")[:].reshape(-1, 2)
    grids = column_of(group, "picture_grid")[:].reshape(-1, 3)
    counts = {len(first), len(hashes), len(grids)}
    if not are_offsets(offsets, len(fields)) or counts != {int(offsets[-1])}:
        raise ReaderError("the pictures of /prompts are damaged")
    return [
        pictures_of(extra.get("images") or [], hashes[a:b], grids[a:b], first[a:b]) if b > a else []
        for extra, a, b in zip(fields, offsets[:-1], offsets[1:])
    ]


def are_tokens(tokens: np.ndarray, manifest: Mapping[str, Any]) -> bool:
    return len(tokens) == 0 or (tokens.min() >= 0 and tokens.max() < manifest["vocabulary"])
