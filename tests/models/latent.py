"""A small DeepSeek-V3 in plain PyTorch, with its next-token layer: trained by train_latent.py, in Hugging Face's names.

As in model.py a pass is over a flat row of documents. Keys and values are taken out of the latent vectors here, where
rows are many; paceline takes queries into their space, which is the same up to rounding.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

from model import MLP, Packing, RMSNorm


@dataclass(frozen=True)
class LatentShape:
    vocabulary: int = 512
    hidden: int = 128
    layers: int = 3  # beside the next-token layer; the first has one MLP, the others experts
    heads: int = 4
    nope: int = 32  # of a head's query and key, what is not turned
    rope: int = 32  # what is, one key for all heads
    value: int = 64
    rank: int = 64  # of a latent vector
    intermediate: int = 256  # of the first layer's MLP
    experts: int = 8
    chosen: int = 2
    width: int = 64  # of an expert, and of the shared one
    theta: float = 10000.0
    epsilon: float = 1e-6
    max_positions: int = 4096

    def as_dict(self) -> dict:
        return asdict(self)


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotary embedding of neighbouring pairs of x [tokens, heads, rope]; cosine and sine [tokens, rope / 2]."""
    even, odd = x[..., 0::2], x[..., 1::2]
    cosine, sine = cosine[:, None], sine[:, None]
    return torch.stack((even * cosine - odd * sine, even * sine + odd * cosine), dim=-1).flatten(-2)


class Attention(nn.Module):
    def __init__(self, shape: LatentShape) -> None:
        super().__init__()
        self.shape = shape
        self.q_proj = nn.Linear(shape.hidden, shape.heads * (shape.nope + shape.rope), bias=False)
        self.kv_a_proj_with_mqa = nn.Linear(shape.hidden, shape.rank + shape.rope, bias=False)
        self.kv_a_layernorm = RMSNorm(shape.rank, shape.epsilon)
        self.kv_b_proj = nn.Linear(shape.rank, shape.heads * (shape.nope + shape.value), bias=False)
        self.o_proj = nn.Linear(shape.heads * shape.value, shape.hidden, bias=False)

    def forward(self, x: Tensor, turned: tuple[Tensor, Tensor], packing: Packing) -> Tensor:
        shape = self.shape
        queries = self.q_proj(x).view(-1, shape.heads, shape.nope + shape.rope)
        still, turning = queries.split((shape.nope, shape.rope), dim=-1)
        latent, key = self.kv_a_proj_with_mqa(x).split((shape.rank, shape.rope), dim=-1)
        out = self.kv_b_proj(self.kv_a_layernorm(latent)).view(-1, shape.heads, shape.nope + shape.value)
        keys, values = out.split((shape.nope, shape.value), dim=-1)
        key = rotate(key[:, None], *turned).expand(-1, shape.heads, -1)
        q = torch.cat((still, rotate(turning, *turned)), dim=-1)
        k = torch.cat((keys, key), dim=-1)
        pieces = []
        for block in packing.blocks:
            rows, width = block.shape
            index = block.flatten()
            a, b, c = (t.index_select(0, index).view(rows, width, *t.shape[1:]).transpose(1, 2) for t in (q, k, values))
            attended = F.scaled_dot_product_attention(a, b, c, is_causal=True)
            pieces.append(attended.transpose(1, 2).reshape(rows * width, -1))
        return self.o_proj(torch.cat(pieces).index_select(0, packing.back))


class Router(nn.Module):
    def __init__(self, shape: LatentShape) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(shape.experts, shape.hidden))
        self.register_buffer("e_score_correction_bias", torch.zeros(shape.experts))


class Experts(nn.Module):
    """A token's experts are those of its largest corrected scores; their weights are the scores themselves.

    After a pass `used` says how many tokens each expert had, by which `balance` moves the correction (arXiv 2408.15664).
    """

    def __init__(self, shape: LatentShape) -> None:
        super().__init__()
        self.chosen = shape.chosen
        self.gate = Router(shape)
        self.experts = nn.ModuleList(MLP(shape.hidden, shape.width) for _ in range(shape.experts))
        self.shared_experts = MLP(shape.hidden, shape.width)

    def forward(self, x: Tensor) -> Tensor:
        scores = (x @ self.gate.weight.t()).sigmoid()
        ids = (scores + self.gate.e_score_correction_bias).topk(self.chosen).indices
        weights = scores.gather(-1, ids)
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        self.used = F.one_hot(ids, len(self.experts)).sum((0, 1)).float()
        out = self.shared_experts(x)
        for number, expert in enumerate(self.experts):
            rows, place = (ids == number).nonzero(as_tuple=True)
            out = out.index_add(0, rows, expert(x[rows]) * weights[rows, place, None])
        return out

    @torch.no_grad()
    def balance(self, rate: float) -> None:
        self.gate.e_score_correction_bias += rate * torch.sign(self.used.mean() - self.used)


class Layer(nn.Module):
    def __init__(self, shape: LatentShape, mixture: bool) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(shape.hidden, shape.epsilon)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = RMSNorm(shape.hidden, shape.epsilon)
        self.mlp = Experts(shape) if mixture else MLP(shape.hidden, shape.intermediate)

    def forward(self, x: Tensor, turned: tuple[Tensor, Tensor], packing: Packing) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), turned, packing)
        return x + self.mlp(self.post_attention_layernorm(x))


class NextToken(Layer):
    """The layer behind the others: of a token and the state before it, the state that the next token comes from."""

    def __init__(self, shape: LatentShape) -> None:
        super().__init__(shape, mixture=True)
        self.enorm = RMSNorm(shape.hidden, shape.epsilon)
        self.hnorm = RMSNorm(shape.hidden, shape.epsilon)
        self.eh_proj = nn.Linear(2 * shape.hidden, shape.hidden, bias=False)
        self.shared_head = nn.Module()
        self.shared_head.norm = RMSNorm(shape.hidden, shape.epsilon)

    def forward(self, embedded: Tensor, states: Tensor, turned: tuple[Tensor, Tensor], packing: Packing) -> Tensor:
        x = self.eh_proj(torch.cat((self.enorm(embedded), self.hnorm(states)), dim=-1))
        return self.shared_head.norm(super().forward(x, turned, packing))


class DeepseekV3(nn.Module):
    def __init__(self, shape: LatentShape) -> None:
        super().__init__()
        self.shape = shape
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(shape.vocabulary, shape.hidden)
        self.model.layers = nn.ModuleList([*(Layer(shape, n > 0) for n in range(shape.layers)), NextToken(shape)])
        self.model.norm = RMSNorm(shape.hidden, shape.epsilon)
        self.lm_head = nn.Linear(shape.hidden, shape.vocabulary, bias=False)
        frequency = shape.theta ** (-torch.arange(0, shape.rope, 2).float() / shape.rope)
        angle = torch.outer(torch.arange(shape.max_positions).float(), frequency)
        self.register_buffer("cosine", angle.cos(), persistent=False)
        self.register_buffer("sine", angle.sin(), persistent=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                out = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(parameter, std=0.02 * ((2 * shape.layers) ** -0.5 if out else 1))

    def turned(self, packing: Packing) -> tuple[Tensor, Tensor]:
        return self.cosine[packing.positions], self.sine[packing.positions]

    def states(self, tokens: Tensor, packing: Packing) -> Tensor:
        """[tokens, hidden] that the head reads, after the last norm."""
        x, turned = self.model.embed_tokens(tokens), self.turned(packing)
        for layer in self.model.layers[:-1]:
            x = layer(x, turned, packing)
        return self.model.norm(x)

    def following(self, next_tokens: Tensor, states: Tensor, packing: Packing) -> Tensor:
        """States of the next-token layer: row i has the token at i + 1 beside the state at i, and foretells the one at i + 2."""
        return self.model.layers[-1](self.model.embed_tokens(next_tokens), states, self.turned(packing), packing)

    def mixtures(self) -> list[Experts]:
        return [layer.mlp for layer in self.model.layers if isinstance(layer.mlp, Experts)]


def load_latent(directory: Path) -> DeepseekV3:
    """An exported model: its bf16 weights, computed with in fp32."""
    config = json.loads((directory / "config.json").read_text())
    model = DeepseekV3(LatentShape(
        vocabulary=config["vocab_size"], hidden=config["hidden_size"], layers=config["num_hidden_layers"],
        heads=config["num_attention_heads"], nope=config["qk_nope_head_dim"], rope=config["qk_rope_head_dim"],
        value=config["v_head_dim"], rank=config["kv_lora_rank"], intermediate=config["intermediate_size"],
        experts=config["n_routed_experts"], chosen=config["num_experts_per_tok"], width=config["moe_intermediate_size"],
        theta=config["rope_theta"], epsilon=config["rms_norm_eps"], max_positions=config["max_position_embeddings"],
    ))
    model.load_state_dict({name: tensor.float() for name, tensor in load_file(directory / "model.safetensors").items()})
    return model.eval()
