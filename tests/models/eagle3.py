"""The EAGLE-3 draft head in plain PyTorch (fp32), its dynamic draft tree, and its training-time test.

Written from the published description: Li et al., "EAGLE-3", arXiv 2503.01840, for the head and
how it is trained; "EAGLE-2", arXiv 2406.16858, for the tree; arXiv 2605.09992 for the norms of EAGLE-3.1;
"P-EAGLE", arXiv 2602.01469, for heads that draft all tokens in one pass, by masked rows.
Names of tensors and of config.json's keys are those of published checkpoints (SafeAILab); vLLM's
`layers.0.` for `midlayer.` is read too, and the nested configuration of its speculators. Layers after the
first, `layers.1.` and so on, are ordinary ones.

Row i of the head takes the embedding of token i + 1 and a feature of token i, and predicts token
i + 2. A feature comes from the target (three residual streams) where the target has computed the
token, and is the head's own output where it has not: the *recurrent* feature. Everything takes any
leading batch dimensions; sizes in comments leave them out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

from model import RMSNorm


@dataclass(frozen=True)
class Eagle3Config:
    """What of a head's config.json decides what it computes, under the names it has there."""

    hidden_size: int = 256
    target_hidden_size: int = 256
    intermediate_size: int = 640
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 64
    vocab_size: int = 512
    draft_vocab_size: int = 512
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    norm_before_residual: bool = False
    fc_norm: bool = False  # a norm of each layer's features before fc joins them
    norm_before_fc: bool = False  # or one of all of them
    norm_output: bool = False  # recurrent features are what the last norm gives
    qk_norm: bool = False  # of queries and keys, as in Qwen3; by "model_type" in config.json
    num_hidden_layers: int = 1
    mask_token_id: int | None = None  # P-EAGLE: the token of masked rows
    features: int = 3  # layers of the target that features come from; by their list in config.json

    @classmethod
    def from_dict(cls, text: dict) -> Eagle3Config:
        nested = text.get("transformer_layer_config", {})
        ids = text.get("eagle_aux_hidden_state_layer_ids") or text.get("eagle_config", {}).get(
            "eagle_aux_hidden_state_layer_ids"
        )
        mask = next((text[key] for key in ("mask_token_id", "pard_token", "ptd_token_id") if key in text), None)
        text = {**nested, **text, "mask_token_id": mask}
        text = {**text, "features": len(ids) if ids else 3, "qk_norm": nested.get("model_type") == "qwen3"}
        defaults = {
            "target_hidden_size": text["hidden_size"],
            "num_key_value_heads": text["num_attention_heads"],
            "head_dim": text["hidden_size"] // text["num_attention_heads"],
            "draft_vocab_size": text["vocab_size"],
        }
        known = {name: text[name] for name in cls.__dataclass_fields__ if text.get(name) is not None}
        return cls(**{**defaults, **known})

    def as_dict(self) -> dict:
        usual = {"fc_norm", "norm_before_fc", "norm_output", "qk_norm", "features"}
        own = {name: value for name, value in asdict(self).items() if name not in usual or value is True}
        if self.mask_token_id is None:
            del own["mask_token_id"]
        return {
            "architectures": ["LlamaForCausalLMEagle3"],
            "model_type": "llama",
            "hidden_act": "silu",
            "tie_word_embeddings": False,
            **{name: value for name, value in own.items() if name != "qk_norm"},
        }


def feature_layers(layers: int) -> tuple[int, int, int]:
    """The layers of the target whose input is a feature, as published also where two coincide."""
    return 2, layers // 2, layers - 3


def features_of(streams: list[Tensor]) -> Tensor:
    """Features [rows, 3 hidden] of the residual streams that enter the target's layers."""
    return torch.cat([streams[layer] for layer in feature_layers(len(streams))], dim=-1)


def rope(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """Rotary embedding of x [heads, rows, head_dim] at positions [rows]."""
    size = x.shape[-1]
    frequency = theta ** (-torch.arange(0, size, 2).float() / size)
    angle = positions[..., None, :, None].float() * frequency
    angle = torch.cat((angle, angle), dim=-1)
    first, second = x.chunk(2, dim=-1)
    return x * angle.cos() + torch.cat((-second, first), dim=-1) * angle.sin()


class Attention(nn.Module):
    """Attention. Its input is twice as wide as its output in the first layer: embedding beside feature."""

    def __init__(self, config: Eagle3Config, width: int) -> None:
        super().__init__()
        self.config = config
        size = config.head_dim
        self.q_proj = nn.Linear(width, config.num_attention_heads * size, bias=False)
        self.k_proj = nn.Linear(width, config.num_key_value_heads * size, bias=False)
        self.v_proj = nn.Linear(width, config.num_key_value_heads * size, bias=False)
        self.o_proj = nn.Linear(config.num_attention_heads * size, config.hidden_size, bias=False)
        self.q_norm = RMSNorm(size, config.rms_norm_eps) if config.qk_norm else nn.Identity()
        self.k_norm = RMSNorm(size, config.rms_norm_eps) if config.qk_norm else nn.Identity()

    def qkv(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of rows x [rows, width]: queries, keys, values [heads, rows, head_dim]."""
        q, k, v = (
            projection(x).unflatten(-1, (-1, self.config.head_dim)).transpose(-3, -2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        theta = self.config.rope_theta
        return rope(self.q_norm(q), positions, theta), rope(self.k_norm(k), positions, theta), v

    def for_each_query_head(self, x: Tensor) -> Tensor:
        """Keys or values [kv heads, ...] as [heads, ...]."""
        return x.repeat_interleave(self.config.num_attention_heads // self.config.num_key_value_heads, dim=-3)

    def output(self, attended: Tensor) -> Tensor:
        return self.o_proj(attended.transpose(-3, -2).flatten(-2))


class MLP(nn.Module):
    def __init__(self, config: Eagle3Config) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Midlayer(nn.Module):
    """The head's first decoder layer, in two halves: all that precedes attention, all that follows."""

    def __init__(self, config: Eagle3Config) -> None:
        super().__init__()
        self.norm_before_residual = config.norm_before_residual
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.hidden_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config, 2 * config.hidden_size)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = MLP(config)

    def before(self, embedded: Tensor, stream: Tensor, positions: Tensor) -> tuple[Tensor, ...]:
        """The residual [rows, hidden], and queries, keys, values."""
        normed = self.hidden_norm(stream)
        residual = normed if self.norm_before_residual else stream
        return residual, *self.self_attn.qkv(torch.cat((self.input_layernorm(embedded), normed), dim=-1), positions)

    def after(self, residual: Tensor, attended: Tensor) -> Tensor:
        residual = residual + self.self_attn.output(attended)
        return residual + self.mlp(self.post_attention_layernorm(residual))


class Layer(nn.Module):
    """A further decoder layer, in the same halves."""

    def __init__(self, config: Eagle3Config) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config, config.hidden_size)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = MLP(config)

    def before(self, stream: Tensor, positions: Tensor) -> tuple[Tensor, ...]:
        return stream, *self.self_attn.qkv(self.input_layernorm(stream), positions)

    after = Midlayer.after


@dataclass
class Rows:
    """What a pass over rows gives, and the keys and values of these rows and of all before them."""

    logits: Tensor  # [rows, draft vocabulary]
    features: Tensor  # [rows, hidden], recurrent
    keys: Tensor  # [layers x kv heads, past + rows, head_dim]
    values: Tensor


class Eagle3Head(nn.Module):
    """The head. `embedding` [vocabulary, hidden], the target's or its own, is no parameter of the head."""

    def __init__(self, config: Eagle3Config, embedding: Tensor) -> None:
        super().__init__()
        self.config = config
        joined = config.features * config.target_hidden_size
        self.fc = nn.Linear(joined, config.hidden_size, bias=False)
        if config.fc_norm:
            norms = (RMSNorm(config.target_hidden_size, config.rms_norm_eps) for _ in range(config.features))
            self.fc_norm = nn.ModuleList(norms)
        if config.norm_before_fc:
            self.input_norm = RMSNorm(joined, config.rms_norm_eps)
        self.midlayer = Midlayer(config)
        self.layers = nn.ModuleDict({str(n): Layer(config) for n in range(1, config.num_hidden_layers)})
        if config.mask_token_id is not None:
            self.mask_hidden = nn.Parameter(torch.zeros(1, 1, joined))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.lm_head = nn.Linear(config.hidden_size, config.draft_vocab_size, bias=False)
        self.register_buffer("embedding", embedding, persistent=False)
        # How draft ids are made target ids, and which target ids have one; None where they are equal.
        self.register_buffer("d2t", None)
        self.register_buffer("t2d", None)

    def target_ids(self, ids: Tensor) -> Tensor:
        """Ids of the draft vocabulary as the target's."""
        return ids if self.d2t is None else ids + self.d2t[ids]

    def stream_of(self, features: Tensor) -> Tensor:
        """The target's features [rows, 3 target hidden] reduced, recurrent ones [rows, hidden] as they are."""
        if features.shape[-1] == self.config.hidden_size:
            return features
        if self.config.norm_before_fc:
            features = self.input_norm(features)
        if self.config.fc_norm:
            parts = features.chunk(self.config.features, dim=-1)
            features = torch.cat([norm(part) for norm, part in zip(self.fc_norm, parts)], dim=-1)
        return self.fc(features)

    def forward(
        self,
        tokens: Tensor,
        features: Tensor,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
        past: tuple[Tensor, Tensor] | None = None,
    ) -> Rows:
        """One pass over rows [rows] after those whose keys and values are `past`.

        `tokens` are those that follow the features' own. `mask` [rows, past + rows] says which rows a
        row sees; without it, all before it and itself. `positions` go on from `past` by default.
        """
        count, before = tokens.shape[-1], 0 if past is None else past[0].shape[-2]
        if positions is None:
            positions = torch.arange(before, before + count)
        if mask is None:
            mask = torch.ones(count, before + count, dtype=torch.bool).tril(before)
        out, keys, values = self.stream_of(features), [], []
        count = self.config.num_hidden_layers
        for n, layer in enumerate((self.midlayer, *self.layers.values())):
            read = (self.embedding[tokens], out) if n == 0 else (out,)
            residual, q, k, v = layer.before(*read, positions)
            if past is not None:
                k, v = (torch.cat((held.chunk(count, dim=-3)[n], new), dim=-2) for held, new in zip(past, (k, v)))
            each = layer.self_attn.for_each_query_head
            attended = F.scaled_dot_product_attention(q, each(k), each(v), attn_mask=mask.unsqueeze(-3))
            out = layer.after(residual, attended)
            keys.append(k)
            values.append(v)
        normed = self.norm(out)
        recurrent = normed if self.config.norm_output else out
        return Rows(self.lm_head(normed), recurrent, torch.cat(keys, dim=-3), torch.cat(values, dim=-3))

    def at_once(self, tokens: Tensor, features: Tensor, ahead: int) -> Tensor:
        """Logits [rows + ahead, draft vocabulary] of the text's rows and of `ahead` masked rows behind them.

        The last row of the text has those of the token after it, each masked row those of a further token.
        """
        masks = torch.full((ahead,), self.config.mask_token_id)
        masked = self.mask_hidden.view(1, -1).expand(ahead, -1)
        return self(torch.cat((tokens, masks)), torch.cat((features, masked))).logits


def load_head(directory: Path, embedding: Tensor) -> Eagle3Head:
    """A published head, computed with in fp32."""
    config = Eagle3Config.from_dict(json.loads((directory / "config.json").read_text()))
    tensors = load_file(directory / "model.safetensors")
    own = tensors.pop("embed_tokens.weight", None)
    head = Eagle3Head(config, embedding if own is None else own.float())
    head.d2t, head.t2d = tensors.pop("d2t", None), tensors.pop("t2d", None)
    maps = {name for name in ("d2t", "t2d") if getattr(head, name) is not None}
    weights = {name.replace("layers.0.", "midlayer."): tensor.float() for name, tensor in tensors.items()}
    if "mask_hidden" in weights:
        weights["mask_hidden"] = weights["mask_hidden"].view(1, 1, -1)
    missing, unexpected = head.load_state_dict(weights, strict=False)
    if unexpected or set(missing) - maps:
        raise ValueError(f"{directory}: no EAGLE-3 head: missing {missing}, unexpected {unexpected}")
    return head.eval()


def draft_chain(head: Eagle3Head, tokens: Tensor, features: Tensor, noise: Tensor, temperature: float) -> Tensor:
    """A chain of len(noise) tokens drafted under the target's noise [length, vocabulary], one a pass.

    `tokens` [rows] and `features` [rows, 3 target hidden] are the text's without its first token
    and without its last feature. Temperature 0 is greedy.
    """
    drafted = []
    rows = head(tokens, features)
    ids = head.target_ids(torch.arange(head.config.draft_vocab_size))
    for step in range(len(noise)):
        last = rows.logits[-1]
        value = last if temperature == 0 else last / temperature + noise[step, ids]
        drafted.append(ids[value.argmax()])
        if step + 1 < len(noise):
            rows = head(drafted[-1][None], rows.features[-1:], past=(rows.keys, rows.values))
    return torch.stack(drafted)


@dataclass
class Tree:
    """A dynamic tree as it grew: every candidate, and the rows that the head was run on.

    Row 0 is the root, the last committed token; rows 1 + (d - 1) width ... are the frontier of depth
    d, d = 1 ... depth: the candidates that were expanded. Candidates are in the order in which they
    were drafted: `width` of depth 1, then width^2 of each depth after it.
    """

    width: int
    tokens: Tensor  # [candidates], the target's ids
    scores: Tensor  # [candidates], cumulative log-probabilities
    parents: Tensor  # [candidates], the row each was drafted from
    depths: Tensor  # [candidates] (the same for all of a batch)
    row_tokens: Tensor  # [rows]; the root's is not known here and 0
    row_candidates: Tensor  # [rows], the candidate each row is; the root's is -1
    row_depths: Tensor  # [rows] (the same for all of a batch)
    ancestry: Tensor  # [rows, rows] bool: which rows each sees, itself included
    frontiers: Tensor  # [calls, width], the frontier's scores after each call of the head

    def best(self, calls: int, total: int) -> Tensor:
        """The candidates of the tree that `calls` calls give, root not counted among its `total`: [total - 1].

        In the order in which they were drafted, so that parents come before their children. A parent
        is never worse than its child, and of equals the earlier counts: none is chosen without it.
        """
        count = self.width + (calls - 1) * self.width**2
        order = self.scores[..., :count].argsort(dim=-1, descending=True, stable=True)
        return order[..., : total - 1].sort(dim=-1).values


def grow_tree(
    head: Eagle3Head, root: Rows, past_mask: Tensor, positions: Tensor, depth: int = 7, width: int = 10
) -> Tree:
    """Expands the `width` best candidates `depth` times, for each of a batch [batch] of texts.

    `root` is the pass that had the texts' last rows as its last: logits [batch, vocabulary] and
    features [batch, hidden] of those rows alone, keys and values [batch, kv heads, past, head_dim] of
    all. `past_mask` [batch, past] says which of `past` belong to the text, `positions` [batch] are those
    of the last rows. Depth d takes d + 1 calls of the head, the root's included.
    """
    batch, vocabulary = root.logits.shape
    spread = torch.arange(batch)[:, None]
    scores, ids = torch.log_softmax(root.logits, dim=-1).topk(width, dim=-1)
    tokens = head.target_ids(ids)
    features = root.features[:, None].expand(-1, width, -1)
    past = root.keys, root.values
    # What the frontier's rows see of the frontiers so far, themselves included.
    seen = torch.eye(width, dtype=torch.bool).expand(batch, -1, -1)
    candidates = torch.arange(width).expand(batch, -1)

    pool = [(tokens, scores, torch.zeros_like(tokens))]
    rows = [(tokens, candidates, seen)]
    frontiers = [scores]
    for call in range(1, depth + 1):
        mask = torch.cat((past_mask[:, None].expand(-1, width, -1), seen), dim=-1)
        out = head(tokens, features, (positions + call)[:, None].expand(-1, width), mask, past)
        past = out.keys, out.values
        gains, ids = torch.log_softmax(out.logits, dim=-1).topk(width, dim=-1)
        child_scores = (scores[..., None] + gains).flatten(-2)
        child_tokens = head.target_ids(ids).flatten(-2)
        row = 1 + (call - 1) * width + torch.arange(width).repeat_interleave(width)
        drafted = width + (call - 1) * width**2
        pool.append((child_tokens, child_scores, row.expand(batch, -1)))

        scores, chosen = child_scores.topk(width, dim=-1)
        parent = chosen // width
        tokens, features, candidates = child_tokens[spread, chosen], out.features[spread, parent], drafted + chosen
        seen = torch.cat((seen[spread, parent], torch.eye(width, dtype=torch.bool).expand(batch, -1, -1)), dim=-1)
        frontiers.append(scores)
        if call < depth:
            rows.append((tokens, candidates, seen))

    count = 1 + depth * width
    ancestry = torch.zeros(batch, count, count, dtype=torch.bool)
    ancestry[..., 0] = True
    for level, (_, _, visible) in enumerate(rows):
        first = 1 + level * width
        ancestry[:, first : first + width, 1 : first + width] = visible
    root_token = torch.zeros(batch, 1, dtype=torch.long)
    levels = torch.arange(1, depth + 2)
    sizes = torch.tensor([width] + depth * [width**2])
    return Tree(
        width=width,
        tokens=torch.cat([entry[0] for entry in pool], dim=-1),
        scores=torch.cat([entry[1] for entry in pool], dim=-1),
        parents=torch.cat([entry[2] for entry in pool], dim=-1),
        depths=levels.repeat_interleave(sizes),
        row_tokens=torch.cat([root_token] + [entry[0] for entry in rows], dim=-1),
        row_candidates=torch.cat([root_token - 1] + [entry[1] for entry in rows], dim=-1),
        row_depths=torch.arange(depth + 1).repeat_interleave(torch.tensor([1] + depth * [width])),
        ancestry=ancestry,
        frontiers=torch.stack(frontiers, dim=-2),
    )


def unroll(
    head: Eagle3Head, tokens: Tensor, features: Tensor, steps: int, followed: Tensor | None = None
) -> Iterator[Tensor]:
    """The training-time test: drafting as it will be, for many places of a text at once.

    Of a text's `tokens` [length] and the target's `features` [length, 3 target hidden]. Step i yields
    logits [rows, draft vocabulary]; that of row t predicts token t + 2 + i, having drafted i tokens (the
    text's own) after token t + 1: it sees the rows 0 ... t with the target's features, and its own rows
    of the steps before. Step 0 has all rows, later ones those in `followed` (all without it). Rows
    t >= length - 1 - i have no such token and mean nothing. Rows of later steps are masked ones where the head
    has such, and then know no token after t + 1.
    """
    length = tokens.shape[-1]
    scale = head.config.head_dim**-0.5
    rows = torch.arange(length)
    stream = head.stream_of(features)
    layers = (head.midlayer, *head.layers.values())
    held: list[tuple[list[Tensor], list[Tensor]]] = [([], []) for _ in layers]
    for step in range(steps):
        if step == 1 and followed is not None:
            rows, stream = followed, stream[..., followed, :]
        following = tokens[..., (rows + step + 1).clamp(max=length - 1)]
        if step > 0 and head.config.mask_token_id is not None:
            following = torch.full_like(following, head.config.mask_token_id)
            stream = head.stream_of(head.mask_hidden.view(-1)).expand_as(stream)
        for layer, (keys, values) in zip(layers, held):
            attention = layer.self_attn
            read = (head.embedding[following], stream) if layer is head.midlayer else (stream,)
            residual, q, k, v = layer.before(*read, rows + step)
            keys.append(attention.for_each_query_head(k))
            values.append(attention.for_each_query_head(v))
            if step == 0:
                attended = F.scaled_dot_product_attention(q, keys[0], values[0], is_causal=True)
            else:
                text = q @ keys[0].transpose(-1, -2) * scale
                text = text.masked_fill(torch.arange(length) > rows[:, None], float("-inf"))
                own = [(q * key).sum(-1, keepdim=True) * scale for key in keys[1:]]
                weight = torch.softmax(torch.cat((text, *own), dim=-1), dim=-1)
                attended = weight[..., :length] @ values[0]
                for i, value in enumerate(values[1:]):
                    attended = attended + weight[..., length + i, None] * value
            stream = layer.after(residual, attended)
        yield head.lm_head(head.norm(stream))
