"""Tokens to text. text and decoder are methods of Run."""

from __future__ import annotations

import json
import os
import re
import unicodedata
from typing import TYPE_CHECKING, Optional, Sequence, Union

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

    Decoded by the tokenizer.json of the run's model, or of the directory `tokenizer`.
    """
    return decoder(run, tokenizer)(of.tokens, skip_special_tokens)


def decoder(run: Run, tokenizer: Optional[PathLike] = None) -> Decoder:
    """What `text` decodes by: to be called with any token ids. A run reads each tokenizer once."""
    directory = _model_directory(run) if tokenizer is None else os.fspath(tokenizer)
    if directory not in run.decoders:
        run.decoders[directory] = Decoder(directory)
    return run.decoders[directory]


class Decoder:
    """Tokens to text by a byte-level tokenizer.json, the only kind that paceline runs.

    Gives what the tokenizers library gives, without needing it.
    """

    def __init__(self, directory: str) -> None:
        path = os.path.join(directory, "tokenizer.json")
        try:
            with open(path, encoding="utf-8") as file:
                document = json.load(file)
            spellings = {int(i): token for token, i in document["model"]["vocab"].items()}
            # The normalizer, of which NFC is the only kind, takes in most added tokens too.
            nfc = bool(document.get("normalizer"))
            self._special = set()
            for added in document.get("added_tokens") or []:
                normalized = nfc and added.get("normalized", not added.get("special"))
                text = added["content"]
                spellings[int(added["id"])] = (
                    unicodedata.normalize("NFC", text) if normalized else text
                )
                if added.get("special"):
                    self._special.add(int(added["id"]))
        except OSError as error:
            raise ReaderError(
                f"{path}: the text of responses needs the run's tokenizer: {error.strerror}; where "
                f"it has moved, give tokenizer=DIRECTORY"
            ) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ReaderError(f"{path}: not a tokenizer of a vocabulary: {error!r}") from error
        # Bytes are spelled as characters: printable Latin-1 as itself, the others from U+0100 on.
        shown = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
        hidden = [b for b in range(256) if b not in shown]
        byte_of = {chr(b): b for b in shown}
        byte_of.update({chr(256 + n): b for n, b in enumerate(hidden)})
        self._bytes = {}
        for token, spelling in spellings.items():
            try:
                self._bytes[token] = bytes(byte_of[character] for character in spelling)
            except KeyError:  # an added token, which is not spelled in bytes
                self._bytes[token] = spelling.encode()

    def __call__(
        self, tokens: Union[np.ndarray, Sequence[int]], skip_special_tokens: bool = False
    ) -> str:
        skipped = self._special if skip_special_tokens else ()
        # Padded vocabularies have ids without a token: no text.
        joined = b"".join(
            self._bytes.get(token, b"")
            for token in np.asarray(tokens).tolist()
            if token not in skipped
        )
        return joined.decode("utf-8", errors="replace")


def _model_directory(run: Run) -> str:
    """model.path of the configuration in the run's file, which the program wrote line by line."""
    config = str(run.attributes.get("config_text", ""))
    match = re.search(r'^model:\n  path: "(.*)"$', config, re.MULTILINE)
    if match is None:
        raise ReaderError(
            f"{run.path}: its config_text names no model.path; give tokenizer=DIRECTORY"
        )
    escape = {"n": "\n", '"': '"', "\\": "\\"}
    return re.sub(
        r"\\(?:x(..)|(.))", lambda m: chr(int(m[1], 16)) if m[1] else escape[m[2]], match[1]
    )
