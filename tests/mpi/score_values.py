"""What `paceline score` wrote, held against the run itself or a plain decoder.

    score_values.py same RUN NAME            bits of both log-probabilities are the run's own
    score_values.py equal RUN NAME OTHER     bits of two scores of one run are the same
    score_values.py decoder RUN NAME MODEL   a Qwen2 of few lines in float64 says the same of some responses, to 1e-3
    score_values.py experts RUN NAME FIXTURE    the prompts are a parity fixture's, and their experts what transformers says;
                                             verl and slime get them
    score_values.py routing RUN NAME OTHER   experts of two scores of one run are the same
    score_values.py kept RUN NAME            experts that the run recorded are those of its scores
    score_values.py replayed RUN NAME OTHER  NAME took the experts that the run recorded, and OTHER none of them
    score_values.py negate MODEL TENSOR      the weights with one tensor (bf16) negated

Prints one line that tells what was compared; exits with 1 where it differs.
"""

import json
import os
import struct
import sys

import numpy as np

READER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "io", "python")


def weights_of(model):
    """Name -> float64 array, of a single safetensors file of bf16."""
    with open(os.path.join(model, "model.safetensors"), "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
        data = file.read()
    tensors = {}
    for name, about in header.items():
        if name == "__metadata__":
            continue
        begin, end = about["data_offsets"]
        assert about["dtype"] == "BF16", name
        halves = np.frombuffer(data[begin:end], "<u2").astype("<u4") << 16
        tensors[name] = halves.view("<f4").astype(np.float64).reshape(about["shape"])
    return tensors


def negate(model, tensor):
    path = os.path.join(model, "model.safetensors")
    with open(path, "rb") as file:
        raw = bytearray(file.read())
    (size,) = struct.unpack("<Q", raw[:8])
    begin, end = json.loads(bytes(raw[8 : 8 + size]))[tensor]["data_offsets"]
    values = np.frombuffer(raw, "<u2", (end - begin) // 2, 8 + size + begin)
    values ^= 0x8000
    with open(path, "wb") as file:
        file.write(raw)


def log_softmax(logits):
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


class Decoder:
    def __init__(self, model):
        with open(os.path.join(model, "config.json")) as file:
            self.config = json.load(file)
        self.weights = weights_of(model)

    def linear(self, x, name):
        bias = self.weights.get(name + ".bias")
        y = x @ self.weights[name + ".weight"].T
        return y if bias is None else y + bias

    def norm(self, x, name):
        scale = np.sqrt((x * x).mean(axis=-1, keepdims=True) + self.config["rms_norm_eps"])
        return x / scale * self.weights[name + ".weight"]

    def rotated(self, x):
        """x: [tokens, heads, head_dim]"""
        half = x.shape[-1] // 2
        frequency = self.config["rope_theta"] ** (-np.arange(half) / half)
        angle = np.outer(np.arange(len(x)), frequency)[:, None, :]
        first, second = x[..., :half], x[..., half:]
        return np.concatenate(
            (first * np.cos(angle) - second * np.sin(angle), second * np.cos(angle) + first * np.sin(angle)), axis=-1
        )

    def attention(self, x, name):
        heads, kv_heads = self.config["num_attention_heads"], self.config["num_key_value_heads"]
        q = self.rotated(self.linear(x, name + ".q_proj").reshape(len(x), heads, -1))
        k = self.rotated(self.linear(x, name + ".k_proj").reshape(len(x), kv_heads, -1))
        v = self.linear(x, name + ".v_proj").reshape(len(x), kv_heads, -1)
        k, v = (np.repeat(y, heads // kv_heads, axis=1) for y in (k, v))
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(q.shape[-1])
        scores = np.where(np.tri(len(x), dtype=bool), scores, -np.inf)
        mixed = np.einsum("hqk,khd->qhd", np.exp(log_softmax(scores)), v)
        return self.linear(mixed.reshape(len(x), -1), name + ".o_proj")

    def logits(self, tokens):
        x = self.weights["model.embed_tokens.weight"][tokens]
        for layer in range(self.config["num_hidden_layers"]):
            name = f"model.layers.{layer}"
            x = x + self.attention(self.norm(x, name + ".input_layernorm"), name + ".self_attn")
            y = self.norm(x, name + ".post_attention_layernorm")
            gate = self.linear(y, name + ".mlp.gate_proj")
            x = x + self.linear(gate / (1 + np.exp(-gate)) * self.linear(y, name + ".mlp.up_proj"), name + ".mlp.down_proj")
        head = "model.embed_tokens" if self.config["tie_word_embeddings"] else "lm_head"
        return self.linear(self.norm(x, "model.norm"), head)


def by_decoder(run, scores, model):
    decoder = Decoder(model)
    temperature = scores.attributes["sampling"]["temperature"] or 1.0
    tokens, largest = 0, 0.0
    for index in range(0, len(run), 5):
        response = run[index]
        prompt = run.prompts[response.prompt_index].tokens
        text = np.concatenate((prompt, response.tokens))
        logits = decoder.logits(text)[len(prompt) - 1 : -1]
        expected = log_softmax(logits / temperature)[np.arange(len(response.tokens)), response.tokens]
        tokens += len(expected)
        largest = max(largest, np.abs(expected - scores.logprob[index]).max())
    print(f"{tokens} tokens, {largest:.2g} apart at most")
    return tokens > 100 and largest < 1e-3


def safetensors_f32(path):
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
        data = file.read()
    return {
        name: np.frombuffer(data[slice(*about["data_offsets"])], "<f4").reshape(about["shape"])
        for name, about in header.items()
        if name != "__metadata__"
    }


def by_transformers(run, scores, fixture):
    """Prompts' experts against the fixture's; those of whole responses against what trainers get."""
    expected = safetensors_f32(os.path.join(fixture, "reference.safetensors"))
    batch = run.to_verl(routing=scores)["tensors"]
    tokens = different = 0
    for index in range(len(run)):
        prompt = run.prompt_index[index]
        length = len(run.prompts[prompt].tokens)
        experts = scores.routed_experts(index)
        theirs = expected[f"routing.{prompt}"]  # [layers with experts, prompt, k]
        with_experts = np.flatnonzero(experts[0, :, 0] >= 0)
        mine = experts[:length, with_experts].transpose(1, 0, 2)
        different += int((mine != theirs).any(axis=-1).sum())
        tokens += theirs.shape[0] * theirs.shape[1]
        row = batch["routed_experts"][index]
        first = batch["prompts"].shape[1] - length
        if batch["routed_experts"].dtype != np.int16 or not np.array_equal(row[first : first + len(experts)], np.maximum(experts, 0)):
            print(f"verl's row {index} is another")
            return False
        if len(experts) != length + run.lengths[index] - 1 or row[:first].any():
            print(f"the experts of {index} are of other tokens")
            return False
    print(f"{tokens} choices, {different} others than those of transformers")
    return tokens > 100 and different == 0


def bits(values):
    return np.ascontiguousarray(values).view(np.uint32)


def main(mode, *arguments):
    if mode == "negate":
        negate(*arguments)
        return True
    sys.path.insert(0, READER)
    from paceline_reader import open_run

    with open_run(arguments[0]) as run:
        scores = run.scores_under(arguments[1])
        if mode == "decoder":
            return by_decoder(run, scores, arguments[2])
        if mode == "experts":
            return by_transformers(run, scores, arguments[2])
        if mode == "kept":
            same = [np.array_equal(scores.routed_experts(i), run.routed_experts(i)) for i in range(len(run))]
            print(f"{sum(same)} of {len(same)} responses have the experts of their scores")
            return len(same) > 0 and all(same)
        if mode == "replayed":
            other = run.scores_under(arguments[2])
            pairs = [(scores.routed_experts(i), run.routed_experts(i), other.routed_experts(i)) for i in range(len(run))]
            same = sum(np.array_equal(a, b) for a, b, _ in pairs)
            chosen = sum(np.array_equal(a, c) for a, _, c in pairs)
            print(f"{same} of {len(pairs)} responses have the experts that were recorded, {chosen} those of the router")
            apart = any(not np.array_equal(a, b) for a, b in zip(scores.logprob, other.logprob))
            return len(pairs) > 0 and same == len(pairs) and chosen == 0 and apart
        if mode == "routing":
            other = run.scores_under(arguments[2])
            same = [np.array_equal(scores.routed_experts(i), other.routed_experts(i)) for i in range(len(run))]
            print(f"{sum(same)} of {len(same)} responses have the same experts")
            return len(same) > 0 and all(same)
        other = run if mode == "same" else run.scores_under(arguments[2])
        same, tokens = 0, 0
        for index in range(len(run)):
            for column in ("logprob", "sampling_logprob"):
                theirs = getattr(run[index], column) if mode == "same" else getattr(other, column)[index]
                mine = getattr(scores, column)[index]
                same += int((bits(mine) == bits(theirs)).sum())
                tokens += len(theirs)
        print(f"{same} of {tokens} values are the same to the bit")
        return tokens > 0 and same == tokens


if __name__ == "__main__":
    sys.exit(0 if main(*sys.argv[1:]) else 1)
