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
PICTURE_SPECIAL = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")  # behind the others
QWEN2_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# As published for Qwen2-VL, but for the default system prompt.
PICTURE_CHAT_TEMPLATE = (
    "{% set image_count = namespace(value=0) %}{% set video_count = namespace(value=0) %}{% for message in messages %}"
    "{% if loop.first and message['role'] != 'system' %}<|im_start|>system\nYou see.<|im_end|>\n{% endif %}"
    "<|im_start|>{{ message['role'] }}\n{% if message['content'] is string %}{{ message['content'] }}<|im_end|>\n"
    "{% else %}{% for content in message['content'] %}"
    "{% if content['type'] == 'image' or 'image' in content or 'image_url' in content %}"
    "{% set image_count.value = image_count.value + 1 %}"
    "{% if add_vision_id %}Picture {{ image_count.value }}: {% endif %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif content['type'] == 'video' or 'video' in content %}{% set video_count.value = video_count.value + 1 %}"
    "{% if add_vision_id %}Video {{ video_count.value }}: {% endif %}<|vision_start|><|video_pad|><|vision_end|>"
    "{% elif 'text' in content %}{{ content['text'] }}{% endif %}{% endfor %}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
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


def build_for_pictures() -> Tokenizer:
    """The same with four tokens more."""
    tokenizer = build()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in PICTURE_SPECIAL])
    return tokenizer


def write(tokenizer: Tokenizer, directory: Path, max_positions: int) -> None:
    reads_pictures = tokenizer.token_to_id(PICTURE_SPECIAL[0]) is not None
    special = SPECIAL + PICTURE_SPECIAL if reads_pictures else SPECIAL
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
        "additional_special_tokens": list(special[1:]),
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": False,
        "errors": "replace",
        "chat_template": PICTURE_CHAT_TEMPLATE if reads_pictures else CHAT_TEMPLATE,
        "added_tokens_decoder": {
            str(tokenizer.token_to_id(token)): {
                "content": token, "lstrip": False, "normalized": False,
                "rstrip": False, "single_word": False, "special": True,
            }
            for token in special
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
