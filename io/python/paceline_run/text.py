"""Tokens to text. text and decoder are methods of Run."""

from __future__ import annotations

import itertools
import json
import os
import re
import unicodedata
from typing import TYPE_CHECKING, Any, Iterator, Optional, Sequence, Union

import numpy as np

from .records import PathLike, Prompt, ReaderError, Response

if TYPE_CHECKING:
    from .complete import Run


def text(
    run: Run,
    of: Union[Response, Prompt],
    skip_special_tokens: bool = False,
    tokenizer: Optional[PathLike] = None,
) -> str:
    """The text of a response or of a prompt, with or without its special tokens.

    Decoded by the tokenizer that the run had, or that of the directory `tokenizer`.
    """
    return decoder(run, tokenizer)(of.tokens, skip_special_tokens)


def decoder(run: Run, tokenizer: Optional[PathLike] = None) -> Decoder:
    """What `text` decodes by: to be called with any token ids. A run reads each tokenizer once."""
    directory = _model_directory(run) if tokenizer is None else os.fspath(tokenizer)
    if directory not in run.decoders:
        run.decoders[directory] = Decoder(directory)
    return run.decoders[directory]


class Decoder:
    """Tokens to text by the tokenizers that paceline runs: byte-level, or with byte fallback.

    Gives what the tokenizers library gives, without needing it.
    """

    def __init__(self, directory: str) -> None:
        path = os.path.join(directory, "tokenizer.json")
        if not os.path.exists(path) and os.path.exists(os.path.join(directory, "tiktoken.model")):
            raise ReaderError(f"{directory}: tiktoken.model is not read here; decode by the model's own tokenizer")
        self._special: set[int] = set()
        self._fallback: dict[int, int] = {}
        self._stripped = 0
        try:
            with open(path, encoding="utf-8") as file:
                document = json.load(file)
            spellings = {int(i): token for token, i in document["model"]["vocab"].items()}
            size = len(spellings)
            for number, added in _added_tokens(directory, document, size):
                special = bool(added.get("special"))
                text = added["content"]
                if added.get("normalized", not special):
                    # What is looked for in normalized text is decoded as it stands there.
                    text = _normalize(document.get("normalizer"), text)
                spellings[number] = text
                if special:
                    self._special.add(number)
            if document["model"].get("byte_fallback"):
                self._bytes = self._of_characters(spellings, document["decoder"]["decoders"])
            else:
                self._bytes = _of_bytes(spellings)
        except OSError as error:
            raise ReaderError(
                f"{path}: the text of responses needs the run's tokenizer: {error.strerror}; where "
                f"it has moved, give tokenizer=DIRECTORY"
            ) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ReaderError(f"{path}: not a tokenizer of a vocabulary: {error!r}") from error

    def _of_characters(self, spellings: dict[int, str], steps: list[Any]) -> dict[int, bytes]:
        found = {}
        for step in steps:
            if step["type"] == "Strip":
                self._stripped = int(step["start"])
        for token, spelling in spellings.items():
            for step in steps:
                if step["type"] == "Replace":
                    spelling = spelling.replace(step["pattern"]["String"], step["content"])
            if match := re.fullmatch("<0x([0-9A-Fa-f]{2})>", spelling):
                self._fallback[token] = int(match[1], 16)
            found[token] = spelling.encode()
        return found

    def __call__(
        self, tokens: Union[np.ndarray, Sequence[int]], skip_special_tokens: bool = False
    ) -> str:
        skipped = self._special if skip_special_tokens else ()
        # Padded vocabularies have ids without a token: no text.
        kept = [t for t in np.asarray(tokens).tolist() if t not in skipped and t in self._bytes]
        joined = b"".join(self._pieces(kept)).decode("utf-8", errors="replace")
        spaces = len(joined) - len(joined.lstrip(" "))
        return joined[min(spaces, self._stripped) :]

    def _pieces(self, tokens: list[int]) -> Iterator[bytes]:
        """Of fallback bytes in a row that are not UTF-8 together, each is lost."""
        for fallback, row in itertools.groupby(tokens, self._fallback.__contains__):
            if not fallback:
                yield from (self._bytes[token] for token in row)
                continue
            together = bytes(self._fallback[token] for token in row)
            try:
                together.decode()
                yield together
            except UnicodeDecodeError:
                yield "\ufffd".encode() * len(together)


def _of_bytes(spellings: dict[int, str]) -> dict[int, bytes]:
    # Bytes are spelled as characters: printable Latin-1 as itself, the others from U+0100 on.
    shown = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
    hidden = [b for b in range(256) if b not in shown]
    byte_of = {chr(b): b for b in shown}
    byte_of.update({chr(256 + n): b for n, b in enumerate(hidden)})
    found = {}
    for token, spelling in spellings.items():
        try:
            found[token] = bytes(byte_of[character] for character in spelling)
        except KeyError:  # an added token, which is not spelled in bytes
            found[token] = spelling.encode()
    return found


def _normalize(step: Optional[dict[str, Any]], text: str) -> str:
    if not step:
        return text
    if step["type"] == "Sequence":
        for inner in step["normalizers"]:
            text = _normalize(inner, text)
        return text
    if step["type"] == "Prepend":
        return step["prepend"] + text if text else text
    if step["type"] == "Replace":
        return text.replace(step["pattern"]["String"], step["content"])
    return unicodedata.normalize("NFC", text)


def _added_tokens(
    directory: str, document: dict[str, Any], size: int
) -> list[tuple[int, dict[str, Any]]]:
    """Those of tokenizer.json and what the files beside it add, as the program reads them.

    `size`: tokens of the model. The program refuses files that contradict each other.
    """
    added = {t["content"]: (int(t["id"]), dict(t)) for t in document.get("added_tokens") or []}
    known = document["model"]["vocab"]

    def read(name: str) -> dict[str, Any]:
        path = os.path.join(directory, name)
        if not os.path.exists(path):
            return {}
        with open(path, encoding="utf-8") as file:
            return json.load(file)

    def add(token: Any, special: bool, number: Optional[int] = None) -> None:
        token = dict(token) if isinstance(token, dict) else {"content": token}
        content = token["content"]
        if not content:
            return
        if content in added and number is None:
            added[content][1]["special"] = True
            return
        token["special"] = special or bool(token.get("special"))
        if number is None:
            highest = max([size - 1, *(i for i, _ in added.values())])
            number = known.get(content, highest + 1)
        added[content] = (number, token)

    config = read("tokenizer_config.json")
    listed = config.get("added_tokens_decoder")
    if listed is None:
        config.update(read("special_tokens_map.json"))
        listed = {}
        for content, number in read("added_tokens.json").items():
            if content not in added:
                listed[number] = {"content": content, "special": False}
    for number in sorted(listed, key=int):
        add(listed[number], False, int(number))
    for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"):
        if config.get(name + "_token"):
            add(config[name + "_token"], True)
    for name in ("extra_special_tokens", "additional_special_tokens"):
        more = config.get(name) or []
        for token in more.values() if isinstance(more, dict) else more:
            add(token, True)
    return sorted(added.values(), key=lambda entry: entry[0])


def _model_directory(run: Run) -> str:
    """model.tokenizer of the configuration in the run's file, or else its model.path.

    The program wrote it line by line, in order.
    """
    config = str(run.attributes.get("config_text", ""))
    model = re.search(r"^model:\n((?:  .*\n?)*)", config, re.MULTILINE)
    settings = model[1] if model else ""
    match = re.search(r'^  tokenizer: "(.*)"$', settings, re.MULTILINE)
    match = match or re.search(r'^  path: "(.*)"$', settings, re.MULTILINE)
    if match is None:
        raise ReaderError(
            f"{run.path}: its config_text names no model.path; give tokenizer=DIRECTORY"
        )
    escape = {"n": "\n", '"': '"', "\\": "\\"}
    return re.sub(
        r"\\(?:x(..)|(.))", lambda m: chr(int(m[1], 16)) if m[1] else escape[m[2]], match[1]
    )
