"""Prompts as data sets have them, to the JSON Lines that paceline reads.

    python3 -m paceline_run.prompts train.parquet train.jsonl
    python3 -m paceline_run.prompts gsm8k.parquet gsm8k.jsonl --key messages=question

The input is Parquet, which needs pyarrow, or JSON Lines. Every column becomes a field of its name,
or of the name that --key gives it: verl's files need none. (A configuration's prompts.keys does so
for JSON Lines as they are.) paceline takes one of prompt (text, which is encoded as it is, or
messages), messages, prompt_tokens, input_ids and tokens. Text that becomes messages is what the
user says. Of the other fields paceline looks at uid, ground_truth, reward_model, answer and what
speaks to the chat template, and keeps all for the trainer. Nulls are left out.

Exits 64 on a command line that makes no sense, 65 on an input that is not there or does not fit,
74 where writing fails. The output is there when all of it is.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import json
import os
import sys
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NoReturn, Optional, Sequence, Tuple

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
) -> Tuple[int, Dict[str, str]]:
    """Writes the prompts of `source` to `target`: a line for each row, in their order.

    `keys`: the column for a field of paceline's; the other columns keep their names. `drop`:
    columns that are left out. Returns how many prompts there are, and the column of each field.
    Raises PromptsError, OSError where `target` cannot be written, and ModuleNotFoundError where
    Parquet needs pyarrow.
    """
    source, target = os.fspath(source), os.fspath(target)
    keys = keys or {}
    count = 0
    fields: Dict[str, str] = {}
    seen: Dict[str, None] = {}  # a set in the order of the file: not every line has every column
    with _replacing(target) as file:
        for where, row in _rows(source):
            columns = _fields(list(row), keys, drop, where)
            file.write(_line(row, columns, where))
            count += 1
            fields.update(columns)
            seen.update(dict.fromkeys(row))
        if count == 0:
            raise PromptsError(f"{source}: there are no prompts")
        for column in (*keys.values(), *drop):
            if column not in seen:
                raise _no_column(source, column, seen)
    return count, fields


def _rows(path: str) -> Iterator[Tuple[str, Dict[str, Any]]]:
    """The rows of a file, each with where it is."""
    try:
        with open(path, "rb") as file:
            parquet = file.read(4) == b"PAR1"
        if parquet:
            yield from _parquet_rows(path)
        elif path.endswith(".parquet"):
            raise PromptsError(f"{path}: not a Parquet file")
        else:
            yield from _json_rows(path)
    except OSError as error:
        raise PromptsError(f"{path}: {error.strerror or error}") from error


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


def _json_rows(path: str) -> Iterator[Tuple[str, Dict[str, Any]]]:
    with open(path, encoding="utf-8-sig") as file:
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
    if len(found) > 1:
        raise PromptsError(
            f"{where} has more than one prompt: {_listed([fields[field] for field in found])}. "
            f"Leave all but one out with --drop COLUMN"
        )
    return fields


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
    given = parser.parse_args(arguments)
    keys = _keys(parser, given.key)
    both = [column for column in given.drop if column in keys.values()]
    if both:
        parser.error(f"--drop {both[0]}: --key names it")
    if os.path.exists(given.output) and os.path.exists(given.input):
        if os.path.samefile(given.input, given.output):
            parser.error(f"{given.output}: the output would replace the input")
    try:
        count, fields = convert(given.input, given.output, keys, given.drop)
    except ModuleNotFoundError as error:
        parser.error(f"{given.input}: {error}")
    except PromptsError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 65
    except OSError as error:
        print(f"{parser.prog}: {given.output}: {error.strerror or error}", file=sys.stderr)
        return 74
    made_of = ", ".join(
        field if field == column else f"{field} (from {column})" for field, column in fields.items()
    )
    print(f"{given.output}: {count} prompt{'s' if count > 1 else ''} with {made_of}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
