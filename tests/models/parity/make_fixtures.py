#!/usr/bin/env python3
"""Makes the parity fixtures: small random checkpoints, and what transformers computes with them.

    python make_fixtures.py [--only NAME]...

Needs torch and transformers 5. Writes one folder a checkpoint beside this file; the README says
what is in it. Weights are random but wide: logits are spread, and greedy tokens win clearly.
"""

import argparse
import json
import math
import pathlib
import shutil

import torch
import transformers
from safetensors.torch import load_file, save_file

HERE = pathlib.Path(__file__).parent
PROMPT_LENGTHS = (1, 17, 150)
GREEDY_TOKENS = 64
BLOCK = 128  # of fp8's scales
MIN_MARGIN = 2e-3  # between the best and the second logit, at every greedy token
TEMPERATURE = 0.7
# Rows of the logits that are kept of a long prompt: around tile and chunk edges, and some between.
KEPT = (0, 1, 2, 7, 14, 15, 16, 17, 30, 31, 32, 33, 47, 48, 62, 63, 64, 65, 79, 80, 95, 96, 100,
        111, 112, 126, 127, 128, 129, 143, 144, 148, 149)


def deepseek(**more):
    """config.json's keys of a small DeepSeek-V3, all of them as published ones have them."""
    return dict(dict(
        vocab_size=256, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=4, tie_word_embeddings=False, rope_theta=10000.0,
        q_lora_rank=None, kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16,
        n_routed_experts=8, num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=32,
        first_k_dense_replace=1, n_group=1, topk_group=1, norm_topk_prob=True,
        routed_scaling_factor=2.5, num_nextn_predict_layers=0), **more)


# `common` are config.json's keys; `v4` writes the file as transformers 4 did (rope_theta and
# rope_scaling at the top, torch_dtype), otherwise as 5 does. `omit` are left out of the file.
CHECKPOINTS = {
    "qwen2-tied": dict(
        kind="Qwen2", dtype="bf16", v4=True,
        common=dict(vocab_size=320, hidden_size=64, intermediate_size=160, num_hidden_layers=2,
                    num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True,
                    rope_theta=1000000.0)),
    "qwen2-tied-fp32": dict(
        kind="Qwen2", dtype="fp32",
        common=dict(vocab_size=320, hidden_size=64, intermediate_size=160, num_hidden_layers=2,
                    num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True,
                    rope_theta=1000000.0)),
    "qwen2-sharded": dict(
        kind="Qwen2", dtype="bf16", shards=3,
        common=dict(vocab_size=333, hidden_size=96, intermediate_size=224, num_hidden_layers=3,
                    num_attention_heads=6, num_key_value_heads=2, tie_word_embeddings=False,
                    rope_theta=10000.0)),
    "llama2": dict(
        kind="Llama", dtype="bf16", v4=True, omit=("num_key_value_heads", "head_dim", "rope_theta"),
        common=dict(vocab_size=256, hidden_size=64, intermediate_size=176, num_hidden_layers=2,
                    num_attention_heads=4, num_key_value_heads=4, tie_word_embeddings=False,
                    rms_norm_eps=1e-5, rope_theta=10000.0)),
    # Of the 8 frequencies some are kept, some blended and some divided, well within the 214
    # positions: wavelengths up to 16 are kept, from 64 divided.
    "llama3": dict(
        kind="Llama", dtype="bf16", eos=[318, 319],
        common=dict(vocab_size=320, hidden_size=128, intermediate_size=256, num_hidden_layers=2,
                    num_attention_heads=8, num_key_value_heads=4, tie_word_embeddings=True,
                    rms_norm_eps=1e-5, rope_theta=500000.0),
        llama3=dict(factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0,
                    original_max_position_embeddings=64)),
    "llama-biases": dict(
        kind="Llama", dtype="bf16", v4=True,
        common=dict(vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                    num_attention_heads=4, num_key_value_heads=1, tie_word_embeddings=False,
                    attention_bias=True, mlp_bias=True, rope_theta=500000.0),
        llama3=dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                    original_max_position_embeddings=64)),
    "qwen3-tied": dict(
        kind="Qwen3", dtype="bf16",
        common=dict(vocab_size=320, hidden_size=64, intermediate_size=160, num_hidden_layers=3,
                    num_attention_heads=4, num_key_value_heads=2, head_dim=32,
                    tie_word_embeddings=True, rope_theta=1000000.0)),
    "qwen3-fp32": dict(
        kind="Qwen3", dtype="fp32", v4=True,
        common=dict(vocab_size=288, hidden_size=96, intermediate_size=192, num_hidden_layers=2,
                    num_attention_heads=4, num_key_value_heads=4, head_dim=32,
                    tie_word_embeddings=False, rope_theta=1000000.0)),
    "llama-own-head": dict(
        kind="Llama", dtype="bf16", own_head=True,
        common=dict(vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                    num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True,
                    rope_theta=10000.0)),
    "llama-f16": dict(
        kind="Llama", dtype="fp16", v4=True,
        common=dict(vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                    num_attention_heads=4, num_key_value_heads=4, tie_word_embeddings=False,
                    rms_norm_eps=1e-5, rope_theta=10000.0)),
    "mistral": dict(
        kind="Mistral", dtype="bf16", v4=True, omit=("head_dim",),
        common=dict(vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                    num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False,
                    rms_norm_eps=1e-5, rope_theta=1000000.0, sliding_window=None)),
    "qwen2-padded": dict(
        kind="Qwen2", dtype="bf16", tokens=300,
        common=dict(vocab_size=384, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                    num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True,
                    rope_theta=1000000.0)),
    # The types of rotary scaling, past the context of 64 that they stretch.
    "llama-linear": dict(
        kind="Llama", dtype="bf16", v4=True,
        common=dict(vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                    num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False,
                    rope_theta=10000.0, max_position_embeddings=64),
        rope=dict(type="linear", factor=8.0)),
    "llama-dynamic": dict(
        kind="Llama", dtype="bf16",
        common=dict(vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                    num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False,
                    rope_theta=10000.0, max_position_embeddings=214),
        rope=dict(rope_type="dynamic", factor=4.0)),
    "qwen2-yarn": dict(
        kind="Qwen2", dtype="bf16", v4=True,
        common=dict(vocab_size=256, hidden_size=128, intermediate_size=128, num_hidden_layers=2,
                    num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True,
                    rope_theta=10000.0, max_position_embeddings=64),
        rope=dict(type="yarn", rope_type="yarn", factor=4.0, original_max_position_embeddings=64)),
    "qwen3-yarn": dict(
        kind="Qwen3", dtype="fp32",
        common=dict(vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                    num_attention_heads=4, num_key_value_heads=2, head_dim=40,
                    tie_word_embeddings=True, rope_theta=500000.0, max_position_embeddings=256),
        rope=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=64, beta_fast=16.0,
                  beta_slow=2.0, mscale=1.0, mscale_all_dim=0.5, truncate=False)),
    # Mixtures of experts.
    "qwen3-moe": dict(
        kind="Qwen3Moe", dtype="bf16",
        common=dict(vocab_size=256, hidden_size=64, intermediate_size=96, num_hidden_layers=3,
                    num_attention_heads=4, num_key_value_heads=2, head_dim=32,
                    tie_word_embeddings=True, rope_theta=1000000.0, num_experts=8,
                    num_experts_per_tok=2, moe_intermediate_size=32, norm_topk_prob=True,
                    decoder_sparse_step=1, mlp_only_layers=[1])),
    "qwen3-moe-fp32": dict(
        kind="Qwen3Moe", dtype="fp32", v4=True,
        common=dict(vocab_size=256, hidden_size=64, intermediate_size=96, num_hidden_layers=4,
                    num_attention_heads=4, num_key_value_heads=4, head_dim=16,
                    tie_word_embeddings=False, rope_theta=10000.0, num_experts=16,
                    num_experts_per_tok=8, moe_intermediate_size=24, norm_topk_prob=False,
                    decoder_sparse_step=2, mlp_only_layers=[])),
    "qwen3-moe-one": dict(
        kind="Qwen3Moe", dtype="bf16", shards=3,
        common=dict(vocab_size=256, hidden_size=96, intermediate_size=96, num_hidden_layers=2,
                    num_attention_heads=4, num_key_value_heads=4, head_dim=24,
                    tie_word_embeddings=False, rope_theta=10000.0, num_experts=4,
                    num_experts_per_tok=1, moe_intermediate_size=64, norm_topk_prob=False,
                    decoder_sparse_step=1, mlp_only_layers=[])),
    "qwen2-moe": dict(
        kind="Qwen2Moe", dtype="bf16", v4=True,
        common=dict(vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                    num_attention_heads=4, num_key_value_heads=4, tie_word_embeddings=False,
                    rope_theta=1000000.0, num_experts=6, num_experts_per_tok=4,
                    moe_intermediate_size=48, shared_expert_intermediate_size=96,
                    norm_topk_prob=False, decoder_sparse_step=1, mlp_only_layers=[])),
    "qwen2-moe-fp32": dict(
        kind="Qwen2Moe", dtype="fp32",
        common=dict(vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=3,
                    num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True,
                    rope_theta=10000.0, num_experts=12, num_experts_per_tok=3,
                    moe_intermediate_size=40, shared_expert_intermediate_size=64,
                    norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[0])),
    "mixtral": dict(
        kind="Mixtral", dtype="bf16", v4=True, omit=("head_dim",),
        common=dict(vocab_size=256, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
                    num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False,
                    rms_norm_eps=1e-5, rope_theta=1000000.0, sliding_window=None,
                    num_local_experts=8, num_experts_per_tok=2)),
    "mixtral-tied": dict(
        kind="Mixtral", dtype="bf16",
        common=dict(vocab_size=256, hidden_size=96, intermediate_size=64, num_hidden_layers=3,
                    num_attention_heads=4, num_key_value_heads=4, tie_word_embeddings=True,
                    rms_norm_eps=1e-5, rope_theta=10000.0, sliding_window=None,
                    num_local_experts=5, num_experts_per_tok=3)),
    "mixtral-fp32": dict(
        kind="Mixtral", dtype="fp32",
        common=dict(vocab_size=256, hidden_size=64, intermediate_size=36, num_hidden_layers=2,
                    num_attention_heads=4, num_key_value_heads=4, tie_word_embeddings=False,
                    rms_norm_eps=1e-5, rope_theta=10000.0, sliding_window=None,
                    num_local_experts=16, num_experts_per_tok=6)),
    # Latent attention, and experts chosen by sigmoids.
    "deepseek-groups": dict(
        kind="DeepseekV3", dtype="bf16",
        common=deepseek(q_lora_rank=24, n_group=4, topk_group=2, num_experts_per_tok=3)),
    "deepseek-moonlight": dict(
        kind="DeepseekV3", dtype="bf16", v4=True,
        common=deepseek(n_shared_experts=2, rms_norm_eps=1e-5, routed_scaling_factor=2.446,
                        num_key_value_heads=2, num_attention_heads=2)),
    "deepseek-yarn": dict(
        kind="DeepseekV3", dtype="fp32",
        common=deepseek(q_lora_rank=32, qk_rope_head_dim=16, max_position_embeddings=256),
        rope=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=64, beta_fast=16.0,
                  beta_slow=2.0, mscale=1.0, mscale_all_dim=1.0)),
    "deepseek-mscale": dict(
        kind="DeepseekV3", dtype="bf16", v4=True,
        common=deepseek(qk_rope_head_dim=16, n_group=2, topk_group=1, n_shared_experts=2,
                        max_position_embeddings=256),
        rope=dict(type="yarn", factor=4.0, original_max_position_embeddings=64, beta_fast=16,
                  beta_slow=2, mscale=0.707, mscale_all_dim=0.5)),
    "deepseek-fp8": dict(
        kind="DeepseekV3", dtype="fp8", v4=True,
        common=deepseek(hidden_size=160, q_lora_rank=136, moe_intermediate_size=48,
                        n_routed_experts=4)),
    "deepseek-unshared": dict(
        kind="DeepseekV3", dtype="bf16",
        common=deepseek(n_shared_experts=0, norm_topk_prob=False, first_k_dense_replace=0,
                        num_experts_per_tok=4)),
    "deepseek-wide": dict(
        kind="DeepseekV3", dtype="bf16",
        common=deepseek(kv_lora_rank=96, qk_rope_head_dim=32, qk_nope_head_dim=24, v_head_dim=40,
                        n_routed_experts=12, n_group=3, topk_group=2, q_lora_rank=40)),
    # As published ones store the correction of scores, and a router likewise.
    "deepseek-single": dict(
        kind="DeepseekV3", dtype="bf16", single=("e_score_correction_bias", "mlp.gate.weight"),
        common=deepseek(n_group=2, topk_group=1, num_experts_per_tok=3)),
    "deepseek-sharded": dict(
        kind="DeepseekV3", dtype="bf16", shards=3, v4=True,
        common=deepseek(q_lora_rank=24, norm_topk_prob=False, routed_scaling_factor=1.0,
                        first_k_dense_replace=2, num_hidden_layers=3)),
}


def config_of(spec):
    """The model's configuration object, and config.json as the fixture has it."""
    common = dict(max_position_embeddings=512, rms_norm_eps=1e-6, hidden_act="silu",
                  attention_dropout=0.0, bos_token_id=None, eos_token_id=None, pad_token_id=None)
    common.update(spec["common"])
    rope = spec.get("rope", {"rope_type": "default"})
    if "llama3" in spec:
        rope = {"rope_type": "llama3", **spec["llama3"]}
    theta = common.pop("rope_theta")
    config = getattr(transformers, spec["kind"] + "Config")(
        **common, rope_parameters={**rope, "rope_theta": theta})

    dtype = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp8": "bfloat16"}[spec["dtype"]]
    text = {"architectures": [spec["kind"] + "ForCausalLM"],
            "model_type": spec["kind"].lower().replace("moe", "_moe").replace("v3", "_v3"), **common}
    if spec["kind"] == "DeepseekV3":
        text |= {"moe_layer_freq": 1, "scoring_func": "sigmoid", "topk_method": "noaux_tc"}
    if spec["dtype"] == "fp8":
        text["quantization_config"] = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                                       "weight_block_size": [BLOCK, BLOCK]}
    text["eos_token_id"] = 2  # overruled by generation_config.json where there is one
    if spec.get("v4"):
        text |= {"rope_theta": theta, "rope_scaling": rope if rope != {"rope_type": "default"} else None,
                 "torch_dtype": dtype}
    else:
        text |= {"rope_parameters": {**rope, "rope_theta": theta}, "dtype": dtype}
        if spec["kind"] == "Qwen3Moe":
            text["num_local_experts"] = text.pop("num_experts")
    for key in spec.get("omit", ()):
        text.pop(key, None)
    return config, text


def make_weights(model, spec, seed):
    """Random weights: unit gain through projections, so that layers and not embeddings decide."""
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for name, value in model.state_dict().items():
        noise = torch.randn(value.shape, generator=generator)
        if name.endswith("norm.weight"):
            state[name] = 1.0 + 0.2 * noise
        elif name.endswith("e_score_correction_bias"):
            state[name] = 0.1 * noise
        elif name.endswith(".bias"):
            state[name] = 0.3 * noise
        elif "embed_tokens" in name or "lm_head" in name:
            state[name] = 0.4 * noise
        else:
            gain = 2.0 if "o_proj" in name or "down_proj" in name else 1.5
            if name.endswith("experts.down_proj") and not getattr(model.config, "norm_topk_prob", True):
                gain *= 3.0  # their weights add up to less than one
            state[name] = gain / math.sqrt(max(1, value.shape[-1])) * noise
    if model.config.tie_word_embeddings and not spec.get("own_head"):
        state.pop("lm_head.weight", None)
    if "tokens" in spec:  # rows that no text stands for, as likely as can be
        state["model.embed_tokens.weight"][spec["tokens"]:] *= 4
    return dict(tensor for name, value in state.items() for tensor in published(spec, name, value))


def published(spec, name, value):
    """The tensors, by the names of published checkpoints, of one of transformers 5."""
    if spec["kind"] == "Mixtral":
        name = name.replace(".mlp.", ".block_sparse_moe.")
    gate, up, down = ("w1", "w3", "w2") if spec["kind"] == "Mixtral" else ("gate_proj", "up_proj", "down_proj")
    experts, _, which = name.rpartition(".")
    if not experts.endswith(".experts"):
        yield name, value
        return
    for i, expert in enumerate(value):
        parts = zip((gate, up), expert.chunk(2)) if which == "gate_up_proj" else [(down, expert)]
        for part, weight in parts:
            yield f"{experts}.{i}.{part}.weight", weight.contiguous()


def save_checkpoint(folder, spec, config_text, state):
    folder.mkdir()
    stored = {"fp16": torch.float16, "fp32": torch.float32}.get(spec["dtype"], torch.bfloat16)
    state = {name: value if name.endswith(spec.get("single", ())) else value.to(stored)
             for name, value in state.items() if value.numel() > 0}
    if spec["dtype"] == "fp8":
        state = quantised(state)
    (folder / "config.json").write_text(json.dumps(config_text, indent=2) + "\n")
    if "eos" in spec:
        (folder / "generation_config.json").write_text(
            json.dumps({"eos_token_id": spec["eos"], "do_sample": True}, indent=2) + "\n")
    shards = spec.get("shards", 1)
    if shards == 1:
        save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
        return
    names = list(state)
    weight_map = {}
    for i in range(shards):
        file = f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
        part = names[i * len(names) // shards:(i + 1) * len(names) // shards]
        save_file({name: state[name] for name in part}, folder / file, metadata={"format": "pt"})
        weight_map.update({name: file for name in part})
    total = sum(value.nbytes for value in state.values())
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}, indent=2) + "\n")


def is_quantised(name, value):
    return value.dim() == 2 and "layers." in name and not name.endswith("mlp.gate.weight")


def in_blocks(value, scales):
    return value.float() * scales.repeat_interleave(BLOCK, 0)[:value.shape[0]].repeat_interleave(BLOCK, 1)[:, :value.shape[1]]


def quantised(state):
    """The layers' matrices as fp8, with a scale for each block."""
    made = {}
    for name, value in state.items():
        made[name] = value
        if not is_quantised(name, value):
            continue
        rows, columns = (math.ceil(size / BLOCK) for size in value.shape)
        scales = torch.stack([torch.stack([
            value[r * BLOCK:(r + 1) * BLOCK, c * BLOCK:(c + 1) * BLOCK].float().abs().max() / 448
            for c in range(columns)]) for r in range(rows)])
        made[name] = in_blocks(value, 1 / scales).to(torch.float8_e4m3fn)
        made[name + "_scale_inv"] = scales
    return made


def as_bf16(folder):
    """A folder beside it with what the fp8 checkpoint stands for."""
    plain = folder.with_name(folder.name + ".bf16")
    shutil.rmtree(plain, ignore_errors=True)
    plain.mkdir()
    state = load_file(folder / "model.safetensors")
    save_file({name: in_blocks(value, state[name + "_scale_inv"]).bfloat16()
               if name + "_scale_inv" in state else value
               for name, value in state.items() if not name.endswith("_scale_inv")},
              plain / "model.safetensors", metadata={"format": "pt"})
    text = json.loads((folder / "config.json").read_text())
    text.pop("quantization_config")
    (plain / "config.json").write_text(json.dumps(text))
    return plain


def load(folder, dtype):
    if "quantization_config" in (folder / "config.json").read_text():
        plain = as_bf16(folder)
        model = load(plain, dtype)
        shutil.rmtree(plain)
        return model
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation="eager", experts_implementation="eager",
        output_loading_info=True)
    missing = [key for key in info["missing_keys"] if model.get_parameter(key).numel() > 0]
    assert not missing and not info["unexpected_keys"], info
    tied = model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()
    text = json.loads((folder / "config.json").read_text())
    assert tied == (text["tie_word_embeddings"] and not has_head(folder)), "head"
    return model.eval()


def has_head(folder):
    return any("lm_head.weight" in load_file(file) for file in folder.glob("model*.safetensors"))


def check_rope(model, spec):
    """That the file's configuration means what the table says, whatever version wrote it."""
    theta, head_dim = spec["common"]["rope_theta"], model.model.rotary_emb.inv_freq.numel() * 2
    plain = theta ** (-torch.arange(0, head_dim, 2).float() / head_dim)
    ratio = (plain / model.model.rotary_emb.inv_freq).tolist()
    rope = spec.get("rope", {})
    kind = rope.get("rope_type", rope.get("type"))
    if kind == "linear":
        assert max(abs(r / rope["factor"] - 1) for r in ratio) < 1e-5, ratio
    elif "llama3" in spec or kind == "yarn":
        factor = spec.get("llama3", rope)["factor"]
        kinds = {"kept": sum(r < 1.001 for r in ratio), "divided": sum(r > factor * 0.999 for r in ratio)}
        kinds["blended"] = len(ratio) - sum(kinds.values())
        assert all(kinds.values()), kinds
    else:
        assert max(abs(r - 1) for r in ratio) < 1e-5, ratio


@torch.no_grad()
def routing_of(model, tokens):
    """The experts that each token uses, ascending: [layers with experts, tokens, k]; None: no experts."""
    chosen = []
    hooks = [module.register_forward_hook(lambda _, __, out: chosen.append(out[2].sort().values))
             for module in model.modules() if type(module).__name__.lower().endswith("topkrouter")]
    logits_of(model, tokens)
    for hook in hooks:
        hook.remove()
    return torch.stack(chosen).float() if chosen else None


@torch.no_grad()
def logits_of(model, tokens):
    return model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]


def reference_of(folder, spec, seed):
    """(reference.json's contents, tensors), or None when a greedy token wins too narrowly."""
    model = load(folder, torch.float32)
    check_rope(model, spec)
    generator = torch.Generator().manual_seed(seed + 1000)
    vocab = spec.get("tokens", spec["common"]["vocab_size"])  # of padding none is ever chosen
    prompts, tensors = [], {}
    for i, length in enumerate(PROMPT_LENGTHS):
        tokens = torch.randint(vocab, (length,), generator=generator).tolist()
        positions = list(range(length)) if length <= 17 else list(KEPT)
        logits = logits_of(model, tokens)
        tensors[f"logits.{i}"] = logits[positions].contiguous()
        if (routing := routing_of(model, tokens)) is not None:
            tensors[f"routing.{i}"] = routing

        greedy, logprobs, margins = [], [], []
        for _ in range(GREEDY_TOKENS):
            last = logits_of(model, tokens + greedy)[-1]
            best = last[:vocab].topk(2)
            if best.values[0] - best.values[1] < MIN_MARGIN:
                return None
            greedy.append(best.indices[0].item())
            margins.append(best.values[0] - best.values[1])
            logprobs.append(torch.log_softmax(last.double() / TEMPERATURE, -1)[greedy[-1]])
        if len(set(greedy)) < GREEDY_TOKENS // 3:
            return None  # fell into a short loop: it would test little
        tensors[f"greedy_logprob.{i}"] = torch.stack(logprobs).float()
        tensors[f"greedy_margin.{i}"] = torch.stack(margins)
        prompts.append({"tokens": tokens, "positions": positions, "greedy": greedy})

    half = load(folder, torch.bfloat16)
    errors = torch.cat([
        (logits_of(half, p["tokens"])[p["positions"]].float() - tensors[f"logits.{i}"]).flatten()
        for i, p in enumerate(prompts)])
    everything = torch.cat([tensors[f"logits.{i}"].flatten() for i in range(len(prompts))])
    text = {
        "stored_dtype": spec["dtype"].replace("fp8", "bf16"),
        **({"tokens": vocab} if "tokens" in spec else {}),
        "temperature": TEMPERATURE,
        "logit_std": everything.std().item(),
        "bf16_max_error": errors.abs().max().item(),
        "bf16_rms_error": errors.square().mean().sqrt().item(),
        "prompts": prompts,
        "made_with": {"torch": torch.__version__, "transformers": transformers.__version__,
                      "seed": seed},
    }
    if "tokens" in spec:
        padding = torch.cat([tensors[f"logits.{i}"] for i in range(len(prompts))])
        assert (padding.argmax(-1) >= vocab).float().mean() > 0.2, "padding hardly matters"
    return text, tensors


def dump(text):
    """JSON with each list of numbers on one line."""
    prompts = ",\n".join(
        "    {" + ",\n     ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in p.items()) + "}"
        for p in text["prompts"])
    rows = [f'  {json.dumps(k)}: ' + (f"[\n{prompts}\n  ]" if k == "prompts" else json.dumps(v))
            for k, v in text.items()]
    return "{\n" + ",\n".join(rows) + "\n}\n"


def make(name, spec):
    folder = HERE / name
    for seed in range(1, 200):
        shutil.rmtree(folder, ignore_errors=True)
        config, config_text = config_of(spec)
        model = getattr(transformers, spec["kind"] + "ForCausalLM")(config)
        save_checkpoint(folder, spec, config_text, make_weights(model, spec, seed))
        made = reference_of(folder, spec, seed)
        if made is None:
            continue
        text, tensors = made
        (folder / "reference.json").write_text(dump(text))
        save_file(tensors, folder / "reference.safetensors")
        size = sum(file.stat().st_size for file in folder.iterdir())
        margin = min(tensors[f"greedy_margin.{i}"].min().item() for i in range(3))
        print(f"{name}: seed {seed}, {size / 1024:.0f} KiB, logit std {text['logit_std']:.2f}, "
              f"bf16 error max {text['bf16_max_error']:.3f} rms {text['bf16_rms_error']:.4f}, "
              f"least margin {margin:.4f}", flush=True)
        return
    raise SystemExit(f"{name}: no seed has clear greedy tokens")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", action="append", choices=CHECKPOINTS)
    only = parser.parse_args().only
    torch.set_num_threads(1)  # one order of additions, wherever this runs
    torch.set_float32_matmul_precision("highest")
    transformers.logging.set_verbosity_error()
    for name, spec in CHECKPOINTS.items():
        if not only or name in only:
            make(name, spec)


if __name__ == "__main__":
    main()
