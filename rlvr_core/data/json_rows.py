"""Reading rows from JSON files.

Rows are plain dictionaries, never Arrow structs, whose type inference breaks on mixed columns
(T45). What a row says is kept under its own names, so that verifiers see the original fields.
"""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rlvr_core.api import DataError, Json

GZIP_MAGIC = b"\x1f\x8b"
MAX_INT_DIGITS = 4300
"""Longer integers become text: Python refuses to write them back as numbers (T45)."""

JsonRow = dict[str, Any]


def read_rows(path: str | Path) -> Iterator[tuple[int, JsonRow]]:
    """Rows of a file of JSON objects, one a line, or of one JSON array.

    Gzipped files are recognised by their content. Blank lines are skipped. NaN and infinities are
    no JSON and are refused, as is a key met twice in one object; integers of more than
    ``MAX_INT_DIGITS`` digits come as text.

    Yields:
        Line number, counted from 1 (for an array: position of the row), and the row.

    Raises:
        DataError: If the file cannot be read, or a line is no JSON object; names file and line.
    """
    path = Path(path)
    try:
        with path.open("rb") as raw:
            compressed = raw.peek(2)[:2] == GZIP_MAGIC
            with gzip.open(raw) if compressed else raw as lines:
                yield from parse_rows(lines, str(path))
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"the compressed file is damaged or cut short: {error}",
            where=str(path),
            remedy="fetch it again",
        ) from error
    except OSError as error:
        raise DataError(f"cannot read data: {error.strerror or error}", where=str(path)) from error


def parse_rows(lines: Iterable[bytes], where: str) -> Iterator[tuple[int, JsonRow]]:
    """The same for lines that are read already; ``where`` is their name in messages."""
    rest = iter(enumerate(lines, 1))
    first = True
    for number, line in rest:
        text = _decode(line, where, number)
        if first and text.lstrip().startswith("["):
            whole = text + "".join(_decode(more, where, below) for below, more in rest)
            yield from _array(whole, where, number)
        elif text.strip():
            first = False
            yield number, _row(_parse(text.rstrip(), where, number), f"{where}:{number}")


def _decode(line: bytes, where: str, number: int) -> str:
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8 text: {error.reason}", where=f"{where}:{number}") from error


def _array(text: str, where: str, first: int) -> Iterator[tuple[int, JsonRow]]:
    for position, value in enumerate(_parse(text, where, first), 1):
        yield position, _row(value, f"{where}, row {position}")


def _row(value: Json, where: str) -> JsonRow:
    if not isinstance(value, dict):
        raise DataError(f"a row must be a JSON object, not {_kind(value)}", where=where)
    return value


def _parse(text: str, where: str, line: int) -> Any:
    try:
        return json.loads(
            text,
            parse_int=_int,
            parse_float=_float,
            parse_constant=_constant,
            object_pairs_hook=_object,
        )
    except json.JSONDecodeError as error:
        place = f"{where}:{line + error.lineno - 1}:{error.colno}"
        raise DataError(f"not JSON: {error.msg}", where=place) from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"not JSON: {error}", where=f"{where}:{line}") from error


def _object(pairs: list[tuple[str, Any]]) -> JsonRow:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} is there twice in one object")
    return found


def _int(digits: str) -> int | str:
    return int(digits) if len(digits) <= MAX_INT_DIGITS else digits


def _float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text} is too large a number")
    return number


def _constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _kind(value: Json) -> str:
    names = {str: "text", bool: "true or false", list: "an array", type(None): "null"}
    return names.get(type(value), "a number")
