"""What trainers get of prompts' pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Sequence, Tuple

import numpy as np

from .records import Picture, Prompt, ReaderError

if TYPE_CHECKING:
    from .complete import Run


def pictures_of(
    sources: Sequence[str], hashes: np.ndarray, grids: np.ndarray, first: np.ndarray
) -> List[Picture]:
    """Of what a file holds: hashes [n, 2] with the low half first, grids [n, 3], first [n]."""
    if not isinstance(sources, list) or len(sources) != len(first):
        raise ValueError(f"{len(first)} pictures, and another number of images in the line's fields")
    return [
        Picture(
            source=str(source),
            hash=f"{int(high):016x}{int(low):016x}",
            grid=(int(grid[0]), int(grid[1]), int(grid[2])),
            first=int(place),
        )
        for source, (low, high), grid, place in zip(sources, hashes, grids, first)
    ]


class ProcessedPictures:
    """What a processor makes of prompts' pictures, made once a prompt.

    `processor`: a processor of transformers with an image_processor, or that itself.
    """

    def __init__(self, run: Run, processor: Any) -> None:
        if processor is None:
            raise ReaderError(
                f"{run.path}: prompts have pictures: give processor=, the trainer's own "
                "(AutoProcessor.from_pretrained), which makes pixel_values of them"
            )
        self._run = run
        self._process = getattr(processor, "image_processor", processor)
        self._made: Dict[int, Dict[str, Any]] = {}

    def of(self, prompt: Prompt) -> Dict[str, Any]:
        """pixel_values and image_grid_thw; empty where the prompt has no pictures."""
        if not prompt.pictures:
            return {}
        if prompt.index not in self._made:
            images = [picture.image() for picture in prompt.pictures]
            made = dict(self._process(images=images, return_tensors="pt"))
            grids = [tuple(int(side) for side in grid) for grid in made["image_grid_thw"]]
            expected = [picture.grid for picture in prompt.pictures]
            if grids != expected:
                raise ReaderError(
                    f"{self._run.path}: prompt {prompt.index}: the processor makes pictures of "
                    f"{grids}, the run of {expected}: it is another model's, or set otherwise"
                )
            self._made[prompt.index] = made
        return self._made[prompt.index]


def positions_of(prompt: Prompt, length: int, merge: int) -> np.ndarray:
    """int64 [3, length]: what the prompt's tokens, and those after it, are turned by.

    As transformers' get_rope_index: texts count on in all three; a picture's rows by their frame,
    row and column; what follows a picture comes after the longer of its sides (arXiv 2409.12191).
    """
    positions = np.empty((3, length), dtype=np.int64)
    at, value = 0, 0
    for picture in prompt.pictures:
        rows, columns = picture.grid[1] // merge, picture.grid[2] // merge
        text = picture.first - at
        positions[:, at : picture.first] = value + np.arange(text)
        value += text
        end = picture.first + rows * columns
        row, column = np.divmod(np.arange(rows * columns), columns)
        positions[:, picture.first : end] = value + np.stack([0 * row, row, column])
        value += max(rows, columns)
        at = end
    positions[:, at:] = value + np.arange(length - at)
    return positions


def merge_of(prompt: Prompt) -> int:
    """Patches of a side that become one row: the tokens of the first picture tell."""
    picture = prompt.pictures[0]
    token, tokens = prompt.tokens[picture.first], prompt.tokens[picture.first :]
    others = np.flatnonzero(tokens != token)
    rows = int(others[0]) if len(others) else len(tokens)
    patches = picture.grid[1] * picture.grid[2]
    merge = int(round((patches / rows) ** 0.5))
    if rows * merge * merge != patches:
        raise ValueError(f"prompt {prompt.index}: {rows} tokens for {patches} patches")
    return merge
