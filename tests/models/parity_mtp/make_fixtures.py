#!/usr/bin/env python3
"""Makes the parity fixtures of next-token layers: small random ones, and what the published computation gives.

    python make_fixtures.py [NAME]...

Needs torch and transformers 5, whose DeepSeek-V3 layer computes; what is before and behind it is spelt here, as the
published code has it. Writes one folder a layer beside this file; the README says what is in it.
"""

import json
import math
import pathlib
import shutil
import sys
import tempfile

import torch
import transformers
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent
ROWS = 70  # past the first attention tile
CHAIN = 5  # tokens drafted in turn
# A tree of drafted tokens by levels: the node each follows, -1 for the text.
LEVELS = ([-1, -1, -1], [0, 0, 2, 1], [4, 3, 4, 6], [8, 7])

LAYERS = {
    # All that DeepSeek-V3 has: its checkpoint stores embeddings and head of the layer too.
    "groups": dict(q_lora_rank=24, n_group=4, topk_group=2, n_shared_experts=1, own=True),
    "plain": dict(q_lora_rank=None, n_group=1, topk_group=1, n_shared_experts=2, own=False,
                  rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0,
                                       original_max_position_embeddings=32, mscale=1.0, mscale_all_dim=1.0)),
}


def config_of(rope_parameters=None, **keys) -> dict:
    """config.json of a model of two layers and one behind them."""
    return dict(
        architectures=["DeepseekV3ForCausalLM"], model_type="deepseek_v3", dtype="bfloat16", vocab_size=96,
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_nextn_predict_layers=1, num_attention_heads=4,
        num_key_value_heads=4, kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16,
        n_routed_experts=8, num_experts_per_tok=2, moe_intermediate_size=16, first_k_dense_replace=1,
        moe_layer_freq=1, scoring_func="sigmoid", topk_method="noaux_tc", norm_topk_prob=True,
        routed_scaling_factor=2.5, rms_norm_eps=1e-5, hidden_act="silu", max_position_embeddings=128,
        tie_word_embeddings=False, bos_token_id=None, eos_token_id=2,
        rope_parameters=rope_parameters or dict(rope_type="default", rope_theta=10000.0), **keys)


def shapes_of(config: dict, own: bool) -> dict[str, list[int]]:
    """The layer's tensors, and those of the model that it needs."""
    hidden, vocab, heads = config["hidden_size"], config["vocab_size"], config["num_attention_heads"]
    nope, rope, value = config["qk_nope_head_dim"], config["qk_rope_head_dim"], config["v_head_dim"]
    rank, q_rank, experts = config["kv_lora_rank"], config["q_lora_rank"], config["n_routed_experts"]
    p = f"model.layers.{config['num_hidden_layers']}."
    shapes = {
        "model.embed_tokens.weight": [vocab, hidden], "model.norm.weight": [hidden], "lm_head.weight": [vocab, hidden],
        p + "enorm.weight": [hidden], p + "hnorm.weight": [hidden], p + "eh_proj.weight": [hidden, 2 * hidden],
        p + "shared_head.norm.weight": [hidden],
        p + "input_layernorm.weight": [hidden], p + "post_attention_layernorm.weight": [hidden],
        p + "self_attn.kv_a_proj_with_mqa.weight": [rank + rope, hidden], p + "self_attn.kv_a_layernorm.weight": [rank],
        p + "self_attn.kv_b_proj.weight": [heads * (nope + value), rank],
        p + "self_attn.o_proj.weight": [hidden, heads * value],
        p + "mlp.gate.weight": [experts, hidden], p + "mlp.gate.e_score_correction_bias": [experts],
    }
    if q_rank is None:
        shapes[p + "self_attn.q_proj.weight"] = [heads * (nope + rope), hidden]
    else:
        shapes |= {p + "self_attn.q_a_proj.weight": [q_rank, hidden], p + "self_attn.q_a_layernorm.weight": [q_rank],
                   p + "self_attn.q_b_proj.weight": [heads * (nope + rope), q_rank]}
    inner = config["moe_intermediate_size"]
    widths = {f"mlp.experts.{i}.": inner for i in range(experts)}
    widths["mlp.shared_experts."] = inner * config["n_shared_experts"]
    for name, width in widths.items():
        shapes |= {f"{p}{name}gate_proj.weight": [width, hidden], f"{p}{name}up_proj.weight": [width, hidden],
                   f"{p}{name}down_proj.weight": [hidden, width]}
    if own:
        shapes |= {p + "embed_tokens.weight": [vocab, hidden], p + "shared_head.head.weight": [vocab, hidden]}
    return shapes


def random_tensors(shapes: dict[str, list[int]]) -> dict[str, torch.Tensor]:
    tensors = {}
    for name, shape in shapes.items():
        noise = torch.randn(shape)
        if name.endswith("correction_bias"):
            value = 0.1 * noise
        elif len(shape) == 1:
            value = 1 + 0.1 * noise
        else:
            value = noise if "embed" in name else 1.5 * noise / math.sqrt(shape[-1])
        tensors[name] = value.bfloat16()
    return tensors


def block_of(config: dict, tensors: dict[str, torch.Tensor]):
    """The layer's attention and experts, and the rotary embedding: a model's of transformers, whose one layer it is."""
    text = config | {"num_hidden_layers": 1, "first_k_dense_replace": 0, "num_nextn_predict_layers": 0}
    prefix = f"model.layers.{config['num_hidden_layers']}."
    before_and_behind = ("enorm", "hnorm", "eh_proj", "shared_head", "embed_tokens")
    alone = {name.replace(prefix, "model.layers.0."): value for name, value in tensors.items()
             if not name.startswith(tuple(prefix + part for part in before_and_behind))}
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(text))
        save_file(alone, pathlib.Path(folder) / "model.safetensors", metadata={"format": "pt"})
        model, info = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager",
            output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    return model.model.layers[0].eval(), model.model.rotary_emb


def norm(x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon) * weight


class NextToken:
    def __init__(self, config: dict, tensors: dict[str, torch.Tensor]):
        self.epsilon = config["rms_norm_eps"]
        self.block, self.rotary = block_of(config, tensors)
        self.weights = {name: value.float() for name, value in tensors.items()}
        self.prefix = f"model.layers.{config['num_hidden_layers']}."

    def own(self, name: str, otherwise: str = "") -> torch.Tensor:
        return self.weights[name if (name := self.prefix + name) in self.weights else otherwise]

    def states(self, hidden: torch.Tensor) -> torch.Tensor:
        """What the layer reads of the model's last layer's outcome."""
        return norm(hidden, self.weights["model.norm.weight"], self.epsilon)

    def __call__(self, tokens: torch.Tensor, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits of all rows, and the states of rows that follow. Row i: tokens[i] beside states[i]."""
        embedded = self.own("embed_tokens.weight", "model.embed_tokens.weight")[tokens]
        joined = torch.cat((norm(embedded, self.own("enorm.weight"), self.epsilon),
                            norm(states, self.own("hnorm.weight"), self.epsilon)), dim=-1)
        x = (joined @ self.own("eh_proj.weight").T)[None]
        positions = torch.arange(len(tokens))[None]
        mask = torch.full((len(tokens), len(tokens)), -math.inf).triu(1)[None, None]
        x = self.block(x, attention_mask=mask, position_ids=positions, position_embeddings=self.rotary(x, positions))
        x = x[0] if isinstance(x, tuple) else x
        out = norm(x[0], self.own("shared_head.norm.weight"), self.epsilon)
        return out @ self.own("shared_head.head.weight", "lm_head.weight").T, out


def answers(layer: NextToken, tokens: torch.Tensor, hidden: torch.Tensor, drafted: torch.Tensor) -> dict:
    """Logits of all rows of a text, of a chain drafted behind it, and of a tree that grows behind it."""
    logits, text = layer(tokens[1:], layer.states(hidden))

    def row(path: list[int], own: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Of the last of drafted tokens behind the text. own: the states that they follow on."""
        made = layer(torch.cat((tokens[1:], drafted[path])), torch.cat((layer.states(hidden), torch.stack(own))))
        return made[0][-1], made[1][-1]

    own, chain = [text[-1]], []
    for i in range(CHAIN):
        out, state = row(list(range(i + 1)), own)
        chain.append(out)
        own.append(state)

    parents, tree, states = sum(LEVELS, []), [], []
    for node, parent in enumerate(parents):
        path = [node]
        while parents[path[0]] >= 0:
            path.insert(0, parents[path[0]])
        out, state = row(path, [text[-1], *(states[n] for n in path[:-1])])
        tree.append(out)
        states.append(state)
    return {"logits": logits, "chain_logits": torch.stack(chain), "tree_logits": torch.stack(tree)}


@torch.no_grad()
def main() -> None:
    only = sys.argv[1:] or list(LAYERS)
    for index, (name, keys) in enumerate(LAYERS.items()):
        if name not in only:
            continue
        torch.manual_seed(index)
        folder = HERE / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        own = keys.pop("own")
        config = config_of(**keys)
        tensors = random_tensors(shapes_of(config, own))
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        layer = NextToken(config, tensors)
        tokens = torch.randint(0, config["vocab_size"], (ROWS + 1,))
        drafted = torch.randint(0, config["vocab_size"], (sum(map(len, LEVELS)),))
        hidden = 3 * torch.randn(ROWS, config["hidden_size"])
        made = answers(layer, tokens, hidden, drafted)
        reference = {"tokens": tokens.tolist(), "drafted": drafted.tolist(), "chain": CHAIN, "levels": LEVELS,
                     "target_ids": list(range(config["vocab_size"]))}
        (folder / "reference.json").write_text(json.dumps(reference) + "\n")
        save_file({"embedding": tensors["model.embed_tokens.weight"].float(), "features": hidden} | made,
                  folder / "reference.safetensors")
        print(name, f"logit std {made['logits'].std():.2f}")


if __name__ == "__main__":
    main()
