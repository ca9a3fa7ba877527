"""Writes a random-weight target and a draft model that agrees with it: make_pair.py DIR.

DIR/target has 111 M parameters: SmolLM-135M's shape with a vocabulary of 4,096, so that the head is
2 % of the target and not most of the draft, as the drafts of large models have it. DIR/draft is its
first layer or layers with the same embeddings, final norm and head: 5 % of the weights a step reads.
The layers that the draft lacks add little to the residual stream, as later layers of trained models
do, scaled so that both name the same token under shared noise with the given probability at
temperature 1; bench_speculation --acceptance measures it. Head and embeddings are not tied, or the
models would repeat their input. Needs numpy alone.
"""

import argparse
import math
from pathlib import Path

import numpy as np

from make_checkpoint import is_norm, write_checkpoint

CONFIG = dict(
    architectures=["Qwen2ForCausalLM"], model_type="qwen2", vocab_size=4096, hidden_size=576,
    intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3,
    max_position_embeddings=4096, rms_norm_eps=1e-6, rope_theta=10000.0, hidden_act="silu",
    tie_word_embeddings=False, torch_dtype="bfloat16", eos_token_id=0)

# Standard deviation of the logits: at temperature 1 a token has 4.3 bits of entropy then.
LOGIT_SPREAD = 4.0

# By agreement, what the later layers together add to the residual stream, relative to layers of
# unit gain; measured with bench_speculation --acceptance.
MEASURED = {1.0: 0.0, 0.855: 0.15, 0.82: 0.2, 0.775: 0.25, 0.655: 0.4, 0.53: 0.6}


def later_scale(agreement: float) -> float:
    known = sorted(MEASURED.items())
    return float(np.interp(agreement, [a for a, _ in known], [s for _, s in known]))


def main() -> None:
    parser = argparse.ArgumentParser(description="random-weight target and draft that agree")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--agreement", type=float, default=0.8, help="0.53 to 1 (default 0.8)")
    parser.add_argument("--layers-draft", type=int, default=1)
    parser.add_argument("--scale", type=float, help="of the later layers, instead of --agreement")
    arguments = parser.parse_args()
    scale = later_scale(arguments.agreement) if arguments.scale is None else arguments.scale
    scale /= math.sqrt(CONFIG["num_hidden_layers"] - arguments.layers_draft)

    def values(name: str, shape: tuple[int, ...]) -> np.ndarray:
        if is_norm(name):
            return np.ones(shape)
        if name.endswith("bias"):
            return np.zeros(shape)
        # A generator a tensor: the draft's are the target's. Outputs are of the size of inputs.
        random = np.random.default_rng(list(name.encode()))
        spread = 1 if "embed" in name else 1 / math.sqrt(shape[1])
        if name == "lm_head.weight":
            spread *= LOGIT_SPREAD
        layer = int(name.split(".")[2]) if name.startswith("model.layers.") else 0
        if layer >= arguments.layers_draft and ("o_proj" in name or "down_proj" in name):
            spread *= scale
        return spread * random.standard_normal(shape, dtype=np.float32)

    write_checkpoint(arguments.folder / "target", CONFIG, values)
    write_checkpoint(arguments.folder / "draft", CONFIG | {"num_hidden_layers": arguments.layers_draft}, values)


if __name__ == "__main__":
    main()
