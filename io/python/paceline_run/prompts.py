"""Prompts as data sets have them, to the JSON Lines that paceline reads.

    python3 -m paceline_run.prompts train.parquet train.jsonl
    python3 -m paceline_run.prompts gsm8k.parquet gsm8k.jsonl --key messages=question
    python3 -m paceline_run.prompts tools.jsonl.gz tools.jsonl --tokenizer /models/Qwen3-8B

The input is Parquet, which needs pyarrow, or JSON Lines, also packed by gzip. Every column becomes
a field of its name, or of the name that --key gives it: verl's files need none. (A configuration's
prompts.keys does so for JSON Lines as they are.) paceline takes one of prompt (text, which is
encoded as it is, or messages), messages, prompt_tokens, input_ids and tokens. Text that becomes
messages is what the user says. Of the other fields paceline looks at uid, ground_truth,
reward_model, answer and what speaks to the chat template, and keeps all for the trainer. Nulls are
left out.

Pictures that a column has as bytes (an image feature of Hugging Face's datasets: {bytes, path}) are
written once, to the folder OUT.pictures, and named by their paths; paths that are relative are made
absolute by the input's folder.

With --tokenizer every prompt is rendered to token ids here, by the chat template of the model's
directory, for templates that paceline does not know. That needs transformers, or
jinja2 and tokenizers. Rows get prompt_tokens, and keep what they were made of for rewards and
trainers. Honoured are a row's tools, enable_thinking, date_string, add_generation_prompt,
continue_final_message, chat_template, and any other option in chat_template_kwargs (objects, or
JSON as text); what the template does not read is refused. Templates that name today are told
26 Jul 2024, or --date: a prompt must be the same tomorrow. Text is encoded as it is, with the
tokenizer's special tokens unless it begins with them.

Exits 64 on a command line that makes no sense, 65 on an input that is not there or does not fit,
74 where writing fails. The output is there when all of it is.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import gzip
import hashlib
import json
import os
import sys
import zlib
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NoReturn, Optional, Sequence, Tuple

from .chat import ChatError, Renderer
from .optional import imported
from .records import PathLike

#: What paceline takes for the prompt itself, exactly one of them (io/text/prompts.hpp).
PROMPT_FIELDS = ("prompt", "messages", "prompt_tokens", "input_ids", "tokens")

#: Rows of Parquet that are Python objects at a time.
BATCH_ROWS = 1024


class PromptsError(Exception):
    """The input is not there, is of another kind, or a row of it cannot be a prompt."""


def convert(
    source: PathLike,
    target: PathLike,
    keys: Optional[Mapping[str, str]] = None,
    drop: Sequence[str] = (),
    renderer: Optional[Renderer] = None,
) -> Tuple[int, Dict[str, str]]:
    """Writes the prompts of `source` to `target`: a line for each row, in their order.

    `keys`: the column for a field of paceline's; the other columns keep their names. `drop`:
    columns that are left out. `renderer`: makes token ids of messages and text. Returns how many
    prompts there are, and the column of each field. Raises PromptsError, OSError where `target`
    cannot be written, and ModuleNotFoundError where Parquet needs pyarrow.
    """
    source, target = os.fspath(source), os.fspath(target)
    keys = keys or {}
    count = 0
    fields: Dict[str, str] = {}
    seen: Dict[str, None] = {}  # a set in the order of the file: not every line has every column
    padded = _is_parquet(source)
    pictures = _Pictures(os.path.dirname(os.path.abspath(source)), target + ".pictures")
    with _replacing(target) as file:
        for where, row in _rows(source):
            columns = _fields(list(row), keys, drop, where)
            seen.update(dict.fromkeys(row))
            if renderer is not None:
                row, columns = _rendered(row, columns, renderer, where, padded)
            row = pictures.named(row, columns, where)
            file.write(_line(row, columns, where))
            count += 1
            fields.update(columns)
        if count == 0:
            raise PromptsError(f"{source}: there are no prompts")
        for column in (*keys.values(), *drop):
            if column not in seen:
                raise _no_column(source, column, seen)
    return count, fields


def _is_parquet(path: str) -> bool:
    """Whether every row has every field, nested ones too, null where it has none."""
    with contextlib.suppress(OSError):
        with open(path, "rb") as file:
            return file.read(4) == b"PAR1"
    return False


def _rows(path: str) -> Iterator[Tuple[str, Dict[str, Any]]]:
    """The rows of a file, each with where it is."""
    try:
        with open(path, "rb") as file:
            magic = file.read(2)
        if _is_parquet(path):
            yield from _parquet_rows(path)
        elif magic == b"\x1f\x8b":
            yield from _json_rows(path, gzip.open)
        elif path.endswith(".parquet"):
            raise PromptsError(f"{path}: not a Parquet file")
        else:
            yield from _json_rows(path)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise PromptsError(f"{path}: {reason}") from error


def _parquet_rows(path: str) -> Iterator[Tuple[str, Dict[str, Any]]]:
    imported("pyarrow.parquet", "reading Parquet", "pip install pyarrow")
    from pyarrow import ArrowException, parquet

    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(BATCH_ROWS):
                for row in batch.to_pylist():
                    number += 1
                    yield f"{path}: row {number}", row
    except ArrowException as error:
        raise PromptsError(f"{path}: after row {number}: {error}") from error


def _json_rows(path: str, opened: Any = open) -> Iterator[Tuple[str, Dict[str, Any]]]:
    with opened(path, "rt", encoding="utf-8-sig") as file:
        number = 0
        try:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                row = json.loads(line)
                if not isinstance(row, dict):
                    raise PromptsError(
                        f"{path}:{number}: expected an object, found {type(row).__name__}"
                    )
                yield f"{path}:{number}", row
        except UnicodeDecodeError as error:
            raise PromptsError(f"{path}: neither Parquet nor JSON Lines: {error}") from error
        except json.JSONDecodeError as error:
            raise PromptsError(
                f"{path}:{number}:{error.colno}: {error.msg}; expected JSON Lines or Parquet"
            ) from error


def _fields(
    columns: Sequence[str], keys: Mapping[str, str], drop: Sequence[str], where: str
) -> Dict[str, str]:
    """The column of each field that a row has, one of which is the prompt."""
    fields = {field: column for field, column in keys.items() if column in columns}
    for column in columns:
        if column in drop or column in keys.values():
            continue
        if column in fields:
            raise PromptsError(
                f"{where}: {fields[column]!r} is to become {column!r}, and there is a column of "
                f"this name: leave it out with --drop {column}"
            )
        fields[column] = column
    found = [field for field in fields if field in PROMPT_FIELDS]
    if not found:
        for field, column in keys.items():
            if field in PROMPT_FIELDS:
                raise _no_column(where, column, columns)
        raise PromptsError(
            f"{where} has none of {_listed(PROMPT_FIELDS)}; it has {_listed(columns)}. Name the "
            f"prompt with --key prompt=COLUMN, or messages=COLUMN for what a user says"
        )
    # Ids that were made of the text or the messages beside them are the prompt.
    sources = {"prompt", "messages"}
    made = len(found) == 2 and "prompt_tokens" in found and not sources.isdisjoint(found)
    if len(found) > 1 and not made:
        raise PromptsError(
            f"{where} has more than one prompt: {_listed([fields[field] for field in found])}. "
            f"Leave all but one out with --drop COLUMN"
        )
    return fields


def _rendered(
    row: Mapping[str, Any], fields: Mapping[str, str], renderer: Renderer, where: str, padded: bool
) -> Tuple[Dict[str, Any], Dict[str, str]]:
    """The row with prompt_tokens, and its fields then. `padded`: as render() takes it."""
    if not {"prompt_tokens", "input_ids", "tokens"}.isdisjoint(fields):
        if "prompt" in fields or "messages" in fields:
            raise PromptsError(
                f"{where} has token ids already; leave them out with --drop "
                f"{fields['prompt_tokens']} to render them anew"
            )
        return dict(row), dict(fields)
    field = "messages" if "messages" in fields else "prompt"
    value = row[fields[field]]
    if field == "messages" and isinstance(value, str):
        value = [{"role": "user", "content": value}]
    named = {name: row[column] for name, column in fields.items()}
    try:
        if isinstance(value, list):
            ids = renderer.render(value, named, padded)
        elif isinstance(value, str):
            ids = renderer.encode(value)
        else:
            raise ChatError("expected text or messages")
    except ChatError as error:
        raise PromptsError(f"{where}: {fields[field]!r}: {error}") from error
    if not ids:
        raise PromptsError(f"{where}: {fields[field]!r}: the prompt is empty")
    return {**row, "prompt_tokens": ids}, {**fields, "prompt_tokens": "prompt_tokens"}


class _Pictures:
    """Pictures of rows, as paceline reads them from JSON Lines."""

    #: First bytes of a file, and how its name ends.
    KINDS = ((b"\x89PNG", ".png"), (b"\xff\xd8\xff", ".jpg"), (b"RIFF", ".webp"))

    def __init__(self, folder: str, target: str) -> None:
        self._folder = folder  #: of the input
        self._target = target  #: to which bytes are written

    def named(
        self, row: Mapping[str, Any], fields: Mapping[str, str], where: str
    ) -> Mapping[str, Any]:
        """The row with paths in the place of bytes."""
        column = fields.get("images")
        value = row.get(column) if column is not None else None
        if value is None:
            return row
        pictures = value if isinstance(value, list) else [value]  # an image feature, of one
        return {**row, column: [self._picture(picture, where) for picture in pictures]}

    def _picture(self, picture: Any, where: str) -> Any:
        if isinstance(picture, bytes):
            return self._written(picture)
        if isinstance(picture, str):
            return self._absolute(picture)
        if not isinstance(picture, dict):
            return picture
        held = picture.get("bytes")
        if isinstance(held, bytes):
            return {"path": self._written(held)}
        known = {key: value for key, value in picture.items() if value is not None}
        for key in ("path", "image"):
            if isinstance(known.get(key), str):
                known[key] = self._absolute(known[key])
        if not known:
            raise PromptsError(f"{where}: a picture has neither bytes nor a path")
        return known

    def _absolute(self, path: str) -> str:
        if "://" in path or path.startswith("data:"):
            return path
        return os.path.join(self._folder, path)

    def _written(self, data: bytes) -> str:
        """The path of a file of these bytes, which are written once."""
        kind = next((kind for first, kind in self.KINDS if data.startswith(first)), "")
        name = hashlib.blake2b(data, digest_size=16).hexdigest() + kind
        path = os.path.join(self._target, name)
        if not os.path.exists(path):
            os.makedirs(self._target, exist_ok=True)
            with open(path + ".partial", "wb") as file:
                file.write(data)
            os.replace(path + ".partial", path)
        return os.path.join(os.path.basename(self._target), name)


def _no_column(where: str, column: str, columns: Iterable[str]) -> PromptsError:
    near = difflib.get_close_matches(column, columns, 1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return PromptsError(f"{where} has no {column!r}{hint}; it has {_listed(columns)}")


def _line(row: Mapping[str, Any], fields: Mapping[str, str], where: str) -> str:
    members = []
    for field, column in fields.items():
        value = row[column]
        if value is None:
            if field in PROMPT_FIELDS:
                raise PromptsError(f"{where}: {column!r} is null; expected a prompt")
            continue
        if field == "messages" and isinstance(value, str):
            value = [{"role": "user", "content": value}]
        try:
            text = json.dumps(value, ensure_ascii=False, allow_nan=False)
            text.encode()
        except (TypeError, ValueError) as error:
            raise PromptsError(
                f"{where}: {column!r} cannot be written as JSON: {error}. Leave it out with "
                f"--drop {column}"
            ) from error
        members.append(f"{json.dumps(field, ensure_ascii=False)}: {text}")
    return "{" + ", ".join(members) + "}\n"


@contextlib.contextmanager
def _replacing(target: str) -> Iterator[Any]:
    """A file to write, which is there as `target` when all went well, and else not at all."""
    partial = target + ".partial"
    try:
        with open(partial, "w", encoding="utf-8", newline="\n") as file:
            yield file
        os.replace(partial, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.remove(partial)
        raise


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(64, f"{self.prog}: {message}\n")


def _keys(parser: _Parser, given: Sequence[str]) -> Dict[str, str]:
    keys: Dict[str, str] = {}
    for key in given:
        field, equals, column = key.partition("=")
        if not (field and equals and column):
            parser.error(f"--key {key}: expected FIELD=COLUMN, as in --key messages=question")
        if field in keys:
            parser.error(f"--key {key}: {field} is {keys[field]!r} already")
        if column in keys.values():
            parser.error(f"--key {key}: the column has a field already")
        keys[field] = column
    return keys


def _renderer(parser: _Parser, given: argparse.Namespace) -> Optional[Renderer]:
    if given.tokenizer is None:
        for option in ("chat_template", "chat_template_kwargs", "date"):
            if getattr(given, option) is not None:
                parser.error(f"--{option.replace('_', '-')}: needs --tokenizer DIR")
        return None
    options, template = None, None
    if given.chat_template_kwargs is not None:
        try:
            options = json.loads(given.chat_template_kwargs)
        except ValueError as error:
            parser.error(f"--chat-template-kwargs: expected JSON: {error}")
        if not isinstance(options, dict):
            parser.error("--chat-template-kwargs: expected an object")
    if given.chat_template is not None:
        try:
            with open(given.chat_template, encoding="utf-8") as file:
                template = file.read()
        except (OSError, UnicodeDecodeError) as error:
            raise ChatError(f"{given.chat_template}: {error}") from error
    try:
        return Renderer(given.tokenizer, template, given.date, options)
    except ValueError as error:
        parser.error(f"--date: {error}")


def main(arguments: Optional[List[str]] = None) -> int:
    about, _, more = __doc__.partition("\n\n")
    parser = _Parser(
        prog="paceline_run.prompts",
        description=about,
        epilog=more,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("input", metavar="IN", help="Parquet or JSON Lines")
    parser.add_argument("output", metavar="OUT", help="JSON Lines; replaced where it exists")
    parser.add_argument(
        "--key",
        metavar="FIELD=COLUMN",
        action="append",
        default=[],
        help="the column that becomes a field, for instance messages=question; may be repeated",
    )
    parser.add_argument(
        "--drop", metavar="COLUMN", action="append", default=[], help="leave a column out"
    )
    parser.add_argument(
        "--tokenizer",
        metavar="DIR",
        help="render prompts to token ids by the tokenizer and the chat template of a model",
    )
    parser.add_argument(
        "--chat-template", metavar="FILE", help="Jinja, instead of the tokenizer's own template"
    )
    parser.add_argument(
        "--chat-template-kwargs",
        metavar="JSON",
        help='for rows that do not say otherwise, for instance \'{"enable_thinking": false}\'; '
        "continue_final_message is of rows that end with a message of the assistant's",
    )
    parser.add_argument(
        "--date", help="the day that templates are told, as 2025-01-31 (default: 26 Jul 2024)"
    )
    given = parser.parse_args(arguments)
    keys = _keys(parser, given.key)
    both = [column for column in given.drop if column in keys.values()]
    if both:
        parser.error(f"--drop {both[0]}: --key names it")
    if os.path.exists(given.output) and os.path.exists(given.input):
        if os.path.samefile(given.input, given.output):
            parser.error(f"{given.output}: the output would replace the input")
    renderer = None
    try:
        renderer = _renderer(parser, given)
        count, fields = convert(given.input, given.output, keys, given.drop, renderer)
    except (ChatError, PromptsError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 65
    except ModuleNotFoundError as error:
        parser.error(f"{given.input}: {error}")
    except OSError as error:
        print(f"{parser.prog}: {given.output}: {error.strerror or error}", file=sys.stderr)
        return 74
    made_of = ", ".join(
        field if field == column else f"{field} (from {column})" for field, column in fields.items()
    )
    by = "" if renderer is None else f"; rendered by {renderer.by}"
    print(f"{given.output}: {count} prompt{'s' if count > 1 else ''} with {made_of}{by}")
    if renderer is not None and renderer.closed:
        print(
            f"{parser.prog}: warning: {renderer.closed} of them end with an assistant message. That "
            "message is closed and a new turn begins. Set continue_final_message (of a row, or in "
            "--chat-template-kwargs): true to continue the message, or false to keep this behaviour "
            "without the warning.",
            file=sys.stderr,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
