"""Log-probabilities of a run's responses under other weights: what `paceline score` wrote."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, List, Tuple

import numpy as np

from .columns import are_offsets, column_of, guarded, opened
from .manifest import TopColumns, attributes_of
from .records import ReaderError
from .routing import Routing

if TYPE_CHECKING:
    from .complete import Run


class Scores:
    """Of every response of a run, in its order: scores.logprob[i] are those of run[i].tokens.

    What is large, probable tokens and experts, is read a response at a time: where the file has
    some it stays open until close(), or to the end of a `with`. Else it is closed already.
    """

    def __init__(self, path: str, run: "Run") -> None:
        self._path = path
        self._file = opened(path, "not a file of scores")
        try:
            with guarded(path, "not a file of scores"):
                #: As of a run under these weights; the model's path is in "config_text".
                self.attributes = attributes_of(self._file, path)
                group = self._file["scores"]
                offsets = column_of(group, "offsets")[:]
                of = column_of(group, "checksum")[:]
                columns = [column_of(group, name)[:] for name in ("logprob", "sampling_logprob")]
                if not are_offsets(offsets, len(of)) or any(len(c) != offsets[-1] for c in columns):
                    raise ReaderError(f"{path}: the columns of /scores are damaged")
                if not np.array_equal(of, run.checksums):
                    raise ReaderError(
                        f"{path}: of other responses than those of {run.path}: score them anew"
                    )
                self._routing = Routing.of_file(self._file, "scores", run, stays_open=True)
                self._top = TopColumns.of(group, self.attributes)
        except BaseException:
            self._file.close()
            raise
        if self._routing is None and self._top is None:
            self._file.close()
        self._offsets = offsets
        #: float32 [response] of each, at the temperature of attributes["sampling"].
        self.logprob: List[np.ndarray] = np.split(columns[0], offsets[1:-1])
        #: The same after top-k / top-p / min-p; -inf where a token could not have been sampled.
        self.sampling_logprob: List[np.ndarray] = np.split(columns[1], offsets[1:-1])

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> "Scores":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self.logprob)

    def top(self, index: int) -> Tuple[np.ndarray, np.ndarray]:
        """The most probable tokens under these weights at each token of a response.

        int32 and float32 [response, K], as Response.top_ids and top_logprob. Raises ReaderError
        unless the configuration of `paceline score` had sampling.logprobs.
        """
        if self._top is None:
            raise ReaderError("no probable tokens were written: score the run with sampling.logprobs")
        index = range(len(self))[index]
        with guarded(self._path, "not a file of scores"):
            return self._top.read(int(self._offsets[index]), int(self._offsets[index + 1]))

    def routed_experts(self, index: int) -> np.ndarray:
        """The experts that tokens of a response use under these weights: see Run.routed_experts.

        Raises ReaderError unless they were written, which `paceline score --keep-routing` does.
        """
        if self._routing is None:
            raise ReaderError("no experts were written: score the run with --keep-routing")
        return self._routing.of(index)


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
