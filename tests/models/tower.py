"""Qwen2-VL's tower in plain PyTorch, with Hugging Face's parameter names, and the pictures of texts."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class TowerShape:
    width: int = 64
    layers: int = 2
    heads: int = 2
    intermediate: int = 128
    patch: int = 4  # pixels of a side
    temporal_patch: int = 2
    merge: int = 2  # patches of a side that become one row
    theta: float = 10000.0
    epsilon: float = 1e-6

    @property
    def patch_elements(self) -> int:
        return 3 * self.temporal_patch * self.patch * self.patch


@dataclass
class Seen:
    """The pictures of a text, or of several."""

    patches: list[Tensor] = field(default_factory=list)  # [patches, elements] of one picture or some
    grids: list[tuple[int, int]] = field(default_factory=list)  # rows and columns of patches
    first: list[int] = field(default_factory=list)  # places of each picture's first row

    def whole(self) -> Tensor:
        return torch.cat(self.patches)

    def rows(self, merge: int) -> Tensor:
        """Places of all rows, picture by picture."""
        return torch.cat([
            torch.arange(first, first + rows * columns // merge**2)
            for first, (rows, columns) in zip(self.first, self.grids)
        ])


def rotary_positions(length: int, seen: Seen, merge: int) -> Tensor:
    """Frame, row and column of a text's tokens [length, 3] (arXiv 2409.12191, section 2.1)."""
    parts, at, value = [], 0, 0
    for first, (rows, columns) in zip(seen.first, seen.grids):
        rows, columns = rows // merge, columns // merge
        parts.append(torch.arange(value, value + first - at)[:, None].expand(-1, 3))
        value += first - at
        row, column = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
        parts.append(value + torch.stack((torch.zeros_like(row), row, column), -1).view(-1, 3))
        value += max(rows, columns)
        at = first + rows * columns
    parts.append(torch.arange(value, value + length - at)[:, None].expand(-1, 3))
    return torch.cat(parts)


class TowerLayer(nn.Module):
    def __init__(self, shape: TowerShape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.norm1 = nn.LayerNorm(shape.width, shape.epsilon)
        self.attn = nn.Module()
        self.attn.qkv = nn.Linear(shape.width, 3 * shape.width)
        self.attn.proj = nn.Linear(shape.width, shape.width)
        self.norm2 = nn.LayerNorm(shape.width, shape.epsilon)
        self.mlp = nn.Module()
        self.mlp.fc1 = nn.Linear(shape.width, shape.intermediate)
        self.mlp.fc2 = nn.Linear(shape.intermediate, shape.width)

    def attend(self, qkv: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        """Of pictures of one size: qkv [pictures, patches, 3 * width]."""
        q, k, v = (x.transpose(1, 2) for x in qkv.unflatten(-1, (3, self.heads, -1)).unbind(2))

        def turn(x: Tensor) -> Tensor:
            a, b = x.chunk(2, dim=-1)
            return x * cosine + torch.cat((-b, a), dim=-1) * sine

        return F.scaled_dot_product_attention(turn(q), turn(k), v).transpose(1, 2).flatten(2)

    def forward(self, x: Tensor, sizes: list["Size"]) -> Tensor:
        qkv = self.attn.qkv(self.norm1(x))
        attended = torch.empty_like(x)
        for size in sizes:
            out = self.attend(qkv[size.rows], size.cosine, size.sine)
            attended = attended.index_copy(0, size.rows.flatten(), out.flatten(0, 1))
        x = x + self.attn.proj(attended)
        hidden = self.mlp.fc1(self.norm2(x))
        return x + self.mlp.fc2(hidden * torch.sigmoid(1.702 * hidden))


@dataclass
class Size:
    """Pictures of one grid: their rows [pictures, patches], and what patches are turned by [patches, head_dim]."""

    rows: Tensor
    cosine: Tensor
    sine: Tensor


class Tower(nn.Module):
    def __init__(self, shape: TowerShape, hidden: int) -> None:
        super().__init__()
        self.shape = shape
        kernel = (shape.temporal_patch, shape.patch, shape.patch)
        self.patch_embed = nn.Module()
        self.patch_embed.proj = nn.Conv3d(3, shape.width, kernel, kernel, bias=False)
        self.blocks = nn.ModuleList(TowerLayer(shape) for _ in range(shape.layers))
        merged = shape.width * shape.merge**2
        self.merger = nn.Module()
        self.merger.ln_q = nn.LayerNorm(shape.width, shape.epsilon)
        self.merger.mlp = nn.Sequential(nn.Linear(merged, merged), nn.GELU(), nn.Linear(merged, hidden))

    def size_of(self, grid: tuple[int, int], starts: list[int]) -> Size:
        rows, columns = grid
        merge, half = self.shape.merge, self.shape.width // self.shape.heads // 2
        row, column = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")

        def merged(x: Tensor) -> Tensor:  # patches that become one row lie together
            return x.view(rows // merge, merge, columns // merge, merge).transpose(1, 2).flatten()

        frequency = self.shape.theta ** (-torch.arange(0, half, 2).float() / half)
        angle = torch.cat([torch.outer(merged(x).float(), frequency) for x in (row, column)], dim=-1)
        angle = torch.cat((angle, angle), dim=-1)
        places = torch.tensor(starts)[:, None] + torch.arange(rows * columns)
        return Size(places, angle.cos(), angle.sin())

    def forward(self, seen: Seen) -> Tensor:
        """Rows of all pictures [rows, hidden], one after the other."""
        starts: dict[tuple[int, int], list[int]] = {}
        at = 0
        for rows, columns in seen.grids:
            starts.setdefault((rows, columns), []).append(at)
            at += rows * columns
        sizes = [self.size_of(grid, of) for grid, of in starts.items()]
        x = F.linear(seen.whole(), self.patch_embed.proj.weight.flatten(1))
        for block in self.blocks:
            x = block(x, sizes)
        x = self.merger.ln_q(x)
        return self.merger.mlp(x.view(-1, self.shape.width * self.shape.merge**2))
