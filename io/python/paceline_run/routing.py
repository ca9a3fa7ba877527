"""The experts that the tokens of a run use, as a rollout or `paceline score` wrote them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List, Optional, Union

import h5py
import numpy as np

from .columns import column_of
from .records import ReaderError

if TYPE_CHECKING:
    from .complete import Run
    from .scores import Scores


class Routing:
    """Experts of all prompts and responses."""

    def __init__(self, columns: List[Any], layers: np.ndarray, run: "Run") -> None:
        """`columns`: of the prompts and of the responses, arrays or datasets of a file that stays open."""
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
        self._columns, self._layers, self._routed, self._width = columns, len(layers), routed, width
        self._prompts, self._responses, self._prompt_index = prompts, responses, run.prompt_index

    @classmethod
    def of_file(
        cls, file: h5py.File, group: str, run: "Run", stays_open: bool = False
    ) -> Optional["Routing"]:
        """None where the file has none."""
        if "routed_experts" not in file[group]:
            return None
        columns = [
            column_of(file[name], "routed_experts", compressed=True) for name in ("prompts", group)
        ]
        layers = column_of(file[group], "routed_layers")[:]
        return cls(columns if stays_open else [column[:] for column in columns], layers, run)

    def of(self, index: int) -> np.ndarray:
        """int16 [prompt + response - 1, layers, k]: see Run.routed_experts."""
        if index < 0:
            index += len(self._prompt_index)
        if not 0 <= index < len(self._prompt_index):
            raise IndexError(f"response {index} of {len(self._prompt_index)}")
        parts = zip(self._columns, (self._prompts, self._responses), (self._prompt_index[index], index))
        rows = [
            column[int(ends[at]) * self._width : int(ends[at + 1]) * self._width]
            for column, ends, at in parts
        ]
        routed = np.concatenate(rows).reshape(-1, len(self._routed), self._width // len(self._routed))[:-1]
        experts = np.full((len(routed), self._layers, routed.shape[2]), -1, dtype=np.int16)
        experts[:, self._routed] = routed
        return experts


def routing_of(run: "Run", routing: Optional["Scores"]) -> Optional[Union["Run", "Scores"]]:
    """Whose routed_experts a trainer gets: those given, or the run's own where it kept them."""
    if routing is None and run.keeps_routing:
        return run
    return routing
