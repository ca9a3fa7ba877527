"""Tokens to text."""

from __future__ import annotations

import json
import os
import unicodedata

import numpy as np

from .records import ReaderError


class Decoder:
    """Tokens to text by a byte-level tokenizer.json, the only kind that paceline runs."""

    def __init__(self, directory: str) -> None:
        path = os.path.join(directory, "tokenizer.json")
        try:
            with open(path, encoding="utf-8") as file:
                document = json.load(file)
            spellings = {int(i): token for token, i in document["model"]["vocab"].items()}
            # The normalizer, of which NFC is the only kind, takes in most added tokens too.
            nfc = bool(document.get("normalizer"))
            for added in document.get("added_tokens") or []:
                normalized = nfc and added.get("normalized", not added.get("special"))
                text = added["content"]
                spellings[int(added["id"])] = (
                    unicodedata.normalize("NFC", text) if normalized else text
                )
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

    def __call__(self, tokens: np.ndarray) -> str:
        # Padded vocabularies have ids without a token: no text.
        joined = b"".join(self._bytes.get(token, b"") for token in tokens.tolist())
        return joined.decode("utf-8", errors="replace")
