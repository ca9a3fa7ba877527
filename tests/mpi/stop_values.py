"""Responses held against what other runs, or a plain decoder, say of the same requests.

    stop_values.py cut MODEL ENDLESS STOPPED STRING    each response of STOPPED is that of ENDLESS up to the token with
                                                       which STRING, special tokens' spelling included, is complete
    stop_values.py pad MODEL DIR TIMES                 the model with each row of its vocabulary TIMES times, of which
                                                       its tokenizer has the first
    stop_values.py same PLAIN PADDED                   tokens and sampling_logprob are the same to the bit, the masked
                                                       rows' share of the full vocabulary's probability is not
    stop_values.py has RUN FIRST LAST                  how many sampled tokens have ids from FIRST to LAST
    stop_values.py kept RUN MODEL                      what each token could have been, by a Qwen2 of few lines in
                                                       float64, but for what lies on the edge; of a run in fp32
    stop_values.py equal RUN RUN                       the same of two runs, to the bit
    stop_values.py top RUN MODEL SCORES                the most probable tokens, by a Qwen2 of few lines in float64, and
                                                       of what was sampled by the scores; of a run in fp32
    stop_values.py penalised RUN MODEL                 sampling_logprob, by the same after the processors of transformers
                                                       (bias, repetition) and vLLM (frequency, presence); likewise
    stop_values.py same_top RUN RUN                    the most probable tokens of two runs, to the bit
    stop_values.py dealt RUN RUN...                    prompt p of the first run has the responses of the
                                                       p mod n-th of the n others, to the bit

Prints one line that tells what was compared; exits with 1 where it differs.
"""

import json
import os
import shutil
import struct
import sys

import h5py
import numpy as np


def spellings(model):
    """Id -> bytes, of a byte-level tokenizer.json."""
    with open(os.path.join(model, "tokenizer.json")) as file:
        tokenizer = json.load(file)
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    byte_of = {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}
    texts = {id: bytes(byte_of[c] for c in token) for token, id in tokenizer["model"]["vocab"].items()}
    return texts | {added["id"]: added["content"].encode() for added in tokenizer["added_tokens"]}


def columns(run, *names):
    with h5py.File(os.path.join(run, "trajectories.h5")) as file:
        return [file["trajectories"][name][:] for name in names]


def responses(run):
    offsets, tokens, reasons = columns(run, "offsets", "tokens", "finish_reason")
    return [(list(tokens[a:b]), int(r)) for a, b, r in zip(offsets, offsets[1:], reasons)]


def cut(model, endless, stopped, string):
    texts, wanted = spellings(model), string.encode()
    ended = 0
    for i, ((whole, _), (part, reason)) in enumerate(zip(responses(endless), responses(stopped), strict=True)):
        text, length = b"", 0
        while length < len(whole) and wanted not in text:
            text += texts[whole[length]]
            length += 1
        found = wanted in text
        ended += found
        assert part == whole[:length], f"response {i} has {len(part)} tokens, expected {length}"
        assert (reason == 2) == found, f"response {i} ended for reason {reason}, stop string found: {found}"
    assert ended > 0, "no response has the string"
    return f"{ended} responses end with it, {len(responses(stopped)) - ended} have none"


def pad(model, folder, times):
    shutil.copytree(model, folder, copy_function=shutil.copyfile)
    path = os.path.join(folder, "config.json")
    with open(path) as file:
        config = json.load(file)
    config["vocab_size"] *= int(times)
    with open(path, "w") as file:
        json.dump(config, file)
    path = os.path.join(folder, "model.safetensors")
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header, data = json.loads(file.read(size)), file.read()
    tensors = {name: about for name, about in header.items() if name != "__metadata__"}
    out = b""
    for name, about in tensors.items():
        begin, end = about["data_offsets"]
        rows = name in ("model.embed_tokens.weight", "lm_head.weight")
        part = data[begin:end] * (int(times) if rows else 1)
        if rows:
            about["shape"][0] *= int(times)
        about["data_offsets"] = [len(out), len(out) + len(part)]
        out += part
    text = json.dumps(tensors).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + out)
    return f"{config['vocab_size']} rows"


def bits(values):
    return np.ascontiguousarray(values).view(np.uint32)


def same(plain, padded):
    (tokens, sampling, full), (other, other_sampling, other_full) = (
        columns(run, "tokens", "sampling_logprob", "logprob") for run in (plain, padded)
    )
    assert np.array_equal(tokens, other), "tokens differ"
    assert np.array_equal(bits(sampling), bits(other_sampling)), "sampling_logprob differs"
    assert np.allclose(full - np.log(2), other_full, atol=1e-5), "logprob is not of the full vocabulary"
    return f"{len(tokens)} tokens"


def has(run, first, last):
    (tokens,) = columns(run, "tokens")
    return str(int(np.count_nonzero((tokens >= int(first)) & (tokens <= int(last)))))


def kept(run, model):
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:0] = [here, os.path.join(here, "..", "..", "io", "python")]
    from paceline_reader import open_run
    from score_values import Decoder, log_softmax

    decoder, tokens, edges = Decoder(model), 0, 0
    with open_run(run) as opened:
        sampling = opened.attributes["sampling"]
        for index in range(0, len(opened), 3):
            response = opened[index]
            prompt = opened.prompts[response.prompt_index].tokens
            text = np.concatenate((prompt, response.tokens))
            logits = decoder.logits(text)[len(prompt) - 1 : -1] / sampling["temperature"]
            for first, last in sampling["masked"]:
                logits[:, first : last + 1] = -np.inf
            for t, row in enumerate(log_softmax(logits)):
                ids = response.kept_ids[response.kept_offsets[t] : response.kept_offsets[t + 1]]
                assert 1 <= len(ids) <= sampling["top_k"] and response.tokens[t] in ids
                assert np.all(np.diff(ids) > 0)
                order = np.argsort(-row, kind="stable")[: sampling["top_k"]]
                p = np.exp(log_softmax(row[order]))
                most = 1 + int(np.searchsorted(np.cumsum(p), sampling["top_p"]))
                expected = order[: min(most, len(order))]
                tokens += 1
                if set(expected.tolist()) == set(ids.tolist()):
                    continue
                # The arithmetic is another: only what is about as probable as the last may differ.
                edges += 1
                least = row[expected[-1]]
                for id in set(expected.tolist()) ^ set(ids.tolist()):
                    assert abs(row[id] - least) < 0.05, f"response {index}, token {t}: id {id}"
    assert tokens > 200 and edges < tokens / 50, f"{edges} of {tokens} differ"
    return f"{tokens} tokens, {edges} of them with an id on the edge"


def equal(run, other):
    names = "tokens", "kept_ids", "kept_offsets"
    for name, a, b in zip(names, columns(run, *names), columns(other, *names)):
        assert np.array_equal(a, b), f"{name} differ"
    return f"{len(columns(run, 'kept_ids')[0])} ids"


def decoded(run, model, step):
    """(response, its prompt's tokens, logits of each of its tokens) of every step-th response."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:0] = [here, os.path.join(here, "..", "..", "io", "python")]
    from paceline_reader import open_run
    from score_values import Decoder

    decoder = Decoder(model)
    with open_run(run) as opened:
        for index in range(0, len(opened), step):
            response = opened[index]
            prompt = opened.prompts[response.prompt_index].tokens
            text = np.concatenate((prompt, response.tokens))
            yield opened, index, response, prompt, decoder.logits(text)[len(prompt) - 1 : -1]


def top(run, model, scores):
    from score_values import log_softmax

    tokens = found = 0
    for opened, index, response, _, logits in decoded(run, model, 3):
        under = opened.scores_under(scores)
        scored = under.logprob[index]
        ids, logprobs = under.top(index)
        assert np.array_equal(ids, response.top_ids), "score has others"
        assert np.array_equal(bits(logprobs), bits(response.top_logprob)), "score has others"
        k = opened.attributes["sampling"]["logprobs"]
        assert response.top_ids.shape == response.top_logprob.shape == (len(response.tokens), k)
        for t, row in enumerate(log_softmax(logits)):
            ids, values = response.top_ids[t], response.top_logprob[t]
            best = -np.sort(-row)[:k]  # of ids that are about equal either may come first
            assert np.abs(best - values).max() < 1e-3, f"response {index}, token {t}: {best} {values}"
            assert np.abs(row[ids] - values).max() < 1e-3 and len(set(ids.tolist())) == k
            assert np.all(np.diff(values) <= 0)
            tokens += 1
            for value in values[ids == response.tokens[t]]:
                found += 1
                assert bits(value) == bits(scored[t]) == bits(response.logprob[t]), f"response {index}, token {t}"
    assert tokens > 200 and found > tokens / 3, f"{tokens} tokens, {found} among the best"
    return f"{tokens} tokens, {found} of them among the best"


def penalised(run, model):
    tokens = moved = 0
    for opened, index, response, prompt, logits in decoded(run, model, 3):
        from score_values import log_softmax

        sampling = opened.attributes["sampling"]
        own = opened.prompts[response.prompt_index].own_sampling
        setting = lambda name, default: own.get(name, sampling.get(name, default))  # noqa: E731
        for t, row in enumerate(logits):
            said = response.tokens[:t]
            scores = row.astype(np.float32)
            for token, bias in setting("logit_bias", {}).items():
                scores[int(token)] += np.float32(bias)
            seen = np.unique(np.concatenate((prompt, said)))
            penalty = np.float32(setting("repetition_penalty", 1))
            scores[seen] = np.where(scores[seen] < 0, scores[seen] * penalty, scores[seen] / penalty)
            counts = np.bincount(said, minlength=len(scores)).astype(np.float32)
            scores -= np.float32(setting("frequency_penalty", 0)) * counts
            scores -= np.float32(setting("presence_penalty", 0)) * (counts > 0)
            for first, last in sampling["masked"]:
                scores[first : last + 1] = -np.inf
            expected = log_softmax(scores.astype(np.float64))[response.tokens[t]]
            assert abs(expected - response.sampling_logprob[t]) < 1e-3, f"response {index}, token {t}"
            plain = log_softmax(row)[response.tokens[t]]
            assert abs(plain - response.logprob[t]) < 1e-3, f"response {index}, token {t}: logprob"
            tokens += 1
            moved += abs(expected - plain) > 0.01
    assert tokens > 200 and moved > tokens / 8, f"{moved} of {tokens}"
    return f"{tokens} tokens, the probabilities of {moved} are others than the model's"


def same_top(run, other):
    for name, a, b in zip(("ids", "logprob"), *(columns(of, "top_ids", "top_logprob") for of in (run, other))):
        assert np.array_equal(a.view(np.uint32), b.view(np.uint32)), f"top_{name} differ"
    return f"{len(columns(run, 'top_ids')[0])} ids"


def dealt(run, *others):
    names = "offsets", "prompt_index", "sample_index", "tokens", "logprob", "sampling_logprob"
    runs = [dict(zip(names, columns(other, *names))) for other in (run, *others)]
    for row, (prompt, sample) in enumerate(zip(runs[0]["prompt_index"], runs[0]["sample_index"])):
        a, b = runs[0], runs[1 + prompt % len(others)]
        (same_row,) = np.flatnonzero((b["prompt_index"] == prompt) & (b["sample_index"] == sample))
        spans = [slice(*of["offsets"][at : at + 2]) for of, at in ((a, row), (b, same_row))]
        for name in names[3:]:
            same_bits = np.array_equal(a[name][spans[0]].view(np.uint32), b[name][spans[1]].view(np.uint32))
            assert same_bits, f"response {row}: {name} differs"
    return f"{len(runs[0]['prompt_index'])} responses"


if __name__ == "__main__":
    modes = {mode.__name__: mode for mode in (cut, pad, same, has, kept, equal, dealt, top, penalised, same_top)}
    try:
        print(modes[sys.argv[1]](*sys.argv[2:]))
    except AssertionError as error:
        sys.exit(str(error))
