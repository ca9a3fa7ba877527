"""Writes a small EAGLE-3 head of random bf16 weights for the target of a directory:
random_head.py DIR TARGET [KEY=VALUE]...

KEY is of config.json (ptd_token_id: a P-EAGLE head; block_size: a DFlash head, of dflash_config), or PREFIX: of the layer's
tensors, midlayer. by default, or EMBEDDINGS: the head has its own. MARKOV=1: layers of a DFlash head add nothing, so that every
row says of its own token what the target's output does. Needs nothing but Python.
"""

import json
import sys
from pathlib import Path

from random_model import write


def write_dflash(folder: Path, config: dict, queries: int, keys: int, markov: bool) -> None:
    """Embeddings and output are the target's."""
    hidden, inner, size = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    shapes = {"fc.weight": [hidden, len(config["dflash_config"]["target_layer_ids"]) * hidden],
              "hidden_norm.weight": [hidden], "norm.weight": [hidden]}
    for n in range(config["num_hidden_layers"]):
        of_layer = {
            "input_layernorm": [hidden], "post_attention_layernorm": [hidden], "self_attn.q_norm": [size],
            "self_attn.k_norm": [size], "self_attn.q_proj": [queries, hidden], "self_attn.k_proj": [keys, hidden],
            "self_attn.v_proj": [keys, hidden], "self_attn.o_proj": [hidden, queries], "mlp.gate_proj": [inner, hidden],
            "mlp.up_proj": [inner, hidden], "mlp.down_proj": [hidden, inner],
        }
        shapes |= {f"layers.{n}.{name}.weight": shape for name, shape in of_layer.items()}
    write(folder, config | {"architectures": ["DFlashDraftModel"], "model_type": "qwen3"}, shapes, markov=markov)


def main() -> None:
    folder, target = Path(sys.argv[1]), json.loads((Path(sys.argv[2]) / "config.json").read_text())
    hidden, vocab = target["hidden_size"], target["vocab_size"]
    config = {
        "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "num_hidden_layers": 1,
        "vocab_size": vocab, "draft_vocab_size": vocab, "hidden_size": hidden, "intermediate_size": 96,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "hidden_act": "silu",
    }
    prefix, embeddings, markov = "midlayer.", False, False
    for argument in sys.argv[3:]:
        key, value = argument.split("=")
        if key == "PREFIX":
            prefix = value
        elif key == "EMBEDDINGS":
            embeddings = True
        elif key == "MARKOV":
            markov = value == "1"
        else:
            config[key] = json.loads(value)
    inner, drafted = config["intermediate_size"], config["draft_vocab_size"]
    queries = config["num_attention_heads"] * config["head_dim"]
    keys = config["num_key_value_heads"] * config["head_dim"]
    if "block_size" in config:
        write_dflash(folder, config, queries, keys, markov)
        return
    features, width = len(config.get("eagle_aux_hidden_state_layer_ids", [0, 0, 0])), hidden
    hidden = config["hidden_size"]
    shapes = {
        "fc.weight": [hidden, features * width], "norm.weight": [hidden], "lm_head.weight": [drafted, hidden],
        prefix + "hidden_norm.weight": [hidden], prefix + "input_layernorm.weight": [hidden],
        prefix + "post_attention_layernorm.weight": [hidden],
        prefix + "self_attn.q_proj.weight": [queries, 2 * hidden],
        prefix + "self_attn.k_proj.weight": [keys, 2 * hidden],
        prefix + "self_attn.v_proj.weight": [keys, 2 * hidden],
        prefix + "self_attn.o_proj.weight": [hidden, queries],
        prefix + "mlp.gate_proj.weight": [inner, hidden], prefix + "mlp.up_proj.weight": [inner, hidden],
        prefix + "mlp.down_proj.weight": [hidden, inner],
    }
    if config.get("fc_norm"):
        shapes |= {f"fc_norm.{i}.weight": [width] for i in range(features)}
    for n in range(1, config["num_hidden_layers"]):
        for name, shape in list(shapes.items()):
            if name.startswith(prefix) and "hidden_norm" not in name:
                narrow = [hidden if size == 2 * hidden else size for size in shape]
                shapes[f"layers.{n}." + name.removeprefix(prefix)] = narrow
    if "ptd_token_id" in config:
        shapes["mask_hidden"] = [1, 1, features * width]
    if config.get("norm_before_fc"):
        shapes["input_norm.weight"] = [features * width]
    if embeddings:
        shapes["embed_tokens.weight"] = [vocab, hidden]
    # Every draft token is a token of the target's, spread over them.
    step = vocab // drafted
    integers = {"d2t": [i * step - i for i in range(drafted)]} if drafted < vocab else {}
    write(folder, config, shapes, integers=integers)


main()
