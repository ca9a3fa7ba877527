"""Writes a random-weight checkpoint of a known model's shape: make_checkpoint.py SHAPE DIR.

For programs that need files; bench_engine and bench_speculation make random weights of shapes/ by
themselves. Weights are bf16, normal with the usual 0.02; norms are ones. Needs numpy alone.
"""

import json
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

SHAPES = Path(__file__).parent / "shapes"


def tensors(c: dict) -> list[tuple[str, tuple[int, ...]]]:
    """Names and shapes, row-major [outputs, inputs]."""
    hidden, inner = c["hidden_size"], c["intermediate_size"]
    head = hidden // c["num_attention_heads"]
    kv = head * c["num_key_value_heads"]
    named = [("model.embed_tokens.weight", (c["vocab_size"], hidden)), ("model.norm.weight", (hidden,))]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        named += [
            (p + "input_layernorm.weight", (hidden,)),
            (p + "post_attention_layernorm.weight", (hidden,)),
            (p + "self_attn.q_proj.weight", (hidden, hidden)), (p + "self_attn.q_proj.bias", (hidden,)),
            (p + "self_attn.k_proj.weight", (kv, hidden)), (p + "self_attn.k_proj.bias", (kv,)),
            (p + "self_attn.v_proj.weight", (kv, hidden)), (p + "self_attn.v_proj.bias", (kv,)),
            (p + "self_attn.o_proj.weight", (hidden, hidden)),
            (p + "mlp.gate_proj.weight", (inner, hidden)), (p + "mlp.up_proj.weight", (inner, hidden)),
            (p + "mlp.down_proj.weight", (hidden, inner)),
        ]
    if not c["tie_word_embeddings"]:
        named.append(("lm_head.weight", (c["vocab_size"], hidden)))
    return named


def is_norm(name: str) -> bool:
    return "layernorm" in name or name == "model.norm.weight"


def bf16_bytes(values: np.ndarray) -> bytes:
    return (values.astype(np.float32).view(np.uint32) >> 16).astype("<u2").tobytes()


def write_checkpoint(folder: Path, config: dict, values: Callable[[str, tuple[int, ...]], np.ndarray]) -> None:
    """`values` is asked for each tensor in turn."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    header, end = {}, 0
    named = tensors(config)
    for name, shape in named:
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, shape in named:
            file.write(bf16_bytes(values(name, shape)))


def main() -> None:
    known = sorted(folder.name for folder in SHAPES.iterdir())
    if len(sys.argv) != 3 or sys.argv[1] not in known:
        sys.exit(f"usage: make_checkpoint.py {'|'.join(known)} DIR")
    random = np.random.default_rng(1)

    def values(name: str, shape: tuple[int, ...]) -> np.ndarray:
        return np.ones(shape) if is_norm(name) else 0.02 * random.standard_normal(shape, dtype=np.float32)

    config = json.loads((SHAPES / sys.argv[1] / "config.json").read_text())
    write_checkpoint(Path(sys.argv[2]), config, values)


if __name__ == "__main__":
    main()
