#!/usr/bin/env python3
"""Makes the parity fixtures of EAGLE-3 heads: small random heads, and what eagle3.py computes with them.

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

from eagle3 import Eagle3Config, Eagle3Head, load_head  # noqa: E402

ROWS = 70  # past the first attention tile
CHAIN = 5  # tokens drafted in turn
AHEAD = 6  # masked rows
# A tree of drafted tokens by levels: the node each follows, -1 for the text.
LEVELS = ([-1, -1, -1], [0, 0, 2, 1], [4, 3, 4, 6], [8, 7])

HEADS = {
    "midlayer": dict(prefix="midlayer."),
    "midlayer-d2t": dict(prefix="midlayer.", draft_vocab_size=40, rope_theta=500000.0),
    "layers0": dict(prefix="layers.0.", norm_before_residual=True, target_hidden_size=48),
    "layers0-d2t": dict(prefix="layers.0.", draft_vocab_size=40, norm_before_residual=True),
    # EAGLE-3.1, as SpecForge writes it, of more layers than usual.
    "fc-norm": dict(prefix="midlayer.", fc_norm=True, norm_output=True, target_hidden_size=48,
                    eagle_config={"eagle_aux_hidden_state_layer_ids": [0, 3, 5, 6, 9]}),
    "input-norm": dict(prefix="midlayer.", norm_before_fc=True, target_hidden_size=24, dtype=torch.float16),
    # vLLM's speculators, with a layer of Qwen3's kind and embeddings of its own, narrower than the target's.
    "speculators": dict(prefix="layers.0.", draft_vocab_size=40, norm_before_residual=True, norm_output=True,
                        target_hidden_size=48, own_embeddings=True, nested="qwen3",
                        eagle_aux_hidden_state_layer_ids=[1, 4]),
    # P-EAGLE, as vLLM reads one object, and as its speculators write it.
    "peagle": dict(prefix="midlayer.", num_hidden_layers=3, ptd_token_id=95, draft_vocab_size=40),
    "peagle-nested": dict(prefix="layers.0.", num_hidden_layers=2, mask_token_id=7, norm_before_residual=True,
                          fc_norm=True, norm_output=False, target_hidden_size=48, own_embeddings=True, nested="qwen3"),
}
# Keys that speculators keep beside the layer's configuration.
OUTER = ("draft_vocab_size", "norm_before_residual", "norm_before_fc", "fc_norm", "norm_output", "target_hidden_size",
         "eagle_aux_hidden_state_layer_ids", "mask_token_id")


def nested_text(text: dict, kind: str) -> dict:
    """A head's config.json as speculators write it."""
    layer = {key: value for key, value in text.items() if key not in (*OUTER, "architectures", "eagle_config")}
    algorithm = "eagle3" if text.get("mask_token_id") is None else "peagle"
    return {
        "architectures": ["Eagle3Speculator" if algorithm == "eagle3" else "PEagleDraftModel"],
        "speculators_model_type": algorithm,
        **{key: text[key] for key in OUTER if key in text},
        "speculators_config": {"algorithm": algorithm, "verifier": {"name_or_path": "target"}},
        "transformer_layer_config": layer | {"model_type": kind},
    }


def random_head(prefix: str, folder: pathlib.Path, embedding: torch.Tensor, dtype: torch.dtype = torch.bfloat16,
                own_embeddings: bool = False, nested: str = "", **keys) -> None:
    """A head of weights of this type, published under names with this prefix."""
    text = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2,
            "head_dim": 8, "vocab_size": 96, "rms_norm_eps": 1e-5, "rope_theta": 10000.0} | keys
    layers = {key: text.pop(key) for key in ("eagle_config", "eagle_aux_hidden_state_layer_ids") if key in text}
    kind = {"transformer_layer_config": {"model_type": nested}} if nested else {}
    config = Eagle3Config.from_dict(text | layers | kind)
    head = Eagle3Head(config, embedding)
    tensors = {}
    for name, tensor in head.state_dict().items():
        norm = tensor.dim() == 1
        value = 1 + 0.1 * torch.randn(tensor.shape) if norm else torch.randn(tensor.shape) * tensor.shape[-1] ** -0.5
        if name == "mask_hidden":  # of the features' size; vLLM takes any number of ones before it
            value = torch.randn(tensor.shape if nested else tensor.shape[1:])
        tensors[name.replace("midlayer.", prefix)] = value.to(dtype)
    if own_embeddings:
        tensors["embed_tokens.weight"] = torch.randn(config.vocab_size, config.hidden_size).to(dtype)
    if config.draft_vocab_size < config.vocab_size:
        ids = torch.randperm(config.vocab_size)[: config.draft_vocab_size].sort().values
        tensors["d2t"] = ids - torch.arange(config.draft_vocab_size)
        tensors["t2d"] = torch.zeros(config.vocab_size, dtype=torch.bool).index_fill(0, ids, True)
    text = config.as_dict() | layers
    if "ptd_token_id" in keys:
        text["ptd_token_id"] = text.pop("mask_token_id")
    (folder / "config.json").write_text(json.dumps(nested_text(text, nested) if nested else text, indent=2) + "\n")
    save_file(tensors, folder / "model.safetensors")


def answers(head: Eagle3Head, tokens: torch.Tensor, features: torch.Tensor, drafted: torch.Tensor) -> dict:
    """Logits of all rows of a text, of a chain drafted behind it, and of a tree that grows behind it."""
    text = head(tokens[1:], features)
    past, recurrent, chain = (text.keys, text.values), text.features[-1:], []
    for token in drafted[:CHAIN]:
        rows = head(token[None], recurrent, past=past)
        past, recurrent = (rows.keys, rows.values), rows.features
        chain.append(rows.logits)

    parents = sum(LEVELS, [])
    own = torch.full((0, head.config.hidden_size), 0.0)  # features of the nodes so far
    past, seen, logits, depth = (text.keys, text.values), torch.zeros(0, 0, dtype=torch.bool), [], {-1: 0}
    for level in LEVELS:
        first = len(own)
        nodes = range(first, first + len(level))
        feature = torch.stack([text.features[-1] if parents[i] < 0 else own[parents[i]] for i in nodes])
        sees = torch.zeros(len(level), first + len(level), dtype=torch.bool)
        for row, node in enumerate(nodes):
            if parents[node] >= 0:
                sees[row, :first] = seen[parents[node], :first]
            sees[row, node] = True
            depth[node] = depth[parents[node]] + 1
        mask = torch.cat((torch.ones(len(level), ROWS, dtype=torch.bool), sees), dim=-1)
        positions = torch.tensor([ROWS - 1 + depth[node] for node in nodes])
        rows = head(drafted[first : first + len(level)], feature, positions, mask, past)
        past, own = (rows.keys, rows.values), torch.cat((own, rows.features))
        grown = torch.zeros(len(own), len(own), dtype=torch.bool)
        grown[:first, :first] = seen
        grown[first:] = sees
        seen = grown
        logits.append(rows.logits)
    masked = {}
    if head.config.mask_token_id is not None:
        masked["masked_logits"] = head.at_once(tokens[1:], features, AHEAD)[ROWS:].contiguous()
    return masked | {"logits": text.logits, "chain_logits": torch.cat(chain), "tree_logits": torch.cat(logits)}


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
        embedding = torch.randn(96, 32).bfloat16().float()
        random_head(folder=folder, embedding=embedding, **keys)
        head = load_head(folder, embedding)
        tokens = torch.randint(0, 96, (ROWS + 1,))
        drafted = torch.randint(0, 96, (sum(map(len, LEVELS)),))
        features = torch.randn(ROWS, head.config.features * head.config.target_hidden_size)
        made = answers(head, tokens, features, drafted)
        reference = {"tokens": tokens.tolist(), "drafted": drafted.tolist(), "chain": CHAIN, "levels": LEVELS,
                     "target_ids": head.target_ids(torch.arange(head.config.draft_vocab_size)).tolist()}
        (folder / "reference.json").write_text(json.dumps(reference) + "\n")
        save_file({"embedding": embedding, "features": features} | made, folder / "reference.safetensors")
        print(name, f"logit std {made['logits'].std():.2f}")


if __name__ == "__main__":
    main()
