"""A run in progress, or one that was killed: its shards."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

import h5py
import numpy as np

from .columns import H5_ERRORS, column_of, guarded, opened, patient_access
from .complete import open_run
from .manifest import (
    SCHEMA_VERSION,
    TOKEN_COLUMNS,
    KeptColumns,
    TopColumns,
    are_tokens,
    checked_manifest,
    longest_response,
    read_prompts,
    samples_of,
)
from .records import (
    FINISH_REASONS,
    GIVEN_BY,
    PathLike,
    Prompt,
    ReaderError,
    Response,
    Turn,
    are_turns,
)

ROWS_AT_ONCE = 1024  #: of a shard's index


def iter_live(directory: PathLike, partial: bool = False) -> Iterator[Response]:
    """The responses that a run in progress, or one that was killed, has flushed so far.

    In no particular order, each (prompt, sample) once; with `partial`, also the longest piece of
    those that are not finished. Call it again later for what came since. A shard that cannot be
    read at this moment is passed over, and so is what cannot be a response of this run. Checksums
    are not verified (a resumed run does that). Of a complete run, all responses.

    While a run goes on `prompt_index` is the prompt's number in the run (live_prompts), also of what
    is given by an iteration during which it ends; of a complete run, its number in the file. They
    differ where prompts.enough kept some (Prompt.run_index).
    """
    name = os.fspath(directory)
    if os.path.exists(os.path.join(name, "trajectories.h5")):
        with open_run(name) as run:
            yield from run.responses()
        return
    if not os.path.isdir(os.path.join(name, "shards")):
        raise FileNotFoundError(f"{name} holds no run")
    try:
        manifest, shards = live_manifest(name), _shards(name)
    except FileNotFoundError:
        if not os.path.exists(os.path.join(name, "trajectories.h5")):
            raise
        yield from iter_live(name)  # it has ended meanwhile
        return
    seen = set()
    rewards: Dict[Tuple[int, int], Tuple[float, str]] = {}
    # Per id: the longest partial response and the shard and row that hold it.
    longest: Dict[Tuple[int, int], Tuple[int, str, int]] = {}
    for path in shards:
        for row, response in _shard_responses(path, manifest, rewards):
            key = (response.prompt_index, response.sample_index)
            if response.finished and key not in seen:
                seen.add(key)
                yield response
            elif not response.finished and len(response.tokens) >= longest.get(key, (0,))[0]:
                longest[key] = (len(response.tokens), path, row)
    if os.path.exists(os.path.join(name, "trajectories.h5")):
        # The run ended meanwhile, and its shards may have gone before they were read.
        with open_run(name) as run:
            for response in run.responses():
                number = run.prompts[response.prompt_index].run_index
                if (number, response.sample_index) not in seen:
                    yield dataclasses.replace(response, prompt_index=number)
        return
    if not partial:
        return
    for key, (_, path, row) in longest.items():
        if key not in seen:
            for _, response in _shard_responses(path, manifest, {}, row, row + 1):
                yield response


def live_prompts(directory: PathLike) -> List[Prompt]:
    """The prompts of a run in progress."""
    manifest = live_manifest(directory)
    path = os.path.join(os.fspath(directory), "shards", "prompts.h5")
    with opened(path, "not a file of prompts") as file, guarded(path, "not a file of prompts"):
        return read_prompts(file["prompts"], manifest)


def live_manifest(directory: PathLike) -> Dict[str, Any]:
    """What identifies a run, from its run.json."""
    path = os.path.join(os.fspath(directory), "run.json")
    with open(path, encoding="utf-8") as file, guarded(path, "not the manifest of a run"):
        manifest = json.load(file)
        if manifest["schema_version"] != SCHEMA_VERSION:
            raise ReaderError(
                f"{path}: schema version {manifest['schema_version']}, expected {SCHEMA_VERSION}"
            )
        return checked_manifest(manifest)


def _shards(directory: str) -> List[str]:
    """Trajectory shards by (attempt, rank), the latest attempt first: it repairs earlier ones."""
    folder = os.path.join(directory, "shards")
    found = []
    for name in os.listdir(folder):
        match = re.fullmatch(r"trajectories-(\d+)-(\d+)\.h5", name)
        if match:
            found.append((-int(match[1]), int(match[2]), os.path.join(folder, name)))
    return [path for _, _, path in sorted(found)]


def _shard_responses(
    path: str,
    manifest: Mapping[str, Any],
    rewards: Dict[Tuple[int, int], Tuple[float, str]],
    first: int = 0,
    last: Optional[int] = None,
) -> Iterator[Tuple[int, Response]]:
    """Rows [first, last) of a shard that a writer may be appending to.

    Adds the shard's rewards to `rewards`, which has those of later attempts already.
    """
    access = patient_access()
    flags = h5py.h5f.ACC_RDONLY | h5py.h5f.ACC_SWMR_READ
    try:
        file = h5py.File(h5py.h5f.open(os.fsencode(path), flags, fapl=access))
    except H5_ERRORS:
        return
    with file:
        try:
            # The index first: what it names is in the other datasets, which are flushed before it.
            index = column_of(file, "index")
            count = len(index) if last is None else min(last, len(index))
            columns = [column_of(file, name) for name in TOKEN_COLUMNS]
            kept_columns = KeptColumns.of(file, manifest)
            top_columns = TopColumns.of(file, manifest)
            turns = _turns_of(file)
            scored = column_of(file, "rewards")[:]
            said = column_of(file, "reward_extra")[:].tobytes() if "reward_extra" in file else b""
            for row in scored:
                if int(row["checksum"]) != 0:  # else a hole in the file
                    key = (int(row["prompt_index"]), int(row["sample_index"]))
                    rewards.setdefault(key, (float(row["reward"]), _extra_of(row, said)))
        except (ReaderError, *H5_ERRORS):
            return
        samples = samples_of(manifest)
        for number, row in _rows(index, first, count):
            try:
                if not _is_possible(row, manifest, samples):
                    continue
                begin = int(row["offset"])
                end = begin + int(row["length"])
                if any(end > len(column) for column in columns):
                    continue
                parts = [column[begin:end] for column in columns]
                kept = None if kept_columns is None else kept_columns.read(begin, end)
                top = None if top_columns is None else top_columns.read(begin, end)
            except (ReaderError, *H5_ERRORS):
                continue
            if are_tokens(parts[0], manifest):
                key = (int(row["prompt_index"]), int(row["sample_index"]))
                reward, extra = rewards.get(key, (None, ""))
                own = turns.get(begin, []) if end > begin else []
                if are_turns(own, end - begin):
                    yield number, Response.stored(row, parts, reward, kept, extra, own, top)


def _turns_of(file: h5py.File) -> Dict[int, List[Turn]]:
    """The turns of a shard's responses, by the places of their first tokens."""
    turns: Dict[int, List[Turn]] = {}
    for row in column_of(file, "turns")[:] if "turns" in file else ():
        hole = int(row["end"]) == 0  # left by a kill: a turn has tokens
        if not hole and int(row["by"]) in GIVEN_BY and int(row["reason"]) in FINISH_REASONS:
            turns.setdefault(int(row["offset"]), []).append(Turn.stored(row))
    return turns


def _extra_of(row: np.void, said: bytes) -> str:
    """What was said beside a reward, as JSON; empty where it was nothing, or is damaged."""
    if not said:
        return ""
    begin = int(row["extra_offset"])
    text = said[begin : begin + int(row["extra_length"])]
    try:
        return text.decode() if text and isinstance(json.loads(text), dict) else ""
    except ValueError:
        return ""


def _rows(index: h5py.Dataset, first: int, count: int) -> Iterator[Tuple[int, np.void]]:
    """Rows [first, count) with their numbers, some at a time, as far as they can be read."""
    for begin in range(first, count, ROWS_AT_ONCE):
        try:
            rows = index[begin : min(begin + ROWS_AT_ONCE, count)]
        except H5_ERRORS:
            return
        yield from enumerate(rows, start=begin)


def _is_possible(row: np.void, manifest: Mapping[str, Any], samples: np.ndarray) -> bool:
    """Whether a row of an index can be one of this run: what is not is damage, not a result.

    `samples`: samples_of(manifest).
    """
    length, reason = int(row["length"]), FINISH_REASONS.get(int(row["finish_reason"]))
    return (
        reason is not None
        and not (int(row["checksum"]) == 0 and length == 0)  # a hole in the file
        and int(row["prompt_index"]) < manifest["prompts"]
        and int(row["sample_index"]) < samples[int(row["prompt_index"])]
        and int(row["weight_version"]) == manifest["weight_version"]
        and length + (reason == "partial") <= longest_response(manifest)
    )
