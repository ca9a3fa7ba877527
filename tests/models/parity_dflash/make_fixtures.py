#!/usr/bin/env python3
"""Makes the parity fixtures of DFlash heads: small random heads, and what dflash.py computes with them.

    python make_fixtures.py [NAME]...

Needs torch. Writes one folder a head beside this file; the README says what is in it.
"""

import json
import pathlib
import shutil
import sys

import torch
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from dflash import DFlashConfig, DFlashHead, load_head  # noqa: E402

ROWS = 70  # of the context: past the first attention tile, and a block that lies across the next KV block
SIZES = dict(hidden_size=32, target_hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2,
             head_dim=8, vocab_size=96, draft_vocab_size=96, rms_norm_eps=1e-5, num_hidden_layers=2)

HEADS = {
    # z-lab's form: embeddings and output are the target's.
    "borrowing": dict(block_size=16, mask_token_id=95, target_layer_ids=(1, 3, 5, 7, 9), rope_theta=1e6),
    # block_size in dflash_config, as later checkpoints have it.
    "one-layer": dict(block_size=4, mask_token_id=0, target_layer_ids=(0,), num_hidden_layers=1, inner_block=True),
    # vLLM's speculators: a nested configuration, a vocabulary and embeddings of its own, narrower than the target.
    "speculators": dict(block_size=8, mask_token_id=7, target_layer_ids=(0, 3), target_hidden_size=48,
                        draft_vocab_size=40, own_embeddings=True, nested=True),
}


def text_of(config: DFlashConfig, nested: bool, inner_block: bool) -> dict:
    """config.json in one of its forms."""
    text = config.as_dict()
    own = text.pop("dflash_config")
    if inner_block:
        own["block_size"] = text.pop("block_size")
    if not nested:
        return {**text, "dflash_config": own}
    outer = {key: text.pop(key) for key in ("block_size", "draft_vocab_size", "target_hidden_size") if key in text}
    del text["architectures"]
    return {
        "architectures": ["DFlashSpeculator"],
        "speculators_model_type": "dflash",
        "aux_hidden_state_layer_ids": [layer + 1 for layer in own["target_layer_ids"]],
        "mask_token_id": own["mask_token_id"],
        **outer,
        "speculators_config": {"algorithm": "dflash", "verifier": {"name_or_path": "target"}},
        "transformer_layer_config": text,
    }


def random_head(folder: pathlib.Path, embedding: torch.Tensor, output: torch.Tensor, own_embeddings: bool = False,
                nested: bool = False, inner_block: bool = False, **keys) -> None:
    config = DFlashConfig(**(SIZES | keys))
    tensors = {}
    for name, tensor in DFlashHead(config, embedding, output).state_dict().items():
        norm = tensor.dim() == 1
        value = 1 + 0.1 * torch.randn(tensor.shape) if norm else torch.randn(tensor.shape) * tensor.shape[-1] ** -0.5
        tensors[name] = value.bfloat16()
    if own_embeddings:
        tensors["embed_tokens.weight"] = torch.randn(config.vocab_size, config.hidden_size).bfloat16()
    if config.draft_vocab_size < config.vocab_size:
        ids = torch.randperm(config.vocab_size)[: config.draft_vocab_size].sort().values
        tensors["d2t"] = ids - torch.arange(config.draft_vocab_size)
        tensors["t2d"] = torch.zeros(config.vocab_size, dtype=torch.bool).index_fill(0, ids, True)
        tensors["lm_head.weight"] = torch.randn(config.draft_vocab_size, config.hidden_size).bfloat16()
    (folder / "config.json").write_text(json.dumps(text_of(config, nested, inner_block), indent=2) + "\n")
    save_file(tensors, folder / "model.safetensors")


@torch.no_grad()
def main() -> None:
    only = sys.argv[1:] or list(HEADS)
    for index, (name, keys) in enumerate(HEADS.items()):
        if name not in only:
            continue
        torch.manual_seed(index)
        folder = HERE / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        embedding, output = (torch.randn(96, 32).bfloat16().float() for _ in range(2))
        random_head(folder, embedding, output, **keys)
        head = load_head(folder, embedding, output)
        tokens = torch.randint(0, 96, (ROWS + 1,))
        features = torch.randn(ROWS, len(head.config.target_layer_ids) * head.config.target_hidden_size)
        logits = head(head.block_of(tokens[-1]), features)
        reference = {"tokens": tokens.tolist(), "drafted": [], "chain": 0, "levels": [],
                     "target_ids": head.target_ids(torch.arange(head.config.draft_vocab_size)).tolist()}
        (folder / "reference.json").write_text(json.dumps(reference) + "\n")
        answers = {"embedding": embedding, "lm_head.weight": output, "features": features, "block_logits": logits}
        save_file(answers, folder / "reference.safetensors")
        print(name, f"logit std {logits.std():.2f}")


if __name__ == "__main__":
    main()
