"""Log-probabilities of a run's responses under other weights: what `paceline score` wrote."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, List

import h5py
import numpy as np

from .columns import are_offsets, column_of, guarded, opened
from .manifest import attributes_of
from .records import ReaderError

if TYPE_CHECKING:
    from .complete import Run


class Scores:
    """Of every response of a run, in its order: scores.logprob[i] are those of run[i].tokens."""

    def __init__(self, path: str, run: "Run") -> None:
        with opened(path, "not a file of scores") as file, guarded(path, "not a file of scores"):
            #: As of a run under these weights; the model's path is in "config_text".
            self.attributes = attributes_of(file, path)
            group = file["scores"]
            offsets = column_of(group, "offsets")[:]
            of = column_of(group, "checksum")[:]
            columns = [column_of(group, name)[:] for name in ("logprob", "sampling_logprob")]
            if not are_offsets(offsets, len(of)) or any(len(c) != offsets[-1] for c in columns):
                raise ReaderError(f"{path}: the columns of /scores are damaged")
            if not np.array_equal(of, run.checksums):
                raise ReaderError(f"{path}: of other responses than those of {run.path}: score them anew")
            self._routing = Routing(file, run) if "routed_experts" in group else None
        #: float32 [response] of each, at the temperature of attributes["sampling"].
        self.logprob: List[np.ndarray] = np.split(columns[0], offsets[1:-1])
        #: The same after top-k / top-p / min-p; -inf where a token could not have been sampled.
        self.sampling_logprob: List[np.ndarray] = np.split(columns[1], offsets[1:-1])

    def __len__(self) -> int:
        return len(self.logprob)

    def routed_experts(self, index: int) -> np.ndarray:
        """int16 [prompt + response - 1, layers, k]: the experts that tokens of a response use.

        Ascending, by the model's own numbers of layers; -1 in layers without experts. The last token
        has none, for nothing follows it. Raises ReaderError unless they were written, which `paceline
        score --keep-routing` does.
        """
        if self._routing is None:
            raise ReaderError("no experts were written: score the run with --keep-routing")
        return self._routing.of(index)


class Routing:
    """The experts that the tokens of a run use."""

    def __init__(self, file: h5py.File, run: "Run") -> None:
        layers = column_of(file["scores"], "routed_layers")[:]
        columns = [column_of(file[name], "routed_experts")[:] for name in ("prompts", "scores")]
        prompts = np.cumsum([0] + [len(prompt.tokens) for prompt in run.prompts])
        responses = np.cumsum(np.concatenate([[0], run.lengths]))
        tokens = int(prompts[-1] + responses[-1])
        routed = np.flatnonzero(layers)
        width = sum(len(column) for column in columns) // max(tokens, 1)
        sound = len(routed) > 0 and width > 0 and width % len(routed) == 0
        for column, ends in zip(columns, (prompts, responses)):
            sound = sound and column.dtype == np.int16 and len(column) == ends[-1] * width
        if not sound:
            raise ReaderError("the experts are damaged")
        self._layers, self._routed = len(layers), routed
        shape = (-1, len(routed), width // len(routed))
        self._of_prompts, self._of_responses = (column.reshape(shape) for column in columns)
        self._prompts, self._responses, self._prompt_index = prompts, responses, run.prompt_index

    def of(self, index: int) -> np.ndarray:
        prompt = self._prompt_index[index]
        routed = np.concatenate(
            [
                self._of_prompts[self._prompts[prompt] : self._prompts[prompt + 1]],
                self._of_responses[self._responses[index] : self._responses[index + 1]],
            ]
        )[:-1]
        experts = np.full((len(routed), self._layers, routed.shape[2]), -1, dtype=np.int16)
        experts[:, self._routed] = routed
        return experts


def scores_under(run: "Run", name: str) -> Scores:
    """What `paceline score CONFIG DIR --name NAME` wrote beside the run.

    Raises FileNotFoundError where it wrote nothing of that name, and ReaderError when the file is
    damaged, or of other responses than the run has now.
    """
    directory = os.path.dirname(run.path)
    path = os.path.join(directory, f"scores-{name}.h5")
    if not os.path.exists(path):
        files = sorted(os.listdir(directory or "."))
        there = [f[7:-3] for f in files if f.startswith("scores-") and f.endswith(".h5")]
        raise FileNotFoundError(f"{path} does not exist; there are scores: {there}")
    return Scores(path, run)
