"""Writes a small checkpoint of random bf16 weights, a Llama's: random_model.py DIR [KEY=VALUE]...

KEY is of config.json. EXPERTS=FAMILY (qwen2_moe, qwen3_moe, mixtral, deepseek_v3) makes it a mixture, with 2 of 8 experts
for each token; a deepseek_v3 has latent attention, and by num_nextn_predict_layers=1 a next-token layer. MARKOV=1: layers
add nothing, so that a token follows from the one before it, and a next-token layer says what the model does. NAN=TENSOR:INDEX
makes that element a NaN. Needs nothing but Python.
"""

import json
import math
import random
import struct
import sys
from pathlib import Path


def bf16(value: float) -> int:
    return struct.unpack("<I", struct.pack("<f", value))[0] >> 16


def write(folder: Path, config: dict, shapes: dict[str, list[int]], nan: tuple[str, int] = ("", 0),
          integers: dict[str, list[int]] | None = None, single: bool = False, markov: bool = False) -> None:
    """config.json, and bf16 tensors (fp32 ones: single) of these shapes in model.safetensors beside I64 ones of these values."""
    # Normal numbers, from a table: there are many.
    generator = random.Random(7)
    normals = [generator.gauss(0, 1) for _ in range(4096)]
    header, data = {}, b""
    for name, values in (integers or {}).items():
        packed = struct.pack(f"<{len(values)}q", *values)
        header[name] = {"dtype": "I64", "shape": [len(values)], "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    for name, shape in shapes.items():
        size = math.prod(shape)
        spread = 1.5 / math.sqrt(shape[-1]) if "embed" not in name else 1.0
        table = [bf16(1.0)] if len(shape) == 1 else [bf16(spread * x) for x in normals]
        values = [table[i] for i in generator.choices(range(len(table)), k=size)]
        if markov and name.endswith(("o_proj.weight", "down_proj.weight")):
            values = [0] * size
        if markov and name.endswith("eh_proj.weight"):  # hands the embedding on
            values = [bf16(float(i // shape[1] == i % shape[1])) for i in range(size)]
        if name == nan[0]:
            values[nan[1]] = 0x7FC0
        packed = struct.pack(f"<{size}I", *(v << 16 for v in values)) if single else struct.pack(f"<{size}H", *values)
        header[name] = {"dtype": "F32" if single else "BF16", "shape": shape,
                        "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


FAMILIES = {"qwen2_moe": "Qwen2MoeForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM", "mixtral": "MixtralForCausalLM",
            "deepseek_v3": "DeepseekV3ForCausalLM"}
EXPERT_KEYS = {
    "qwen2_moe": {"num_experts": 8, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 64},
    "qwen3_moe": {"num_experts": 8, "moe_intermediate_size": 32, "norm_topk_prob": True, "mlp_only_layers": [1]},
    "mixtral": {"num_local_experts": 8},
    "deepseek_v3": {"n_routed_experts": 8, "moe_intermediate_size": 32, "n_shared_experts": 1, "first_k_dense_replace": 1,
                    "n_group": 4, "topk_group": 2, "norm_topk_prob": True, "routed_scaling_factor": 2.5,
                    "scoring_func": "sigmoid", "q_lora_rank": 24, "kv_lora_rank": 32, "qk_nope_head_dim": 16,
                    "qk_rope_head_dim": 8, "v_head_dim": 16, "num_key_value_heads": 4},
}


def mlp_shapes(names: str, hidden: int, inner: int, parts: str = "gate_proj up_proj down_proj") -> dict[str, list[int]]:
    gate, up, down = (f"{names}{part}.weight" for part in parts.split())
    return {gate: [inner, hidden], up: [inner, hidden], down: [hidden, inner]}


def latent_shapes(config: dict, layer: str) -> dict[str, list[int]]:
    hidden, heads, rank, q_rank = (config[k] for k in ("hidden_size", "num_attention_heads", "kv_lora_rank", "q_lora_rank"))
    nope, rope, value = (config[k] for k in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
    p = layer + "self_attn."
    return {
        p + "q_a_proj.weight": [q_rank, hidden], p + "q_a_layernorm.weight": [q_rank],
        p + "q_b_proj.weight": [heads * (nope + rope), q_rank],
        p + "kv_a_proj_with_mqa.weight": [rank + rope, hidden], p + "kv_a_layernorm.weight": [rank],
        p + "kv_b_proj.weight": [heads * (nope + value), rank], p + "o_proj.weight": [hidden, heads * value],
    }


def expert_shapes(config: dict, layer: str) -> dict[str, list[int]]:
    hidden, kind = config["hidden_size"], config["model_type"]
    mixtral = kind == "mixtral"
    moe = layer + ("block_sparse_moe." if mixtral else "mlp.")
    count = config[{"mixtral": "num_local_experts", "deepseek_v3": "n_routed_experts"}.get(kind, "num_experts")]
    inner = config["intermediate_size" if mixtral else "moe_intermediate_size"]
    shapes = {moe + "gate.weight": [count, hidden]}
    for expert in range(count):
        shapes |= mlp_shapes(f"{moe}experts.{expert}.", hidden, inner, *(["w1 w3 w2"] if mixtral else []))
    if kind == "qwen2_moe":
        shapes |= mlp_shapes(moe + "shared_expert.", hidden, config["shared_expert_intermediate_size"])
        shapes[moe + "shared_expert_gate.weight"] = [1, hidden]
    if kind == "deepseek_v3":
        shapes |= mlp_shapes(moe + "shared_experts.", hidden, config["n_shared_experts"] * inner)
        shapes[moe + "gate.e_score_correction_bias"] = [count]
    return shapes


def next_token_shapes(config: dict, layer: str) -> dict[str, list[int]]:
    """A layer behind the last of a deepseek_v3, with embeddings and a head of its own."""
    hidden, vocab = config["hidden_size"], config["vocab_size"]
    return {layer + "enorm.weight": [hidden], layer + "hnorm.weight": [hidden], layer + "eh_proj.weight": [hidden, 2 * hidden],
            layer + "input_layernorm.weight": [hidden], layer + "post_attention_layernorm.weight": [hidden],
            **latent_shapes(config, layer), **expert_shapes(config, layer), layer + "shared_head.norm.weight": [hidden],
            layer + "shared_head.head.weight": [vocab, hidden], layer + "embed_tokens.weight": [vocab, hidden]}


def main() -> None:
    folder = Path(sys.argv[1])
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16",
        "vocab_size": 160, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 256,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False,
    }
    nan_tensor, nan_index, markov = "", 0, False
    for argument in sys.argv[2:]:
        key, value = argument.split("=")
        if key == "EXPERTS":
            config |= {"architectures": [FAMILIES[value]], "model_type": value, "num_experts_per_tok": 2} | EXPERT_KEYS[value]
        elif key == "MARKOV":
            markov = True
        elif key == "NAN":
            nan_tensor, nan_index = value.split(":")[0], int(value.split(":")[1])
        else:
            config[key] = json.loads(value)
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    queries = config["num_attention_heads"] * config["head_dim"]
    keys = config["num_key_value_heads"] * config["head_dim"]
    shapes = {"model.embed_tokens.weight": [config["vocab_size"], hidden], "model.norm.weight": [hidden],
              "lm_head.weight": [config["vocab_size"], hidden]}
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        shapes |= {p + "input_layernorm.weight": [hidden], p + "post_attention_layernorm.weight": [hidden]}
        shapes |= latent_shapes(config, p) if config["model_type"] == "deepseek_v3" else {
            p + "self_attn.q_proj.weight": [queries, hidden], p + "self_attn.k_proj.weight": [keys, hidden],
            p + "self_attn.v_proj.weight": [keys, hidden], p + "self_attn.o_proj.weight": [hidden, queries],
        }
        if config["model_type"] == "qwen2_moe":
            for part, width in (("q", queries), ("k", keys), ("v", keys)):
                shapes[f"{p}self_attn.{part}_proj.bias"] = [width]
        if config["model_type"] == "qwen3_moe":
            shapes |= {p + "self_attn.q_norm.weight": [config["head_dim"]], p + "self_attn.k_norm.weight": [config["head_dim"]]}
        dense = (config["model_type"] == "llama" or layer in config.get("mlp_only_layers", [])
                 or layer < config.get("first_k_dense_replace", 0))
        shapes |= mlp_shapes(p + "mlp.", hidden, inner) if dense else expert_shapes(config, p)
    for layer in range(config.get("num_nextn_predict_layers", 0)):  # last, so that the model is the same without them
        shapes |= next_token_shapes(config, f"model.layers.{config['num_hidden_layers'] + layer}.")
    if markov:  # embeddings and a head of its own would be others
        shapes = {name: shape for name, shape in shapes.items() if not name.endswith(("2.embed_tokens.weight", "shared_head.head.weight"))}
    write(folder, config, shapes, (nan_tensor, nan_index), markov=markov)


if __name__ == "__main__":
    main()
