"""Pictures of digits and of shapes, drawn pixel by pixel, and their patches as an image processor makes them."""

from __future__ import annotations

import base64
import io
import random
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tower import Seen, TowerShape

# Columns of seven pixels, the lowest bit above.
DIGITS = (
    (0x3E, 0x51, 0x49, 0x45, 0x3E), (0x00, 0x42, 0x7F, 0x40, 0x00), (0x42, 0x61, 0x51, 0x49, 0x46),
    (0x21, 0x41, 0x45, 0x4B, 0x31), (0x18, 0x14, 0x12, 0x7F, 0x10), (0x27, 0x45, 0x45, 0x45, 0x39),
    (0x3C, 0x4A, 0x49, 0x49, 0x30), (0x01, 0x71, 0x09, 0x05, 0x03), (0x36, 0x49, 0x49, 0x49, 0x36),
    (0x06, 0x49, 0x49, 0x29, 0x1E),
)
SCALE = 2  # pixels of a digit's dot
PITCH = 12  # pixels from digit to digit
SIDE = 8  # pixels of a row of the model: sides of pictures are multiples, so that nothing is resized
CELL = 16  # pixels of a shape's place
COLOURS = {"red": (220, 40, 40), "green": (30, 160, 60), "blue": (40, 70, 220), "black": (20, 20, 20)}
SHAPES = ("disc", "box", "cross")
MARKS = (*"0123456789", *(f"{colour} {shape}" for colour in COLOURS for shape in SHAPES))  # what can be drawn
MEAN = np.array([0.48145466, 0.4578275, 0.40821073], dtype=np.float32)  # as published, of CLIP
DEVIATION = np.array([0.26862954, 0.26130258, 0.27577711], dtype=np.float32)


@dataclass
class Drawing:
    pixels: np.ndarray  # [height, width, 3] bytes
    marks: list[tuple[int, int, int]]  # row and column of the pixel in the middle of each, and its place in MARKS

    def labels(self) -> Tensor:
        """Of each row of the model, row by row: the mark whose middle it has, or len(MARKS)."""
        labels = torch.full([side // SIDE for side in self.pixels.shape[:2]], len(MARKS))
        for row, column, mark in self.marks:
            labels[row // SIDE, column // SIDE] = mark
        return labels.flatten()


def glyph(digit: int) -> np.ndarray:
    dots = np.array([[column >> row & 1 for column in DIGITS[digit]] for row in range(7)], dtype=bool)
    return dots.repeat(SCALE, 0).repeat(SCALE, 1)


def canvas(width: int, height: int, colour: tuple[int, int, int]) -> np.ndarray:
    return np.full((height, width, 3), colour, dtype=np.uint8)


def up_to_side(pixels: int) -> int:
    return -(-pixels // SIDE) * SIDE


def draw_number(digits: str, rng: random.Random) -> Drawing:
    """Digits somewhere in a picture, light on dark or dark on light."""
    light = tuple(rng.randrange(190, 256) for _ in range(3))
    dark = tuple(rng.randrange(0, 90) for _ in range(3))
    ground, ink = (light, dark) if rng.random() < 0.7 else (dark, light)
    taken = PITCH * len(digits)
    picture = canvas(up_to_side(taken + 2 + rng.randrange(12)), 24, ground)
    left = rng.randrange(1, picture.shape[1] - taken)
    top = rng.randrange(1, picture.shape[0] - 7 * SCALE)
    marks = []
    for place, digit in enumerate(digits):
        dots = glyph(int(digit))
        at = left + PITCH * place
        picture[top : top + dots.shape[0], at : at + dots.shape[1]][dots] = ink
        marks.append((top + dots.shape[0] // 2, at + dots.shape[1] // 2, int(digit)))
    return Drawing(picture, marks)


def mask_of(shape: str, size: int) -> np.ndarray:
    row, column = np.mgrid[:size, :size] - (size - 1) / 2
    if shape == "disc":
        return row**2 + column**2 <= (size / 2) ** 2
    if shape == "cross":
        return (np.abs(row) < 2) | (np.abs(column) < 2)
    return np.ones((size, size), dtype=bool)


def draw_shapes(shapes: list[list[tuple[str, str]]], rng: random.Random) -> Drawing:
    """Rows of (colour, shape), each in its cell."""
    ground = tuple(rng.randrange(215, 256) for _ in range(3))
    picture = canvas(up_to_side(CELL * len(shapes[0])), up_to_side(CELL * len(shapes)), ground)
    marks = []
    for i, row in enumerate(shapes):
        for j, (colour, shape) in enumerate(row):
            size = rng.randrange(10, 14)
            top, left = (CELL * k + rng.randrange(CELL - size + 1) for k in (i, j))
            picture[top : top + size, left : left + size][mask_of(shape, size)] = COLOURS[colour]
            marks.append((top + size // 2, left + size // 2, MARKS.index(f"{colour} {shape}")))
    return Drawing(picture, marks)


def png_of(picture: np.ndarray) -> bytes:
    from PIL import Image  # which training and trainers' loops can do without

    file = io.BytesIO()
    colours = len(np.unique(picture.reshape(-1, 3), axis=0))
    image = Image.fromarray(picture)
    if colours <= 256:
        image = image.quantize(colours, dither=Image.Dither.NONE)
    if not np.array_equal(np.asarray(image.convert("RGB")), picture):
        image = Image.fromarray(picture)
    image.save(file, "PNG", optimize=True)
    return file.getvalue()


def data_uri(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode()


def patches_of(picture: np.ndarray, shape: TowerShape) -> tuple[Tensor, tuple[int, int]]:
    """Patches [patches, elements] and their grid, as transformers' Qwen2VLImageProcessor makes them of a picture whose
    sides it leaves as they are."""
    rows, columns = (side // shape.patch for side in picture.shape[:2])
    if picture.shape[0] % (shape.patch * shape.merge) or picture.shape[1] % (shape.patch * shape.merge):
        raise ValueError(f"a picture of {picture.shape[1]} x {picture.shape[0]} pixels would be resized")
    x = (picture.astype(np.float32) / 255 - MEAN) / DEVIATION
    x = x.reshape(rows // shape.merge, shape.merge, shape.patch, columns // shape.merge, shape.merge, shape.patch, 3)
    x = x.transpose(0, 3, 1, 4, 6, 2, 5)  # [rows, columns, merge, merge, channel, patch, patch]
    x = np.stack([x] * shape.temporal_patch, axis=5)
    return torch.from_numpy(np.ascontiguousarray(x.reshape(rows * columns, -1))), (rows, columns)


def seen_of(pictures: list[np.ndarray], first: list[int], shape: TowerShape) -> Seen | None:
    """Pictures at these places of a text; None where there are none."""
    if not pictures:
        return None
    made = [patches_of(picture, shape) for picture in pictures]
    return Seen([patches for patches, _ in made], [grid for _, grid in made], first)
