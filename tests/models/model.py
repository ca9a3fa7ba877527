"""A small Qwen2, Qwen2-MoE or Qwen2-VL in plain PyTorch: fast to train on a CPU, with Hugging Face's parameter names.

Training works on a flat row of tokens holding many documents, so that no linear layer ever sees
padding; attention alone regroups the tokens into padded blocks of documents of similar length.
Generation keeps a key-value cache of right-aligned rows that may have different lengths.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tower import Seen, Tower, TowerShape, rotary_positions


@dataclass(frozen=True)
class Shape:
    vocabulary: int = 512
    hidden: int = 256
    layers: int = 6
    heads: int = 4
    kv_heads: int = 2
    intermediate: int = 640
    head_dim: int = 64
    theta: float = 10000.0
    epsilon: float = 1e-6
    max_positions: int = 4096
    experts: int = 0  # of `intermediate` each, in every layer; 0: one MLP of that width
    chosen: int = 0  # experts that a token uses; their weights add up to one
    shared: int = 0  # width of the expert that all tokens use
    tower: TowerShape | None = None  # of a model that reads pictures
    sections: tuple[int, ...] = ()  # frequencies that a frame, a row and a column turn; with a tower

    def as_dict(self) -> dict:
        return asdict(self)

    @staticmethod
    def of(values: dict) -> "Shape":
        """Of as_dict()."""
        tower = values.get("tower")
        return Shape(**{**values, "tower": TowerShape(**tower) if tower else None,
                        "sections": tuple(values.get("sections", ()))})


TARGET = Shape()
DRAFT = Shape(hidden=128, layers=3, heads=2, kv_heads=2, intermediate=256)
# The draft model's half of every MLP is shared, and the other half is what each expert begins as.
EXPERTS = replace(DRAFT, intermediate=128, experts=16, chosen=2, shared=128)
# The draft model with a tower. Its four further tokens stand around and for rows of pictures and films.
PICTURES = replace(DRAFT, vocabulary=516, tower=TowerShape(), sections=(8, 12, 12))


class RMSNorm(nn.Module):
    def __init__(self, size: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weight, self.epsilon)


def rope_table(shape: Shape) -> tuple[Tensor, Tensor]:
    frequency = shape.theta ** (-torch.arange(0, shape.head_dim, 2).float() / shape.head_dim)
    angle = torch.outer(torch.arange(shape.max_positions).float(), frequency)
    angle = torch.cat((angle, angle), dim=-1)
    return angle.cos(), angle.sin()


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotary embedding of x [tokens, heads, head_dim]."""
    first, second = x.chunk(2, dim=-1)
    return x * cosine[:, None] + torch.cat((-second, first), dim=-1) * sine[:, None]


class Attention(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.q_proj = nn.Linear(shape.hidden, shape.heads * shape.head_dim)
        self.k_proj = nn.Linear(shape.hidden, shape.kv_heads * shape.head_dim)
        self.v_proj = nn.Linear(shape.hidden, shape.kv_heads * shape.head_dim)
        self.o_proj = nn.Linear(shape.heads * shape.head_dim, shape.hidden, bias=False)

    def qkv(self, x: Tensor, cosine: Tensor, sine: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        size = self.shape.head_dim
        q = self.q_proj(x).view(-1, self.shape.heads, size)
        k = self.k_proj(x).view(-1, self.shape.kv_heads, size)
        v = self.v_proj(x).view(-1, self.shape.kv_heads, size)
        return rotate(q, cosine, sine), rotate(k, cosine, sine), v


class MLP(nn.Module):
    def __init__(self, hidden: int, width: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, width, bias=False)
        self.up_proj = nn.Linear(hidden, width, bias=False)
        self.down_proj = nn.Linear(width, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Experts(nn.Module):
    """A token's experts are those of its largest router logits, as Qwen2-MoE has them.

    `given` [tokens, chosen]: experts to take in their place, those of a rollout; their weights are of the
    router as it is now. After a pass `probabilities` and `ids` are those of its tokens.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.chosen = shape.chosen
        self.gate = nn.Linear(shape.hidden, shape.experts, bias=False)
        self.experts = nn.ModuleList(MLP(shape.hidden, shape.intermediate) for _ in range(shape.experts))
        self.shared_expert = MLP(shape.hidden, shape.shared)
        self.shared_expert_gate = nn.Linear(shape.hidden, 1, bias=False)
        self.given: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.probabilities = self.gate(x).softmax(-1)
        self.ids = self.probabilities.topk(self.chosen).indices if self.given is None else self.given
        weights = self.probabilities.gather(-1, self.ids)
        weights = weights / weights.sum(-1, keepdim=True)
        out = torch.sigmoid(self.shared_expert_gate(x)) * self.shared_expert(x)
        for number, expert in enumerate(self.experts):
            rows, place = (self.ids == number).nonzero(as_tuple=True)
            out = out.index_add(0, rows, expert(x[rows]) * weights[rows, place, None])
        return out


class Layer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(shape.hidden, shape.epsilon)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = RMSNorm(shape.hidden, shape.epsilon)
        self.mlp = Experts(shape) if shape.experts else MLP(shape.hidden, shape.intermediate)

    def before(self, x: Tensor, cosine: Tensor, sine: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.self_attn.qkv(self.input_layernorm(x), cosine, sine)

    def after(self, x: Tensor, attended: Tensor) -> Tensor:
        x = x + self.self_attn.o_proj(attended)
        return x + self.mlp(self.post_attention_layernorm(x))


# Keys and values of rows that later ones see, for each layer.
Past = list[tuple[Tensor, Tensor]]


@dataclass
class Packing:
    """Where each document of a flat row lies, and blocks of documents of similar length."""

    positions: Tensor  # [tokens], or [tokens, 3] where some document shows pictures
    blocks: list[Tensor]
    back: Tensor
    seen: Seen | None = None  # all pictures; `first` are places in the flat row


def pack(lengths: list[int], total: int, waste: float = 0.15) -> Packing:
    """Documents lie one after another, longest first; what is left of `total` is one more document."""
    lengths = lengths + ([total - sum(lengths)] if total > sum(lengths) else [])
    starts = [sum(lengths[:i]) for i in range(len(lengths))]
    positions = torch.cat([torch.arange(n) for n in lengths])
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    groups: list[list[int]] = []
    for i in order:
        if groups and lengths[i] >= (1 - 2 * waste) * lengths[groups[-1][0]]:
            groups[-1].append(i)
        else:
            groups.append([i])
    blocks, back, offset = [], torch.empty(total, dtype=torch.long), 0
    for group in groups:
        width = lengths[group[0]]
        block = torch.zeros(len(group), width, dtype=torch.long)
        for row, i in enumerate(group):
            index = torch.arange(starts[i], starts[i] + lengths[i])
            block[row, : lengths[i]] = index
            back[index] = offset + row * width + torch.arange(lengths[i])
        blocks.append(block)
        offset += block.numel()
    return Packing(positions, blocks, back)


def show(packing: Packing, lengths: list[int], seen: list[Seen | None], merge: int) -> Packing:
    """The packing with the pictures of its documents: `seen` says which each shows, as of pack()'s lengths."""
    if not any(seen):
        return packing
    positions, all_seen, start = [], Seen(), 0
    for length, of in zip(lengths, seen):
        positions.append(rotary_positions(length, of or Seen(), merge))
        if of is not None:
            all_seen.patches.append(of.whole())
            all_seen.grids += of.grids
            all_seen.first += [start + first for first in of.first]
        start += length
    left = len(packing.positions) - start
    positions.append(rotary_positions(left, Seen(), merge))
    return replace(packing, positions=torch.cat(positions), seen=all_seen)


class Qwen2(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        if shape.tower:
            self.visual = Tower(shape.tower, shape.hidden)
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(shape.vocabulary, shape.hidden)
        self.model.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.model.norm = RMSNorm(shape.hidden, shape.epsilon)
        cosine, sine = rope_table(shape)
        self.register_buffer("cosine", cosine, persistent=False)
        self.register_buffer("sine", sine, persistent=False)
        depth_scale = (2 * shape.layers) ** -0.5
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif parameter.dim() == 2:
                out = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(parameter, std=0.02 * (depth_scale if out else 1))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, packing: Packing) -> Tensor:
        repeat = self.shape.heads // self.shape.kv_heads
        k, v = (x.repeat_interleave(repeat, dim=1) for x in (k, v))
        pieces = []
        for block in packing.blocks:
            rows, width = block.shape
            index = block.flatten()
            a, b, c = (x.index_select(0, index).view(rows, width, *x.shape[1:]).transpose(1, 2) for x in (q, k, v))
            out = F.scaled_dot_product_attention(a, b, c, is_causal=True)
            pieces.append(out.transpose(1, 2).reshape(rows * width, -1))
        return torch.cat(pieces).index_select(0, packing.back)

    def turned(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """What [tokens] or [tokens, 3] positions are turned by: a part of each of the three, by `sections`."""
        if positions.dim() == 1:
            return self.cosine[positions], self.sine[positions]
        half = self.shape.head_dim // 2
        part = torch.repeat_interleave(torch.arange(3), torch.tensor(self.shape.sections))
        by = positions[:, part]  # [tokens, half]
        at = torch.arange(half)
        cosine, sine = self.cosine[by, at], self.sine[by, at]
        return torch.cat((cosine, cosine), dim=-1), torch.cat((sine, sine), dim=-1)

    def forward(self, tokens: Tensor, packing: Packing, rows: Tensor | None = None) -> Tensor:
        """Logits [tokens, vocabulary] of a flat row. `rows`: those of its pictures, where they are known."""
        x = self.model.embed_tokens(tokens)
        if packing.seen is not None:
            rows = self.visual(packing.seen) if rows is None else rows
            x = x.index_copy(0, packing.seen.rows(self.shape.tower.merge), rows)
        cosine, sine = self.turned(packing.positions)
        for layer in self.model.layers:
            q, k, v = layer.before(x, cosine, sine)
            x = layer.after(x, self.attend(q, k, v, packing))
        return self.model.norm(x) @ self.model.embed_tokens.weight.t()

    def rows(
        self, tokens: Tensor, positions: Tensor, mask: Tensor | None = None, past: Past | None = None
    ) -> tuple[Tensor, list[Tensor], Past]:
        """Rows [batch, rows] after those whose keys and values are `past`, which a mask lets be trees.

        Gives logits [batch, rows, vocabulary]; the residual streams [batch, rows, hidden] that enter each
        layer; and each layer's keys and values [batch, kv_heads, past + rows, head_dim]. `mask` [batch,
        rows, past + rows] says which rows a row sees; without it (and without a past), those up to itself.
        """
        shape = tokens.shape
        x = self.model.embed_tokens(tokens.flatten())
        cosine, sine = self.cosine[positions.flatten()], self.sine[positions.flatten()]
        repeat = self.shape.heads // self.shape.kv_heads
        streams: list[Tensor] = []
        present: Past = []
        for number, layer in enumerate(self.model.layers):
            streams.append(x.unflatten(0, shape))
            q, k, v = (part.unflatten(0, shape).transpose(1, 2) for part in layer.before(x, cosine, sine))
            if past is not None:
                k, v = torch.cat((past[number][0], k), dim=2), torch.cat((past[number][1], v), dim=2)
            present.append((k, v))
            out = F.scaled_dot_product_attention(
                q, k.repeat_interleave(repeat, dim=1), v.repeat_interleave(repeat, dim=1),
                attn_mask=None if mask is None else mask[:, None], is_causal=mask is None,
            )
            x = layer.after(x, out.transpose(1, 2).reshape(len(x), -1))
        logits = self.model.norm(x) @ self.model.embed_tokens.weight.t()
        return logits.unflatten(0, shape), streams, present

    @torch.no_grad()
    def step(self, tokens: Tensor, positions: Tensor, cache: "Cache") -> Tensor:
        """One token for each row: logits [rows, vocabulary]."""
        x = self.model.embed_tokens(tokens)
        cosine, sine = self.cosine[positions], self.sine[positions]
        rows, span = len(tokens), int(positions.max()) + 1
        mask = (torch.arange(span) <= positions[:, None])[:, None, None]
        index = torch.arange(rows)
        repeat = self.shape.heads // self.shape.kv_heads
        for number, layer in enumerate(self.model.layers):
            q, k, v = layer.before(x, cosine, sine)
            cache.k[number][index, :, positions] = k
            cache.v[number][index, :, positions] = v
            a = q.view(rows, self.shape.kv_heads, repeat, -1)
            out = F.scaled_dot_product_attention(
                a, cache.k[number][:, :, :span], cache.v[number][:, :, :span], attn_mask=mask
            )
            x = layer.after(x, out.reshape(rows, -1))
        return self.model.norm(x) @ self.model.embed_tokens.weight.t()


class Cache:
    """Keys and values [rows, kv_heads, span, head_dim] per layer; grows, and drops finished rows."""

    def __init__(self, shape: Shape, rows: int, span: int) -> None:
        size = (rows, shape.kv_heads, span, shape.head_dim)
        self.k = [torch.zeros(size) for _ in range(shape.layers)]
        self.v = [torch.zeros(size) for _ in range(shape.layers)]

    def reserve(self, span: int) -> None:
        have = self.k[0].shape[2]
        if span > have:
            grow = max(span, 2 * have) - have
            self.k = [F.pad(x, (0, 0, 0, grow)) for x in self.k]
            self.v = [F.pad(x, (0, 0, 0, grow)) for x in self.v]

    def keep(self, rows: Tensor) -> None:
        self.k = [x[rows] for x in self.k]
        self.v = [x[rows] for x in self.v]


@torch.no_grad()
def made_of(dense: Qwen2, shape: Shape) -> Qwen2:
    """A mixture that computes what `dense` does (sparse upcycling, arXiv 2212.05055), to be trained on.

    The first `shared` neurons of an MLP are its shared expert, whose gate begins at a half; the others are in
    every expert.
    """
    model = Qwen2(shape)
    own = model.state_dict()
    for name, weight in dense.state_dict().items():
        if ".mlp." not in name:
            own[name].copy_(weight)
            continue
        prefix, matrix = name.split(".mlp.")
        side = 1 if matrix.startswith("down") else 0
        shared, routed = weight.split((shape.shared, shape.intermediate), dim=side)
        own[f"{prefix}.mlp.shared_expert.{matrix}"].copy_(2 * shared if side else shared)
        for number in range(shape.experts):
            own[f"{prefix}.mlp.experts.{number}.{matrix}"].copy_(routed)
    for layer in model.model.layers:
        layer.mlp.shared_expert_gate.weight.zero_()
    return model


def balance_loss(model: Qwen2) -> Tensor:
    """Of the last pass: 1 where a layer's tokens are spread evenly over its experts, more where not (arXiv 2101.03961)."""
    losses = []
    for layer in model.model.layers:
        mlp = layer.mlp
        count = mlp.gate.out_features
        used = F.one_hot(mlp.ids, count).sum(1).float().mean(0) / mlp.chosen
        losses.append(count * (used * mlp.probabilities.mean(0)).sum())
    return torch.stack(losses).mean()


def parameter_count(shape: Shape) -> int:
    return sum(p.numel() for p in Qwen2(shape).parameters())


if __name__ == "__main__":
    print(f"target {parameter_count(TARGET):,} parameters, draft {parameter_count(DRAFT):,}, "
          f"experts {parameter_count(EXPERTS):,}")
