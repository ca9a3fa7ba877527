"""The DFlash draft head in plain PyTorch (fp32).

Written from the published description: "DFlash: Block Diffusion for Flash Speculative Decoding", arXiv 2602.06036.
Names of tensors and of config.json's keys are those of published checkpoints (z-lab); the nested configuration of
vLLM's speculators is read too.

The context of position i is the target's residual streams of it, joined by `fc` and normalised. Each layer makes keys
and values of it. A block stands behind a context of n positions: token n, which is known, then rows of the mask token
at positions n + 1, n + 2 and so on, in each of which a token is predicted. Rows of a block see the context and all of
the block.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

from eagle3 import MLP, rope
from model import RMSNorm


@dataclass(frozen=True)
class DFlashConfig:
    """What of a head's config.json decides what it computes, under the names it has there."""

    hidden_size: int = 256
    target_hidden_size: int = 256
    intermediate_size: int = 256
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 32
    num_hidden_layers: int = 2
    vocab_size: int = 512
    draft_vocab_size: int = 512
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    block_size: int = 8
    mask_token_id: int = 0
    target_layer_ids: tuple[int, ...] = (0, 2, 4)  # layers of the target whose output is read

    @classmethod
    def from_dict(cls, text: dict) -> DFlashConfig:
        text = {**text.get("transformer_layer_config", {}), **text, **text.get("dflash_config", {})}
        if "aux_hidden_state_layer_ids" in text:
            text["target_layer_ids"] = [layer - 1 for layer in text["aux_hidden_state_layer_ids"]]
        text["target_layer_ids"] = tuple(text["target_layer_ids"])
        defaults = {
            "target_hidden_size": text["hidden_size"],
            "num_key_value_heads": text["num_attention_heads"],
            "head_dim": text["hidden_size"] // text["num_attention_heads"],
            "draft_vocab_size": text["vocab_size"],
        }
        known = {name: text[name] for name in cls.__dataclass_fields__ if text.get(name) is not None}
        return cls(**{**defaults, **known})

    def as_dict(self) -> dict:
        own = {name: getattr(self, name) for name in self.__dataclass_fields__}
        head = {"mask_token_id": own.pop("mask_token_id"), "target_layer_ids": list(own.pop("target_layer_ids"))}
        if own["target_hidden_size"] == self.hidden_size:
            del own["target_hidden_size"]
        if own["draft_vocab_size"] == self.vocab_size:
            del own["draft_vocab_size"]
        return {
            "architectures": ["DFlashDraftModel"],
            "model_type": "qwen3",
            "attention_bias": False,
            "hidden_act": "silu",
            "layer_types": ["full_attention"] * self.num_hidden_layers,
            "tie_word_embeddings": False,
            **own,
            "dflash_config": head,
        }


class Attention(nn.Module):
    def __init__(self, config: DFlashConfig) -> None:
        super().__init__()
        self.config = config
        width, size = config.hidden_size, config.head_dim
        self.q_proj = nn.Linear(width, config.num_attention_heads * size, bias=False)
        self.k_proj = nn.Linear(width, config.num_key_value_heads * size, bias=False)
        self.v_proj = nn.Linear(width, config.num_key_value_heads * size, bias=False)
        self.o_proj = nn.Linear(config.num_attention_heads * size, width, bias=False)
        self.q_norm = RMSNorm(size, config.rms_norm_eps)
        self.k_norm = RMSNorm(size, config.rms_norm_eps)

    def forward(self, x: Tensor, context: Tensor, positions: Tensor, mask: Tensor | None) -> Tensor:
        """Of rows x [rows, hidden] at `positions`, behind a context [past, hidden] at positions from 0 on."""
        heads = lambda rows: rows.unflatten(-1, (-1, self.config.head_dim)).transpose(-3, -2)  # noqa: E731
        seen = torch.cat((context, x), dim=-2)
        past = torch.arange(context.shape[-2]).expand(*positions.shape[:-1], -1)
        places = torch.cat((past, positions), dim=-1)
        theta = self.config.rope_theta
        q = rope(self.q_norm(heads(self.q_proj(x))), positions, theta)
        k = rope(self.k_norm(heads(self.k_proj(seen))), places, theta)
        v = heads(self.v_proj(seen))
        each = self.config.num_attention_heads // self.config.num_key_value_heads
        k, v = (y.repeat_interleave(each, dim=-3) for y in (k, v))
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.o_proj(attended.transpose(-3, -2).flatten(-2))


class Layer(nn.Module):
    def __init__(self, config: DFlashConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = MLP(config)

    def forward(self, x: Tensor, context: Tensor, positions: Tensor, mask: Tensor | None) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), context, positions, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class DFlashHead(nn.Module):
    """The head. `embedding` [vocabulary, hidden] and `output` [draft vocabulary, hidden] are no parameters of it."""

    def __init__(self, config: DFlashConfig, embedding: Tensor, output: Tensor) -> None:
        super().__init__()
        self.config = config
        joined = len(config.target_layer_ids) * config.target_hidden_size
        self.fc = nn.Linear(joined, config.hidden_size, bias=False)
        self.hidden_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.register_buffer("embedding", embedding, persistent=False)
        self.register_buffer("output", output, persistent=False)
        self.register_buffer("d2t", None)  # added to a draft id, it gives the target's; None where they are equal

    def target_ids(self, ids: Tensor) -> Tensor:
        """Ids of the draft vocabulary as the target's."""
        return ids if self.d2t is None else ids + self.d2t[ids]

    def features_of(self, streams: list[Tensor]) -> Tensor:
        """Features of the residual streams that enter the target's layers."""
        return torch.cat([streams[layer + 1] for layer in self.config.target_layer_ids], dim=-1)

    def forward(
        self, tokens: Tensor, features: Tensor, positions: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Logits [rows, draft vocabulary] of rows of blocks, behind the context of `features` [past, joined].

        `mask` [rows, past + rows] says what a row sees. Without `positions` and it, the rows are one block.
        """
        context = self.hidden_norm(self.fc(features))
        if positions is None:
            positions = features.shape[-2] + torch.arange(tokens.shape[-1])
        x = self.embedding[tokens]
        for layer in self.layers:
            x = layer(x, context, positions, mask)
        return F.linear(self.norm(x), self.output)

    def block_of(self, last: Tensor) -> Tensor:
        """Tokens [..., block] of blocks that begin with `last` [...]."""
        masks = torch.full((*last.shape, self.config.block_size - 1), self.config.mask_token_id)
        return torch.cat((last[..., None], masks), dim=-1)


def load_head(directory: Path, embedding: Tensor, output: Tensor) -> DFlashHead:
    """A published head, computed with in fp32. Embedding and output are the target's, if it has none of its own."""
    config = DFlashConfig.from_dict(json.loads((directory / "config.json").read_text()))
    tensors = load_file(directory / "model.safetensors")
    own = {"embed_tokens.weight": embedding, "lm_head.weight": output}
    embedding, output = (tensors.pop(name, given).float() for name, given in own.items())
    head = DFlashHead(config, embedding, output)
    head.d2t = tensors.pop("d2t", None)
    tensors.pop("t2d", None)
    missing, unexpected = head.load_state_dict({name: x.float() for name, x in tensors.items()}, strict=False)
    if unexpected or set(missing) - {"d2t"}:
        raise ValueError(f"{directory}: no DFlash head: missing {missing}, unexpected {unexpected}")
    return head.eval()
