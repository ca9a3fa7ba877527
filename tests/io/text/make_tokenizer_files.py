"""Write fixtures/tokenizer_files.json: directories whose files say more of a tokenizer than tokenizer.json, and what `transformers` makes of
each. The test (test_tokenizer_files.cpp) needs no Python; run this with `transformers` 4 and then 5, each of which writes its own results:

    make_tokenizer_files.py [FILE]

A result is null where loading fails, or else for each text [ids without special tokens, ids with them, text of the latter without special
ones].
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ["TRANSFORMERS_VERBOSITY"] = "critical"

import transformers
from sentencepiece import sentencepiece_model_pb2
from tokenizers.pre_tokenizers import ByteLevel
from transformers import AutoTokenizer

Json = dict[str, Any]

TEXTS = ["hello <new>hello", "<tag> hello <tag>hell", " <pad> <a1>  x<image> y", "<bos>hell<end>he", "hello", "<x><tug> <n1><n2>", " hello", "", "hello<s>hello</s> hell"]


def token(content: str, **flags: bool) -> Json:
    plain = dict.fromkeys(("lstrip", "normalized", "rstrip", "single_word", "special"), False)
    return {"content": content, **plain, **flags}


def added(content: str, **flags: bool) -> Json:
    flags.pop("special", None)
    found = {"__type": "AddedToken", **token(content, **flags)}
    del found["special"]
    return found


def byte_spellings() -> list[str]:
    """By byte: the characters of ByteLevel stand for themselves, or else come in order from U+0100 on."""
    alphabet = set(ByteLevel.alphabet())
    others = iter(sorted(c for c in alphabet if ord(c) >= 0x100))
    return [chr(b) if chr(b) in alphabet else next(others) for b in range(256)]


OWN = [{"id": 260, **token("<bos>", special=True)}, {"id": 261, **token("<end>", special=True)}, {"id": 262, **token("<tag>")}]


def template(name: str, number: int) -> Json:
    single = [{"SpecialToken": {"id": name, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    return {
        "type": "TemplateProcessing", "single": single, "pair": [*single, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {name: {"id": name, "ids": [number], "tokens": [name]}},
    }  # fmt: skip


def byte_level(prefix: bool = False) -> Json:
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": True}


def on_bytes(*, prefix: bool = False, bos: bool = True) -> Json:
    vocab = {c: b for b, c in enumerate(byte_spellings())} | {"he": 256, "ll": 257, "hell": 258, "hello": 259}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": OWN, "normalizer": {"type": "NFC"},
        "pre_tokenizer": byte_level(prefix), "post_processor": template("<bos>", 260) if bos else byte_level(), "decoder": byte_level(),
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocab,
                  "merges": ["h e", "l l", "he ll", "hell o"]},
    }  # fmt: skip


def of_characters(scheme: str | None) -> Json:
    """`scheme`: of a Metaspace; None: by the normalizer, as Llama 2 is published."""
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2} | {f"<0x{b:02X}>": 3 + b for b in range(256)}
    for piece in ("\u2581", "h", "e", "l", "o", "he", "ll", "\u2581he", "\u2581hell", "hell", "\u2581hello", "hello"):
        vocab[piece] = len(vocab)
    merges = ["h e", "l l", "\u2581 he", "\u2581he ll", "he ll", "\u2581hell o", "hell o"]
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    steps = [{"type": "Prepend", "prepend": "\u2581"}, {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": i, **token(c, special=True)} for i, c in enumerate(("<unk>", "<s>", "</s>"))],
        "normalizer": None if scheme else {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": False} if scheme else None,
        "post_processor": template("<s>", 1),
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
            *([] if scheme == "never" else [strip])]},
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": True, "byte_fallback": True, "ignore_merges": False, "vocab": vocab, "merges": merges},
    }  # fmt: skip


def sentencepiece_of(base: Json) -> bytes:
    """The tokenizer.model that LlamaTokenizer of `transformers` 4 makes a tokenizer of where it does not take tokenizer.json."""
    proto = sentencepiece_model_pb2.ModelProto()
    merged = [m.replace(" ", "") for m in base["model"]["merges"]]
    kinds = {"<unk>": 2, "<s>": 3, "</s>": 3}
    for piece in base["model"]["vocab"]:
        kind = kinds.get(piece, 6 if piece.startswith("<0x") else 1)
        proto.pieces.add(piece=piece, score=-1.0 - merged.index(piece) if piece in merged else 0.0, type=kind)
    proto.trainer_spec.model_type = 2
    proto.trainer_spec.byte_fallback = True
    proto.trainer_spec.vocab_size = len(proto.pieces)
    proto.normalizer_spec.name = "identity"
    proto.normalizer_spec.add_dummy_prefix = True
    proto.normalizer_spec.remove_extra_whitespaces = False
    return proto.SerializeToString()


BASES = {
    "bytes": on_bytes(), "spaced": on_bytes(prefix=True), "bare": on_bytes(bos=False),
    "prepend": of_characters(None), "first": of_characters("first"), "never": of_characters("never"),
}  # fmt: skip

# By id, the list that `transformers` saves.
LIST = {str(t["id"]): {k: v for k, v in t.items() if k != "id"} for t in OWN}
NEW = {"263": token("<new>")}


def case(name: str, base: str = "bytes", config: Json | None = None, refused: bool = False, **files: Json) -> Json:
    """`files`: by their names without .json. `refused`: the files contradict each other, which `transformers` passes over, or they ask for what is not
    supported."""
    named = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<bos>", "eos_token": "<end>"}
    if base in ("prepend", "first", "never"):
        named = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    if config is not None:
        files["tokenizer_config"] = named | config
    return {"name": name, "base": base, "refused": refused, "files": files}


def cases() -> list[Json]:
    found = [
        case("nothing but names", config={}),
        case("the list as it is", config={"added_tokens_decoder": LIST}),
        case("the list adds a token", config={"added_tokens_decoder": LIST | NEW}),
        case("the list adds a special token", config={"added_tokens_decoder": LIST | {"263": token("<new>", special=True)}}),
        case("the list adds one alone", config={"added_tokens_decoder": NEW}),
        case("the list adds two, out of order", config={"added_tokens_decoder": {"264": {"content": "<n2>"}, "263": {"content": "<n1>"}}}),
        case("the list leaves flags out", config={"added_tokens_decoder": {"263": {"content": "<new>"}, "264": {"content": "<x>", "special": True}}}),
        case("the list leaves a gap", config={"added_tokens_decoder": LIST | {"270": token("<new>")}}, refused=True),
        case("the list has other flags", config={"added_tokens_decoder": LIST | {"262": token("<tag>", special=True, lstrip=True)}}),
        case("the list has another id", config={"added_tokens_decoder": LIST | {"5": token("<tag>")}}, refused=True),
        case("the list has another name", config={"added_tokens_decoder": LIST | {"262": token("<tug>")}}, refused=True),
        case("the list has a token of the model", config={"added_tokens_decoder": LIST | {"259": token("hello")}}),
        case("the list has text for tokens", config={"added_tokens_decoder": {"263": "<new>"}}),
        case("an empty list", config={"added_tokens_decoder": {}}, added_tokens={"<new>": 263}, special_tokens_map={"pad_token": "<pad>"}),
        case("a new pad", config={"pad_token": "<pad>"}),
        case("a new pad beside the list", config={"added_tokens_decoder": LIST, "pad_token": "<pad>"}),
        case("a new pad with flags", config={"pad_token": added("<pad>", lstrip=True)}),
        case("a pad of the model", config={"pad_token": "hello"}),
        case("a pad that was not special", config={"pad_token": "<tag>"}),
        case("a pad that the list adds", config={"added_tokens_decoder": LIST | NEW, "pad_token": "<new>"}),
        case("a pad with flags of its own", config={"pad_token": added("<tag>", lstrip=True)}),
        case("an end with flags of its own", config={"added_tokens_decoder": LIST, "eos_token": added("<end>", lstrip=True)}),
        case("no bos", config={"bos_token": None}),
        case("additional", config={"additional_special_tokens": ["<a1>", "<bos>"]}),
        case("additional of the model", config={"additional_special_tokens": ["hello"]}),
        case("additional that was not special", config={"additional_special_tokens": ["<tag>"]}),
        case("additional with flags", config={"additional_special_tokens": [added("<a1>", rstrip=True)]}),
        case("additional with flags, known", config={"additional_special_tokens": [added("<end>")]}),
        case("extra by name", config={"extra_special_tokens": {"image_token": "<image>"}}),
        case("extra that was not special", config={"extra_special_tokens": {"image_token": "<tag>"}}),
        case("extra of the model", config={"extra_special_tokens": {"image_token": "hello"}}),
        case("extra as a list", config={"extra_special_tokens": ["<a1>"]}),
        case("extra as a list, not special", config={"extra_special_tokens": ["<tag>"]}),
        case("no extra beside additional", config={"extra_special_tokens": {}, "additional_special_tokens": ["<a1>"]}),
        case("both lists", config={"extra_special_tokens": ["<x>"], "additional_special_tokens": ["<a1>"]}),
        case("both kinds", config={"extra_special_tokens": {"image_token": "<image>"}, "additional_special_tokens": ["<a1>"]}),
        case("a name of the model's own", config={"image_token": "<image>"}),
        case("a name of the model's own, known", config={"image_token": "<end>"}),
        case("everything", config={"added_tokens_decoder": {"263": token("<n1>"), "264": token("<n2>")}, "pad_token": "<pad>", "unk_token": "<x>",
                                   "additional_special_tokens": ["<a1>"]}),
        case("added_tokens.json", config={}, added_tokens={"<new>": 263}),
        case("added_tokens.json of known ones", config={}, added_tokens={"<tag>": 262, "<bos>": 260}),
        case("added_tokens.json leaves a gap", config={}, added_tokens={"<new>": 280}, refused=True),
        case("added_tokens.json beside the list", config={"added_tokens_decoder": LIST}, added_tokens={"<new>": 263}),
        case("added_tokens.json of a pad", config={"pad_token": "<new>"}, added_tokens={"<new>": 263}),
        case("added_tokens.json of additional", config={"additional_special_tokens": ["<new>"]}, added_tokens={"<new>": 263}),
        case("added_tokens.json of the model's", config={}, added_tokens={"hello": 259}),
        case("special_tokens_map.json", config={}, special_tokens_map={"pad_token": "<pad>"}),
        case("special_tokens_map.json with flags", config={}, special_tokens_map={"pad_token": token("<pad>", lstrip=True)}),
        case("special_tokens_map.json, another", config={}, special_tokens_map={"eos_token": "<tag>"}),
        case("special_tokens_map.json beside the list", config={"added_tokens_decoder": LIST}, special_tokens_map={"pad_token": "<pad>"}),
        case("special_tokens_map.json, additional", config={}, special_tokens_map={"additional_special_tokens": ["<a1>"]}),
        case("special_tokens_map.json, a name of its own", config={}, special_tokens_map={"image_token": "<image>"}),
        case("split_special_tokens", config={"split_special_tokens": True}, refused=True),
        case("split_special_tokens: false", config={"split_special_tokens": False}),
        case("a space in front", config={"add_prefix_space": True}),
        case("no space in front", config={"add_prefix_space": False}),
        case("a space in both", "spaced", {"add_prefix_space": True}),
        case("a space in tokenizer.json", "spaced", {"add_prefix_space": False}),
        case("a space in tokenizer.json alone", "spaced", {}),
        case("add_bos_token, nobody reads it", config={"add_bos_token": False}),
        case("no bos, LlamaTokenizer", config={"tokenizer_class": "LlamaTokenizerFast", "unk_token": "<tag>", "add_bos_token": False}),
        case("bos, LlamaTokenizer", config={"tokenizer_class": "LlamaTokenizerFast", "unk_token": "<tag>", "add_bos_token": True}),
        case("bos of no template", "bare", {"tokenizer_class": "LlamaTokenizerFast", "unk_token": "<tag>", "add_bos_token": True}),
        case("bos by default", "bare", {"tokenizer_class": "LlamaTokenizerFast", "unk_token": "<tag>"}),
        case("an end, LlamaTokenizer", config={"tokenizer_class": "LlamaTokenizerFast", "unk_token": "<tag>", "add_eos_token": True}),
    ]  # fmt: skip
    for base in ("prepend", "first", "never"):
        for key, legacy in (("legacy", {"legacy": True}), ("not legacy", {"legacy": False}), ("not said", {})):
            found.append(case(f"{base}, {key}", base, legacy))
            # What LlamaTokenizer makes of it, where 4 and 5 agree.
            both = "first" if legacy == {"legacy": False} else None
            space = {"add_prefix_space": True}
            found.append(case(f"{base}, {key}, a space", base, legacy | space, refused=both not in (None, base)))
            found.append(case(f"{base}, {key}, no space", base, legacy | {"add_prefix_space": False}, refused=base != "never"))
    return found


def result(case: Json) -> list[Any] | None:
    with tempfile.TemporaryDirectory() as folder:
        files = {"tokenizer": BASES[case["base"]], "config": {"model_type": "llama"}, **case["files"]}
        for name, document in files.items():
            (Path(folder) / f"{name}.json").write_text(json.dumps(document))
        if case["base"] in ("prepend", "first", "never"):
            (Path(folder) / "tokenizer.model").write_bytes(sentencepiece_of(BASES[case["base"]]))
        try:
            tokenizer = AutoTokenizer.from_pretrained(folder)
        except Exception:
            return None
        found = []
        for text in TEXTS:
            ids = tokenizer.encode(text)
            decoded = tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
            found.append([tokenizer.encode(text, add_special_tokens=False), ids, decoded])
        return found


def main() -> None:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "fixtures" / "tokenizer_files.json"
    before = json.loads(path.read_text())["cases"] if path.exists() else []
    results = {c["name"]: c["results"] for c in before}
    major = transformers.__version__.split(".")[0]
    written = [{**c, "results": results.get(c["name"], {}) | {major: result(c)}} for c in cases()]
    head = json.dumps({"bases": BASES, "texts": TEXTS}, ensure_ascii=False, separators=(",", ":"))
    lines = ",\n".join(json.dumps(c, ensure_ascii=False, separators=(",", ":")) for c in written)
    path.write_text(f"{head[:-1]},\"cases\":[\n{lines}\n]}}\n")


if __name__ == "__main__":
    main()
