"""Write a checkpoint as a complete Hugging Face directory in bf16.

    python export.py checkpoints/target.pt ../../configs/models/target
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer

from build_tokenizer import build, build_for_pictures, write
from latent import LatentShape
from model import Shape
from picture_tasks import END, FILM, ROW, START


# Pictures of these sizes stay as they are: the drawn ones have 384 to 3,072 pixels.
LEAST_PIXELS, MOST_PIXELS = 256, 16384


def class_of(shape: Shape | LatentShape) -> tuple[str, str]:
    """The architecture, and its model_type."""
    if isinstance(shape, LatentShape):
        return "DeepseekV3ForCausalLM", "deepseek_v3"
    if shape.tower:
        return "Qwen2VLForConditionalGeneration", "qwen2_vl"
    return ("Qwen2MoeForCausalLM", "qwen2_moe") if shape.experts else ("Qwen2ForCausalLM", "qwen2")


def dense_keys(shape: Shape) -> dict:
    return {
        "num_key_value_heads": shape.kv_heads, "use_sliding_window": False, "sliding_window": None,
        "max_window_layers": shape.layers, "tie_word_embeddings": True,
    }


def latent_keys(shape: LatentShape) -> dict:
    return {
        "num_key_value_heads": shape.heads, "tie_word_embeddings": False, "num_nextn_predict_layers": 1,
        "q_lora_rank": None, "kv_lora_rank": shape.rank, "qk_nope_head_dim": shape.nope,
        "qk_rope_head_dim": shape.rope, "v_head_dim": shape.value, "n_routed_experts": shape.experts,
        "num_experts_per_tok": shape.chosen, "n_shared_experts": 1, "moe_intermediate_size": shape.width,
        "first_k_dense_replace": 1, "moe_layer_freq": 1, "n_group": 1, "topk_group": 1, "norm_topk_prob": True,
        "routed_scaling_factor": 1.0, "scoring_func": "sigmoid", "topk_method": "noaux_tc",
    }


def expert_keys(shape: Shape) -> dict:
    return {
        "moe_intermediate_size": shape.intermediate, "shared_expert_intermediate_size": shape.shared,
        "num_experts": shape.experts, "num_experts_per_tok": shape.chosen, "norm_topk_prob": True,
        "decoder_sparse_step": 1, "mlp_only_layers": [],
    }


def vision_keys(shape: Shape, tokenizer: Tokenizer) -> dict:
    tower = shape.tower
    return {
        "vision_start_token_id": tokenizer.token_to_id(START), "vision_end_token_id": tokenizer.token_to_id(END),
        "image_token_id": tokenizer.token_to_id(ROW), "video_token_id": tokenizer.token_to_id(FILM),
        "rope_scaling": {"type": "mrope", "mrope_section": list(shape.sections)},
        "vision_config": {
            "depth": tower.layers, "embed_dim": tower.width, "num_heads": tower.heads,
            "mlp_ratio": tower.intermediate // tower.width, "hidden_size": shape.hidden, "in_channels": 3,
            "hidden_act": "quick_gelu", "patch_size": tower.patch, "spatial_merge_size": tower.merge,
            "temporal_patch_size": tower.temporal_patch,
        },
    }


def export(checkpoint: Path, directory: Path) -> None:
    data = torch.load(checkpoint, weights_only=True)
    latent = "rank" in data["shape"]
    shape = LatentShape(**data["shape"]) if latent else Shape.of(data["shape"])
    tower = None if latent else shape.tower
    tokenizer = build_for_pictures() if tower else build()
    write(tokenizer, directory, shape.max_positions)
    pad, end = tokenizer.token_to_id("<|endoftext|>"), tokenizer.token_to_id("<|im_end|>")
    tensors = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in data["model"].items()}
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    (directory / "model.safetensors").chmod(0o644)
    architecture, kind = class_of(shape)
    config = {
        "architectures": [architecture],
        "model_type": kind,
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "hidden_act": "silu",
        "max_position_embeddings": shape.max_positions,
        "rms_norm_eps": shape.epsilon,
        "rope_theta": shape.theta,
        "rope_scaling": None,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "use_cache": True,
        "bos_token_id": pad,
        "eos_token_id": end,
        "pad_token_id": pad,
        "torch_dtype": "bfloat16",
        **(latent_keys(shape) if latent else dense_keys(shape)),
    }
    if shape.experts and not latent:
        config |= expert_keys(shape)
    if tower:
        config |= vision_keys(shape, tokenizer)
        processor = {
            "image_processor_type": "Qwen2VLImageProcessor", "patch_size": tower.patch,
            "merge_size": tower.merge, "temporal_patch_size": tower.temporal_patch,
            "min_pixels": LEAST_PIXELS, "max_pixels": MOST_PIXELS,
        }
        (directory / "preprocessor_config.json").write_text(json.dumps(processor, indent=2) + "\n")
    generation = {"bos_token_id": pad, "eos_token_id": [end, pad], "pad_token_id": pad, "do_sample": True,
                  "temperature": 1.0, "top_k": 0, "top_p": 1.0}
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (directory / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
    count = sum(tensor.numel() for tensor in tensors.values())
    print(f"{directory}: {count:,} parameters, step {data['step']}, {data['seen']:,} tokens seen")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("directory", type=Path)
    arguments = parser.parse_args()
    export(arguments.checkpoint, arguments.directory)


if __name__ == "__main__":
    main()
