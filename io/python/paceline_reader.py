"""Reads what a paceline run wrote: trajectories.h5 of a complete run, its shards while it goes on.

    run = open_run("DIR")                # or DIR/trajectories.h5
    len(run), run.attributes["seed"]
    run[0].tokens, run[0].logprob        # ragged access, in (prompt, sample) order
    DataProto.from_dict(**run.to_verl(as_torch=True))  # padded, as verl's agent loop makes it
    batch = run.to_trl()                 # padded, as TRL's GRPO trainer makes it
    for sample in run.iter_slime(): ...  # ragged samples with the fields of slime's Sample

    for response in iter_live("DIR"): ...  # finished so far, of a run in progress or killed

    table = acceptance("DIR", by=("drafter", "position"))  # how well drafts did, from telemetry.h5
    table["drafter"], table["position"], table["rate"]
    spans = timeline("DIR")              # what every rank did when: to be drawn as bars
    spans["rank"], spans["what"], spans["start"], spans["duration"]

Needs h5py and numpy; torch only where as_torch is asked for. One run, one thread: h5py serialises
HDF5 itself, but a Run object keeps its file open. `python3 paceline_reader.py DIR` prints a summary.

Two log-probabilities come with every token: `logprob` at the sampling temperature over the full
vocabulary ("full"), and `sampling_logprob` after top-k / top-p / min-p ("sampling"): the
distribution the token was really drawn from, which importance weights want.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import ctypes
import dataclasses
import json
import os
import re
import sys
import unicodedata
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

import h5py
import numpy as np

SCHEMA_VERSION = 2
TELEMETRY_SCHEMA_VERSION = 6
FINISH_REASONS = {0: "stop_id", 1: "length", 2: "stop_string", 3: "context", 255: "partial"}
#: slime's Sample.Status for each finish reason. A response cut by a limit is truncated.
SLIME_STATUS = {
    "stop_id": "completed",
    "stop_string": "completed",
    "length": "truncated",
    "context": "truncated",
    "partial": "aborted",
}
LOGPROBS = {"sampling": "sampling_logprob", "full": "logprob"}
TOKEN_COLUMNS = ("tokens", "logprob", "sampling_logprob")
TRANSFER_COLUMNS = ("attempt", "rank", "start", "duration", "peer", "bytes", "sends")
ROLE_DRAFTER = 2  #: in /ranks/<rank>/steps/role
ROWS_AT_ONCE = 1024  #: of a shard's index

PathLike = Union[str, "os.PathLike[str]"]


class ReaderError(Exception):
    """The file is not what this module reads, is damaged, or does not fit what was asked of it."""


#: What h5py, numpy and json raise on a damaged file.
H5_ERRORS = (OSError, KeyError, ValueError, TypeError, RuntimeError, IndexError, AttributeError)


@dataclasses.dataclass
class Prompt:
    """One line of the prompt file."""

    index: int
    uid: str
    tokens: np.ndarray  #: int32 [prompt]
    ground_truth: str
    extra: Dict[str, Any]  #: fields of the line: messages or text, reward_model and so on

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

    @property
    def finished(self) -> bool:
        return self.finish_reason != "partial"


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
    """A complete run. Indexing gives responses in (prompt, sample) order; a context manager."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._file = h5py.File(path, "r")
        try:
            with _damage(path, "not a trajectory file"):
                self.attributes = _attributes(self._file, path)
                group = self._file["trajectories"]
                self._offsets: np.ndarray = _column(group, "offsets")[:]
                #: One element a response.
                self.prompt_index: np.ndarray = _column(group, "prompt_index")[:]
                self.sample_index: np.ndarray = _column(group, "sample_index")[:]
                self.finish_reason: np.ndarray = _column(group, "finish_reason")[:]
                self.reward: np.ndarray = _column(group, "reward")[:]
                self.weight_version: np.ndarray = _column(group, "weight_version")[:]
                self._columns = [_column(group, name) for name in TOKEN_COLUMNS]
                self.prompts: List[Prompt] = _read_prompts(self._file["prompts"])
                self._check()
        except BaseException:
            self._file.close()
            raise

    def _check(self) -> None:
        """Raises ReaderError unless the columns are those of a complete run."""
        samples = int(self.attributes["samples"])
        count = len(self.prompts) * samples
        columns = (self.sample_index, self.finish_reason, self.reward, self.weight_version)
        rows = np.arange(count)
        sound = (
            len(self.prompts) == self.attributes["prompts"]
            and all(len(column) == count for column in (self.prompt_index, *columns))
            and np.array_equal(self.prompt_index, rows // max(samples, 1))
            and np.array_equal(self.sample_index, rows % max(samples, 1))
            and _are_offsets(self._offsets, count)
            and all(len(column) == self._offsets[-1] for column in self._columns)
            and bool(np.all(self.lengths <= self.attributes["sampling"]["max_tokens"]))
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
    def lengths(self) -> np.ndarray:
        """int64 [responses]: tokens of each response."""
        return np.diff(self._offsets)

    def __getitem__(self, index: int) -> Response:
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(f"response {index} of {len(self)}")
        columns = self._read(int(self._offsets[index]), int(self._offsets[index + 1]))
        return self._response(index, *columns)

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
                yield self._response(index, *(column[part] for column in columns))
            first = last

    def _read(self, begin: int, end: int) -> List[np.ndarray]:
        with _damage(self.path, "its tokens cannot be read"):
            columns = [column[begin:end] for column in self._columns]
        if not _are_tokens(columns[0], self.attributes):
            raise ReaderError(f"{self.path}: tokens {begin} to {end} are damaged")
        return columns

    def _response(
        self, index: int, tokens: np.ndarray, logprob: np.ndarray, sampling_logprob: np.ndarray
    ) -> Response:
        reward = float(self.reward[index])
        return Response(
            prompt_index=int(self.prompt_index[index]),
            sample_index=int(self.sample_index[index]),
            tokens=tokens,
            logprob=logprob,
            sampling_logprob=sampling_logprob,
            finish_reason=FINISH_REASONS[int(self.finish_reason[index])],
            reward=None if np.isnan(reward) else reward,
            weight_version=int(self.weight_version[index]),
        )

    def iter_slime(
        self, logprob: str = "sampling", tokenizer: Optional[PathLike] = None
    ) -> Iterator[SlimeSample]:
        """Ragged samples with slime's fields; `index` counts responses, `group_index` prompts.

        Text is decoded by the tokenizer.json of the run's model, or of the directory `tokenizer`.
        """
        column = _logprob_column(logprob)
        decode = _Decoder(_model_directory(self) if tokenizer is None else os.fspath(tokenizer))
        for index, response in enumerate(self.responses()):
            prompt = self.prompts[response.prompt_index]
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

    def to_verl(
        self,
        prompt_length: Optional[int] = None,
        response_length: Optional[int] = None,
        pad_token_id: int = 0,
        as_torch: bool = False,
        logprob: str = "sampling",
        truncate: bool = False,
    ) -> Dict[str, Dict[str, Any]]:
        """What verl's DataProto.from_dict takes, one row a response: tensors, non_tensors, meta_info.

        tensors: prompts [B, P] left-padded, responses [B, R] right-padded, response_mask [B, R],
        input_ids, attention_mask and position_ids [B, P + R]: int64. rollout_log_probs [B, R]: 0 on
        padding, float32. rm_scores [B, R]: the reward on the last token, float32; only when every
        response has a reward, because verl takes this key as the reward and scores nothing itself.

        non_tensors, object arrays [B]: uid, equal for the responses to one prompt; and of data_source,
        reward_model, extra_info, ability and raw_prompt (the messages or text) those that some prompt
        has. A prompt without one gets an empty dict (reward_model, extra_info) or None. meta_info:
        temperature and global_token_num.

        P and R are the longest prompt and response unless given. What does not fit is a ReaderError
        that names it, or, with `truncate`, loses its beginning (prompts) or end (responses).
        """
        padded = self._padded(prompt_length, response_length, pad_token_id, logprob, truncate)
        tensors = {
            "prompts": padded.prompts,
            "responses": padded.responses,
            "response_mask": padded.response_mask,
            "input_ids": np.concatenate([padded.prompts, padded.responses], axis=1),
            "attention_mask": np.concatenate([padded.prompt_mask, padded.response_mask], axis=1),
        }
        positions = np.cumsum(tensors["attention_mask"], axis=1) - 1
        tensors["position_ids"] = np.clip(positions, 0, None)
        tensors["rollout_log_probs"] = padded.log_probs
        if len(self) and not np.isnan(self.reward).any():
            scores = np.zeros(padded.responses.shape, dtype=np.float32)
            counts = padded.response_mask.sum(axis=1)
            rows = np.flatnonzero(counts)
            scores[rows, counts[rows] - 1] = self.reward[rows]
            tensors["rm_scores"] = scores

        columns = {
            "data_source": ([p.extra.get("data_source") for p in self.prompts], None),
            "reward_model": ([p.reward_model for p in self.prompts], {}),
            "extra_info": ([p.extra.get("extra_info") for p in self.prompts], {}),
            "ability": ([p.extra.get("ability") for p in self.prompts], None),
            "raw_prompt": ([p.source for p in self.prompts], None),
        }
        non_tensors = {"uid": self._rows([p.uid for p in self.prompts], None)}
        for name, (values, missing) in columns.items():
            if any(value is not None for value in values):
                non_tensors[name] = self._rows(values, missing)
        return {
            "tensors": _as_torch(tensors) if as_torch else tensors,
            "non_tensors": non_tensors,
            "meta_info": {
                "temperature": self.attributes["sampling"]["temperature"],
                "global_token_num": tensors["attention_mask"].sum(axis=1).tolist(),
            },
        }

    def to_trl(
        self,
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
        generations of a prompt are neighbours, as TRL's groups are. Widths are as for to_verl.
        """
        padded = self._padded(prompt_length, response_length, pad_token_id, logprob, truncate)
        batch = {
            "prompt_ids": padded.prompts,
            "prompt_mask": padded.prompt_mask,
            "completion_ids": padded.responses,
            "completion_mask": padded.response_mask,
            "sampling_per_token_logps": padded.log_probs,
        }
        if len(self) and not np.isnan(self.reward).any():
            batch["rewards"] = self.reward.astype(np.float32)
        return _as_torch(batch) if as_torch else batch

    def _rows(self, of_prompts: Sequence[Any], missing: Any) -> np.ndarray:
        """A value of each prompt for each response: copies, since reward functions write into them."""
        column = np.empty(len(self), dtype=object)
        for row, prompt in enumerate(self.prompt_index):
            value = of_prompts[prompt]
            column[row] = copy.deepcopy(missing if value is None else value)
        return column

    def _padded(
        self,
        prompt_length: Optional[int],
        response_length: Optional[int],
        pad_token_id: int,
        logprob: str,
        truncate: bool,
    ) -> "_Padded":
        column = _logprob_column(logprob)
        lengths = self.lengths
        prompt_sizes = np.array([len(prompt.tokens) for prompt in self.prompts], dtype=np.int64)
        used = prompt_sizes[self.prompt_index] if len(self) else np.zeros(0, dtype=np.int64)
        width_p = int(used.max(initial=0)) if prompt_length is None else prompt_length
        width_r = int(lengths.max(initial=0)) if response_length is None else response_length
        if not truncate:
            _check_fits(used, width_p, "prompt", self)
            _check_fits(lengths, width_r, "response", self)
        rows = len(self)
        padded = _Padded(
            prompts=np.full((rows, width_p), pad_token_id, dtype=np.int64),
            prompt_mask=np.zeros((rows, width_p), dtype=np.int64),
            responses=np.full((rows, width_r), pad_token_id, dtype=np.int64),
            response_mask=np.zeros((rows, width_r), dtype=np.int64),
            log_probs=np.zeros((rows, width_r), dtype=np.float32),
        )
        for row, response in enumerate(self.responses()):
            prompt = self.prompts[response.prompt_index]
            kept = min(len(prompt.tokens), width_p)
            if kept > 0:
                padded.prompts[row, width_p - kept :] = prompt.tokens[-kept:]
                padded.prompt_mask[row, width_p - kept :] = 1
            count = min(len(response.tokens), width_r)
            padded.responses[row, :count] = response.tokens[:count]
            padded.response_mask[row, :count] = 1
            padded.log_probs[row, :count] = getattr(response, column)[:count]
        return padded


@dataclasses.dataclass
class _Padded:
    """A run as arrays of one row a response, prompts [B, P] left-padded, the rest [B, R] right."""

    prompts: np.ndarray  #: int64
    prompt_mask: np.ndarray  #: int64, 1 on tokens
    responses: np.ndarray  #: int64
    response_mask: np.ndarray  #: int64, 1 on tokens
    log_probs: np.ndarray  #: float32, 0 on padding


def iter_live(directory: PathLike, partial: bool = False) -> Iterator[Response]:
    """The responses that a run in progress, or one that was killed, has flushed so far.

    In no particular order, each (prompt, sample) once; with `partial`, also the longest piece of
    those that are not finished. Call it again later for what came since. A shard that cannot be
    read at this moment is passed over, and so is what cannot be a response of this run. Checksums
    are not verified (a resumed run does that). Of a complete run, all responses.
    """
    name = os.fspath(directory)
    if os.path.exists(os.path.join(name, "trajectories.h5")):
        with open_run(name) as run:
            yield from run.responses()
        return
    if not os.path.isdir(os.path.join(name, "shards")):
        raise FileNotFoundError(f"{name} holds no run")
    manifest = live_manifest(name)
    seen = set()
    # Per id: the longest partial response and the shard and row that hold it.
    longest: Dict[Tuple[int, int], Tuple[int, str, int]] = {}
    for path in _shards(name):
        for row, response in _shard_responses(path, manifest):
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
                if (response.prompt_index, response.sample_index) not in seen:
                    yield response
        return
    if not partial:
        return
    for key, (_, path, row) in longest.items():
        if key not in seen:
            for _, response in _shard_responses(path, manifest, row, row + 1):
                yield response


def live_prompts(directory: PathLike) -> List[Prompt]:
    """The prompts of a run in progress."""
    path = os.path.join(os.fspath(directory), "shards", "prompts.h5")
    with h5py.File(path, "r") as file, _damage(path, "not a file of prompts"):
        return _read_prompts(file["prompts"])


def live_manifest(directory: PathLike) -> Dict[str, Any]:
    """What identifies a run, from its run.json."""
    path = os.path.join(os.fspath(directory), "run.json")
    with open(path, encoding="utf-8") as file, _damage(path, "not the manifest of a run"):
        manifest = json.load(file)
        if manifest["schema_version"] != SCHEMA_VERSION:
            raise ReaderError(
                f"{path}: schema version {manifest['schema_version']}, expected {SCHEMA_VERSION}"
            )
        return _checked_manifest(manifest)


def acceptance(
    path: PathLike, by: Union[str, Sequence[str]] = "position"
) -> Dict[str, np.ndarray]:
    """Draft tokens verified and accepted in a complete run, from its telemetry.

    `path` is the run's directory or its telemetry.h5. The counts are summed by one or several of
    "drafter" (its name), "position" (1 follows the last committed token), "batch" (decoding requests
    in the step) and "progress" (response tokens before the draft), the last two rounded down to a
    power of two, "rank" and "attempt".

    Returns columns of one length: those of `by`, then "drafted", "accepted" (int64) and "rate", in
    rising order of `by` (drafters by number). A run without drafts gives columns without elements.
    """
    dimensions = ("drafter", "position", "batch", "progress", "rank", "attempt")
    names = [by] if isinstance(by, str) else list(by)
    for name in names:
        if name not in dimensions:
            raise ValueError(f"by {name!r}, expected some of {list(dimensions)}")
    with _telemetry(path) as file:
        file_name = file.filename
        group = file["acceptance"]
        counts = {name: _column(group, name)[:].astype(np.int64) for name in ("drafted", "accepted")}
        keys = np.empty((len(counts["drafted"]), len(names)), np.int64)
        for column, name in enumerate(names):
            keys[:, column] = _column(group, name)[:]
        drafters = np.asarray(_strings(file, "drafter_names"), dtype=object)
        numbers = _column(group, "drafter")[:]
        if len(counts["accepted"]) != len(keys) or np.any(numbers >= len(drafters)):
            raise ReaderError(f"{file_name}: the columns of /acceptance are damaged")
    rows, row_of = np.unique(keys, axis=0, return_inverse=True)
    table: Dict[str, np.ndarray] = {name: rows[:, i] for i, name in enumerate(names)}
    if "drafter" in table:
        table["drafter"] = drafters[table["drafter"]]
    for name, values in counts.items():
        table[name] = np.zeros(len(rows), np.int64)
        np.add.at(table[name], row_of.reshape(-1), values)
    table["rate"] = table["accepted"] / np.maximum(table["drafted"], 1)
    return table


def request_plans(path: PathLike) -> Dict[str, np.ndarray]:
    """Requests of a complete run that came to be drafted for in another way, from its telemetry.

    `path` is the run's directory or its telemetry.h5. Returns columns of one length, by (attempt, time):
    "attempt", "rank", "prompt_index", "sample_index" and "tokens" (int64; of the response by then), "time"
    (float64, seconds since the attempt began), "mode" (str: "plain", "coupled", "decoupled") and "window"
    (int64, the longest draft in tokens).
    """
    with _telemetry(path) as file:
        requests = file["requests"]
        here = _column(requests, "kind")[:] == requests["kind"].attrs["planned"]
        names = ("attempt", "rank", "prompt_index", "sample_index", "tokens", "window")
        table: Dict[str, np.ndarray] = {n: _column(requests, n)[:][here].astype(np.int64) for n in names}
        table["time"] = _column(requests, "time")[:][here]
        modes = {int(number): name for name, number in requests["mode"].attrs.items()}
        table["mode"] = np.array([modes[int(m)] for m in _column(requests, "mode")[:][here]], object)
    return table


def timeline(path: PathLike, attempt: int = -1) -> Dict[str, np.ndarray]:
    """What every rank of a complete run did when, from its telemetry.

    `path` is the run's directory or its telemetry.h5; `attempt` -1 is the last. Returns columns of one
    length, by (rank, start): "rank" (int64), "what" (str), "start" and "duration" (float64, seconds
    since the attempt began), and "peer" (int64, -1 but for transfers) and "bytes" (int64). "what" is

      "step"             a verifier's, or a member's, without its drafting; a drafter rank's drafting
      "draft"            the part of a verifier's step in which drafts were made
      "wait"             for verification (drafter ranks), for KV (verifiers)
      "send", "receive"  of KV blocks, to or from `peer`, beside whatever else the rank did
      "become ROLE"      taking a new place in mid-run, by the roles' names in the file
    """
    with _telemetry(path) as file:
        if attempt < 0:
            numbers = _column(file, "attempts/attempt")[:]
            if len(numbers) == 0:
                raise ReaderError(f"{file.filename}: no attempts")
            attempt = int(numbers.max())
        spans: List[Tuple[np.ndarray, ...]] = []

        def add(rank: Any, what: Any, start: np.ndarray, duration: np.ndarray, peer: Any = -1, size: Any = 0) -> None:
            columns = np.broadcast_arrays(rank, np.asarray(what, object), start, duration, peer, size)
            spans.append(tuple(column[columns[3] > 0] for column in columns))

        for name, group in file["ranks"].items():
            names = ("start", "duration", "draft_duration", "waited")
            steps = {c: _column(group, f"steps/{c}")[:] for c in names + ("attempt", "role")}
            here = steps["attempt"] == attempt
            start, duration, draft, waited = (steps[c][here] for c in names)
            drafting = np.where(steps["role"][here] == ROLE_DRAFTER, 0, draft)
            add(int(name), "wait", start - waited, waited)
            add(int(name), "draft", start, drafting)
            add(int(name), "step", start + drafting, duration - drafting)
        moved = {c: _column(file, f"transfers/{c}")[:] for c in TRANSFER_COLUMNS}
        here = moved.pop("attempt") == attempt
        rank, start, duration, peer, size, sends = (moved[c][here] for c in TRANSFER_COLUMNS[1:])
        add(rank, np.where(sends == 1, "send", "receive"), start, duration, peer, size)
        roles = {c: _column(file, f"roles/{c}")[:] for c in ("attempt", "rank", "start", "preparing", "role", "epoch")}
        here = (roles["attempt"] == attempt) & (roles["epoch"] > 0)
        names_of_roles = _strings(file, "role_names")
        what = np.array([f"become {names_of_roles[role]}" for role in roles["role"][here]], object)
        add(roles["rank"][here], what, roles["start"][here], roles["preparing"][here])
    columns = [np.concatenate(parts) for parts in zip(*spans)]
    order = np.lexsort((columns[2], columns[0]))
    types = (np.int64, object, np.float64, np.float64, np.int64, np.int64)
    names = ("rank", "what", "start", "duration", "peer", "bytes")
    return {n: c[order].astype(t) for n, c, t in zip(names, columns, types)}


@contextlib.contextmanager
def _telemetry(path: PathLike) -> Iterator[h5py.File]:
    """The telemetry of a run's directory, or of the file itself."""
    name = os.fspath(path)
    if os.path.isdir(name):
        name = os.path.join(name, "telemetry.h5")
    with h5py.File(name, "r") as file, _damage(name, "not telemetry"):
        version = file.attrs.get("schema_version")
        if version != TELEMETRY_SCHEMA_VERSION or "acceptance" not in file:
            raise ReaderError(f"{name}: not telemetry of schema version {TELEMETRY_SCHEMA_VERSION}")
        yield file


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
    path: str, manifest: Mapping[str, Any], first: int = 0, last: Optional[int] = None
) -> Iterator[Tuple[int, Response]]:
    """Rows [first, last) of a shard that a writer may be appending to."""
    access = _patient_access()
    flags = h5py.h5f.ACC_RDONLY | h5py.h5f.ACC_SWMR_READ
    try:
        file = h5py.File(h5py.h5f.open(os.fsencode(path), flags, fapl=access))
    except H5_ERRORS:
        return
    with file:
        try:
            # The index first: what it names is in the other datasets, which are flushed before it.
            index = _column(file, "index")
            count = len(index) if last is None else min(last, len(index))
            columns = [_column(file, name) for name in TOKEN_COLUMNS]
        except (ReaderError, *H5_ERRORS):
            return
        for number, row in _rows(index, first, count):
            try:
                if not _is_possible(row, manifest):
                    continue
                begin = int(row["offset"])
                end = begin + int(row["length"])
                if any(end > len(column) for column in columns):
                    continue
                tokens, logprob, sampling_logprob = (column[begin:end] for column in columns)
            except H5_ERRORS:
                continue
            if not _are_tokens(tokens, manifest):
                continue
            reward = float(row["reward"])
            yield number, Response(
                prompt_index=int(row["prompt_index"]),
                sample_index=int(row["sample_index"]),
                tokens=tokens,
                logprob=logprob,
                sampling_logprob=sampling_logprob,
                finish_reason=FINISH_REASONS[int(row["finish_reason"])],
                reward=None if np.isnan(reward) else reward,
                weight_version=int(row["weight_version"]),
            )


def _rows(index: h5py.Dataset, first: int, count: int) -> Iterator[Tuple[int, np.void]]:
    """Rows [first, count) with their numbers, some at a time, as far as they can be read."""
    for begin in range(first, count, ROWS_AT_ONCE):
        try:
            rows = index[begin : min(begin + ROWS_AT_ONCE, count)]
        except H5_ERRORS:
            return
        yield from enumerate(rows, start=begin)


def _is_possible(row: np.void, manifest: Mapping[str, Any]) -> bool:
    """Whether a row of an index can be one of this run: what is not is damage, not a result."""
    length, reason = int(row["length"]), FINISH_REASONS.get(int(row["finish_reason"]))
    return (
        reason is not None
        and not (int(row["checksum"]) == 0 and length == 0)  # a hole in the file
        and int(row["prompt_index"]) < manifest["prompts"]
        and int(row["sample_index"]) < manifest["samples"]
        and int(row["weight_version"]) == manifest["weight_version"]
        and length + (reason == "partial") <= manifest["sampling"]["max_tokens"]
    )


def _are_tokens(tokens: np.ndarray, manifest: Mapping[str, Any]) -> bool:
    return len(tokens) == 0 or (tokens.min() >= 0 and tokens.max() < manifest["vocabulary"])


def _are_offsets(offsets: np.ndarray, count: int) -> bool:
    return len(offsets) == count + 1 and offsets[0] == 0 and bool(np.all(np.diff(offsets) >= 0))


@contextlib.contextmanager
def _damage(path: str, what: str) -> Iterator[None]:
    """What goes wrong inside becomes a ReaderError: h5py raises all kinds on a damaged file."""
    try:
        yield
    except (ReaderError, *H5_ERRORS) as error:
        if isinstance(error, ReaderError) and str(error).startswith(path):
            raise
        raise ReaderError(f"{path}: {what}: {error}") from error


def _patient_access() -> h5py.h5p.PropFAID:
    """How to open a file that a SWMR writer may be appending to, or was killed while appending to.

    HDF5 reads again what it finds half written, 100 times by default, each time after twice the
    wait: on a damaged file that never ends. 20 times take about a millisecond. h5py does not offer
    the setting, so it is made in the library that h5py is linked with.
    """
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_fclose_degree(h5py.h5f.CLOSE_STRONG)
    set_attempts = ctypes.CDLL(h5py.h5p.__file__).H5Pset_metadata_read_attempts
    set_attempts.argtypes = (ctypes.c_int64, ctypes.c_uint)
    if set_attempts(access.id, 20) < 0:
        raise ReaderError("HDF5 refuses the number of attempts at reading metadata")
    return access


def _column(group: Mapping[str, h5py.Dataset], name: str) -> h5py.Dataset:
    """A dataset of one dimension that its file has room for, whatever it says itself."""
    column = group[name]
    if not isinstance(column, h5py.Dataset) or column.ndim != 1 or column.dtype.hasobject:
        raise ReaderError(f"{name} is not a dataset of the kind that paceline writes")
    size = len(column) * column.dtype.itemsize
    if column.id.get_create_plist().get_nfilters() or size > os.path.getsize(column.file.filename):
        raise ReaderError(f"{name} is larger than its file")
    return column


def _strings(group: Mapping[str, h5py.Dataset], name: str) -> List[str]:
    """Stored as their bytes, one after the other, and offsets."""
    text = _column(group, name)[:].tobytes()
    offsets = _column(group, name + "_offsets")[:]
    if len(offsets) == 0 or not _are_offsets(offsets, len(offsets) - 1) or offsets[-1] != len(text):
        raise ReaderError(f"the offsets of {name} are damaged")
    return [text[begin:end].decode() for begin, end in zip(offsets[:-1], offsets[1:])]


def _attributes(file: h5py.File, path: str) -> Dict[str, Any]:
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
    return _checked_manifest(attributes)


def _checked_manifest(about: Dict[str, Any]) -> Dict[str, Any]:
    """What identifies a run, when what this module takes from it is there."""
    numbers = ("prompts", "samples", "seed", "vocabulary", "weight_version")
    texts = ("program_version", "model_fingerprint", "backend", "isa", "dtype")
    for kind, names in ((int, numbers), (str, texts), (dict, ("sampling",))):
        for name in names:
            if not isinstance(about.get(name), kind):
                raise ReaderError(f"{name} is {about.get(name)!r}, expected {kind.__name__}")
    for name in ("max_tokens", "temperature"):
        if not isinstance(about["sampling"].get(name), (int, float)):
            raise ReaderError(f"sampling.{name} is {about['sampling'].get(name)!r}, expected a number")
    return about


def _read_prompts(group: Mapping[str, h5py.Dataset]) -> List[Prompt]:
    tokens = _column(group, "tokens")[:]
    offsets = _column(group, "offsets")[:]
    strings = [_strings(group, name) for name in ("uid", "ground_truth", "extra")]
    count = len(strings[0])
    if not _are_offsets(offsets, count) or any(len(values) != count for values in strings):
        raise ReaderError("the columns of /prompts are damaged")
    return [
        Prompt(
            index=index,
            uid=uid,
            tokens=tokens[offsets[index] : offsets[index + 1]],
            ground_truth=truth,
            extra=json.loads(extra) if extra else {},
        )
        for index, (uid, truth, extra) in enumerate(zip(*strings))
    ]


def _logprob_column(which: str) -> str:
    if which not in LOGPROBS:
        raise ValueError(f"logprob is {which!r}, expected one of {sorted(LOGPROBS)}")
    return LOGPROBS[which]


def _as_torch(arrays: Mapping[str, np.ndarray]) -> Dict[str, Any]:
    import torch  # here, not above: the rest of the module works without it

    return {name: torch.from_numpy(values) for name, values in arrays.items()}


def _model_directory(run: Run) -> str:
    """model.path of the configuration in the run's file, which the program wrote line by line."""
    match = re.search(r'^model:\n  path: "(.*)"$', run.attributes["config_text"], re.MULTILINE)
    if match is None:
        raise ReaderError(f"{run.path}: its config_text names no model.path; give tokenizer=DIRECTORY")
    escape = {"n": "\n", '"': '"', "\\": "\\"}
    return re.sub(
        r"\\(?:x(..)|(.))", lambda m: chr(int(m[1], 16)) if m[1] else escape[m[2]], match[1]
    )


class _Decoder:
    """Tokens to text by a byte-level tokenizer.json, the only kind that paceline runs."""

    def __init__(self, directory: str) -> None:
        path = os.path.join(directory, "tokenizer.json")
        try:
            with open(path, encoding="utf-8") as file:
                document = json.load(file)
            spellings = {int(i): token for token, i in document["model"]["vocab"].items()}
            # The normalizer, of which NFC is the only kind, takes in most added tokens too.
            nfc = bool(document.get("normalizer"))
            for added in document.get("added_tokens") or []:
                normalized = nfc and added.get("normalized", not added.get("special"))
                text = added["content"]
                spellings[int(added["id"])] = (
                    unicodedata.normalize("NFC", text) if normalized else text
                )
        except OSError as error:
            raise ReaderError(
                f"{path}: the text of responses needs the run's tokenizer: {error.strerror}; where it "
                f"has moved, give tokenizer=DIRECTORY"
            ) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ReaderError(f"{path}: not a tokenizer of a vocabulary: {error!r}") from error
        # Bytes are spelled as characters: printable Latin-1 as itself, the others from U+0100 on.
        shown = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
        hidden = [b for b in range(256) if b not in shown]
        byte_of = {chr(b): b for b in shown}
        byte_of.update({chr(256 + n): b for n, b in enumerate(hidden)})
        self._bytes = {}
        for token, spelling in spellings.items():
            try:
                self._bytes[token] = bytes(byte_of[character] for character in spelling)
            except KeyError:  # an added token, which is not spelled in bytes
                self._bytes[token] = spelling.encode()

    def __call__(self, tokens: np.ndarray) -> str:
        # Padded vocabularies have ids without a token: no text.
        joined = b"".join(self._bytes.get(token, b"") for token in tokens.tolist())
        return joined.decode("utf-8", errors="replace")


def _check_fits(sizes: np.ndarray, width: int, what: str, run: Run) -> None:
    over = np.flatnonzero(sizes > width)
    if len(over) == 0:
        return
    row = int(over[0])
    prompt = int(run.prompt_index[row])
    raise ReaderError(
        f"{run.path}: {len(over)} of {len(sizes)} {what}s are longer than {what}_length={width}; the "
        f"first is prompt {prompt} (uid {run.prompts[prompt].uid!r}), sample "
        f"{int(run.sample_index[row])}, with {int(sizes[row])} tokens. Give a larger "
        f"{what}_length, or truncate=True"
    )


def _describe(lengths: Sequence[int]) -> str:
    values = np.asarray(lengths, dtype=np.int64)
    if len(values) == 0:
        return "none"
    p50, p90 = np.percentile(values, [50, 90])
    return (
        f"total {values.sum()}, mean {values.mean():.1f}, median {p50:.0f}, 90% {p90:.0f}, "
        f"longest {values.max()}"
    )


def summary(path: PathLike) -> str:
    """What `python3 paceline_reader.py PATH` prints."""
    name = os.fspath(path)
    complete = not os.path.isdir(name) or os.path.exists(os.path.join(name, "trajectories.h5"))
    reasons: Dict[str, int] = {}
    rewards: List[float] = []
    lengths: List[int] = []

    def count(response: Response) -> None:
        reasons[response.finish_reason] = reasons.get(response.finish_reason, 0) + 1
        lengths.append(len(response.tokens))
        if response.reward is not None:
            rewards.append(response.reward)

    if complete:
        with open_run(name) as run:
            about: Mapping[str, Any] = run.attributes
            prompts = run.prompts
            for response in run.responses():
                count(response)
    else:
        about = live_manifest(name)
        prompts = live_prompts(name)
        for response in iter_live(name, partial=True):
            count(response)
    expected = int(about["prompts"]) * int(about["samples"])
    finished = len(lengths) - reasons.get("partial", 0)
    lines = [
        f"{name}: {'complete' if complete else 'in progress or stopped'}",
        f"  program     {about['program_version']}, {about['backend']} {about['isa']} {about['dtype']}",
        f"  model       {about['model_fingerprint']}, weight version {about['weight_version']}",
        f"  sampling    seed {about['seed']}, temperature {about['sampling']['temperature']}, "
        f"at most {about['sampling']['max_tokens']} tokens",
        f"  prompts     {len(prompts)}: {_describe([len(p.tokens) for p in prompts])} tokens",
        f"  responses   {finished} finished of {expected}",
        f"  tokens      {_describe(lengths)}",
        "  finished by " + (", ".join(f"{k} {reasons[k]}" for k in sorted(reasons)) or "none"),
    ]
    if rewards:
        lines.append(f"  reward      mean {np.mean(rewards):.4g} over {len(rewards)} responses")
    return "\n".join(lines)


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
