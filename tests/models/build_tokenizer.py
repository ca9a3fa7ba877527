"""Train the shared byte-level BPE tokenizer and write its Hugging Face files.

512 tokens: 256 bytes, merges for the words the tasks use, three special tokens. Digits stay
single (Qwen2's pre-tokenizer) and so do brackets and operators: merges are learned from text
without runs of symbols, because a tiny model copies "(" more easily than ")*((".
"""

from __future__ import annotations

import argparse
import json
import random
import re
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from tasks import make_problem, solve

VOCABULARY = 512
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
QWEN2_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def corpus(documents: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    texts = []
    for _ in range(documents):
        problem = make_problem(rng, "train")
        text = f"user\n{problem.question}\nassistant\n{solve(problem, rng)}"
        texts.append(re.sub(r"(?<!#)[-+*/=|():;>]+(?!#)", "\n", text))
    return texts


def build(documents: int = 4000, seed: int = 1) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN2_PATTERN), behavior="isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(documents, seed), trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    return tokenizer


def write(tokenizer: Tokenizer, directory: Path, max_positions: int) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    config = {
        "tokenizer_class": "Qwen2Tokenizer",
        "model_max_length": max_positions,
        "add_prefix_space": False,
        "add_bos_token": False,
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "unk_token": None,
        "additional_special_tokens": ["<|im_start|>", "<|im_end|>"],
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": False,
        "errors": "replace",
        "chat_template": CHAT_TEMPLATE,
        "added_tokens_decoder": {
            str(tokenizer.token_to_id(token)): {
                "content": token, "lstrip": False, "normalized": False,
                "rstrip": False, "single_word": False, "special": True,
            }
            for token in SPECIAL
        },
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directories", type=Path, nargs="+", help="model directories to write the tokenizer to")
    parser.add_argument("--max-positions", type=int, default=4096)
    arguments = parser.parse_args()
    tokenizer = build()
    for directory in arguments.directories:
        write(tokenizer, directory, arguments.max_positions)
    print(f"{tokenizer.get_vocab_size()} tokens")


if __name__ == "__main__":
    main()
