#!/usr/bin/env python3
"""Makes small random checkpoints of Qwen2-VL and Qwen2.5-VL, and what transformers computes from
prompts with pictures (fp32, eager attention, one thread).

    python make_fixtures.py [CHECKPOINT ...]

Needs numpy, Pillow, torch, torchvision and transformers 5. In each folder, beside the checkpoint:

  picture-N.png       the pictures
  reference.json      prompts: tokens with placeholders, pictures (numbers of files), grids,
                      positions whose logits are kept; made_with
  reference.safetensors   F32: embeddings.N of each picture [rows, hidden]; of prompt i, logits.i
                      [positions, vocab] and rotary.i [tokens, 3]
"""

import json
import pathlib
import shutil
import sys

import numpy as np
import torch
import transformers
from PIL import Image
from safetensors.torch import save_file
from transformers import Qwen2VLImageProcessor

HERE = pathlib.Path(__file__).parent
IMAGE, VIDEO, START, END, VOCAB = 300, 301, 302, 303, 304
PROCESSOR = dict(patch_size=4, merge_size=2, temporal_patch_size=2, min_pixels=256,
                 max_pixels=1600)
SIZES = ((30, 21), (17, 40), (64, 9))  # of pictures
TEXT = dict(vocab_size=VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, hidden_act="silu",
            max_position_embeddings=512, rms_norm_eps=1e-6, use_sliding_window=False)
TOKENS = dict(image_token_id=IMAGE, video_token_id=VIDEO, vision_start_token_id=START,
              vision_end_token_id=END)
ROPE = {"type": "mrope", "mrope_section": [2, 3, 3]}
VISION_2 = dict(depth=2, embed_dim=32, num_heads=2, mlp_ratio=2, hidden_size=64, in_channels=3,
                hidden_act="quick_gelu", patch_size=4, spatial_merge_size=2, temporal_patch_size=2)
VISION_25 = dict(depth=3, hidden_size=32, num_heads=2, intermediate_size=44, out_hidden_size=64,
                 hidden_act="silu", in_channels=3, patch_size=4, spatial_merge_size=2,
                 temporal_patch_size=2, window_size=16, fullatt_block_indexes=[1],
                 tokens_per_second=2)

# `flat`: config.json and tensors as published first; else as transformers 5 saves them.
CHECKPOINTS = {
    "qwen2-vl": dict(kind="Qwen2VL", vision=VISION_2, flat=True, tied=False),
    "qwen2-vl-nested": dict(kind="Qwen2VL", vision={**VISION_2, "num_heads": 4}, flat=False,
                            tied=True),
    "qwen2.5-vl": dict(kind="Qwen2_5_VL", vision=VISION_25, flat=True, tied=True),
    "qwen2.5-vl-nested": dict(kind="Qwen2_5_VL", vision={**VISION_25, "window_size": 24},
                              flat=False, tied=False),
    # Other patches, results of 9 of them, and heads of 24 elements.
    "qwen2-vl-merge-3": dict(kind="Qwen2VL", flat=True, tied=False,
                             vision={**VISION_2, "depth": 3, "embed_dim": 48, "mlp_ratio": 3,
                                     "spatial_merge_size": 3}),
    "qwen2.5-vl-patch-6": dict(kind="Qwen2_5_VL", flat=False, tied=True,
                               vision={**VISION_25, "depth": 4, "hidden_size": 48, "num_heads": 3,
                                       "patch_size": 6, "window_size": 24,
                                       "fullatt_block_indexes": [0, 3]}),
}


def config_text(spec):
    name = spec["kind"] + "ForConditionalGeneration"
    kind = {"Qwen2VL": "qwen2_vl", "Qwen2_5_VL": "qwen2_5_vl"}[spec["kind"]]
    whole = {"architectures": [name], "model_type": kind, **TOKENS,
             "tie_word_embeddings": spec["tied"], "vision_config": spec["vision"]}
    if spec["flat"]:
        return {**whole, **TEXT, "rope_theta": 10000.0, "rope_scaling": ROPE,
                "torch_dtype": "bfloat16"}
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": ROPE["mrope_section"]}
    return {**whole, "dtype": "bfloat16",
            "text_config": {**TEXT, "model_type": kind + "_text", "rope_parameters": rope}}


def make_weights(model, seed):
    generator = torch.Generator().manual_seed(seed)
    for name, value in model.named_parameters():
        noise = torch.randn(value.shape, generator=generator)
        if "norm" in name or "ln_q" in name:
            value.data = 1 + 0.2 * noise if name.endswith("weight") else 0.1 * noise
        elif value.dim() == 1:
            value.data = 0.2 * noise
        else:
            value.data = noise * (1.5 / value[0].numel() ** 0.5)
        value.data = value.data.bfloat16().float()


def save(folder, spec, model):
    """The tensors under the names of that release."""
    state = {}
    for name, value in model.state_dict().items():
        if name == "lm_head.weight" and spec["tied"]:
            continue
        if spec["flat"]:
            name = name.replace("model.language_model.", "model.").replace("model.visual.", "visual.")
        state[name] = value.bfloat16().contiguous()
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})


def pictures(folder, spec, seed):
    sizes = {**PROCESSOR, "patch_size": spec["vision"]["patch_size"],
             "merge_size": spec["vision"]["spatial_merge_size"]}
    processor = Qwen2VLImageProcessor(**sizes)
    (folder / "preprocessor_config.json").write_text(json.dumps(
        {"image_processor_type": "Qwen2VLImageProcessor", **sizes}) + "\n")
    made = []
    for i, (width, height) in enumerate(SIZES):
        noise = np.random.default_rng(seed + i).integers(0, 256, (height // 3 + 1, width // 3 + 1, 3))
        image = Image.fromarray(noise.astype(np.uint8)).resize((width, height))
        image.save(folder / f"picture-{i}.png")
        made.append(processor(images=[image], return_tensors="pt"))
    return made


@torch.no_grad()
def reference(model, processed, seed):
    generator = torch.Generator().manual_seed(seed)
    tensors, prompts = {}, []
    rows = []
    for i, one in enumerate(processed):
        embeddings = model.model.visual(one["pixel_values"], one["image_grid_thw"]).pooler_output
        tensors[f"embeddings.{i}"] = embeddings.contiguous()
        rows.append(len(embeddings))

    def text(count):
        return torch.randint(0, 300, (count,), generator=generator).tolist()

    for number, shown in enumerate(([], [0], [1, 2], [2, 0, 1])):
        tokens = text(7)
        for picture in shown:
            tokens += [START] + [IMAGE] * rows[picture] + [END] + text(3)
        tokens += text(9)
        inputs = {"input_ids": torch.tensor([tokens])}
        if shown:
            inputs.update(
                pixel_values=torch.cat([processed[p]["pixel_values"] for p in shown]),
                image_grid_thw=torch.cat([processed[p]["image_grid_thw"] for p in shown]),
                mm_token_type_ids=(inputs["input_ids"] == IMAGE).int())
            rotary = model.model.get_rope_index(
                inputs["input_ids"], inputs["mm_token_type_ids"], inputs["image_grid_thw"])[0]
            rotary = rotary[:, 0].T
        else:
            rotary = torch.arange(len(tokens))[:, None].expand(-1, 3)
        logits = model(**inputs, use_cache=False).logits[0]
        kept = sorted({0, 7, 8, len(tokens) // 2, *range(len(tokens) - 9, len(tokens))})
        tensors[f"logits.{number}"] = logits[kept].contiguous()
        tensors[f"rotary.{number}"] = rotary.float().contiguous()
        prompts.append({"tokens": tokens, "pictures": shown, "positions": kept,
                        "grids": [processed[p]["image_grid_thw"][0, 1:].tolist() for p in shown]})
    return prompts, tensors


def make(name, spec, seed):
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config_text(spec), indent=1) + "\n")
    config = transformers.AutoConfig.from_pretrained(folder)
    kind = getattr(transformers, spec["kind"] + "ForConditionalGeneration")
    made = kind(config)
    make_weights(made, seed)
    if spec["tied"]:
        made.tie_weights()
    save(folder, spec, made)
    model, info = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                       output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    for key, value in model.state_dict().items():
        assert torch.equal(value, made.state_dict()[key]), key
    prompts, tensors = reference(model.eval(), pictures(folder, spec, seed), seed)
    spread = torch.cat([tensors[f"logits.{i}"] for i in range(len(prompts))]).std().item()
    (folder / "reference.json").write_text(json.dumps({
        "logit_std": spread, "prompts": prompts,
        "made_with": {"torch": torch.__version__, "transformers": transformers.__version__}}) + "\n")
    save_file(tensors, folder / "reference.safetensors")
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f"{name}: {size / 1024:.0f} KiB, logit std {spread:.2f}, embeddings' std "
          f"{tensors['embeddings.0'].std():.2f}")


def main():
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("highest")
    transformers.logging.set_verbosity_error()
    for seed, (name, spec) in enumerate(CHECKPOINTS.items()):
        if len(sys.argv) == 1 or name in sys.argv[1:]:
            make(name, spec, 10 * seed + 1)


if __name__ == "__main__":
    main()
