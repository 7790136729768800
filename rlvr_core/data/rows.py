"""Rows of files: strict parsing of JSON lines and arrays, and conversion of rows to problems."""

from __future__ import annotations

import gzip
import json
import math
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from rlvr_core.api import ComponentConfig, DataError, Json, Message, Names, Problem
from rlvr_core.api.problems import content_id

GZIP_MAGIC = b"\x1f\x8b"
MAX_INT_DIGITS = 4300
"""Longer integers are read as text: Python refuses to write them back as numbers."""

JsonRow = dict[str, Any]


def read_rows(path: str | Path) -> Iterator[tuple[int, JsonRow]]:
    """Yield the rows of a file of JSON lines, or of one JSON array of objects.

    Gzipped files are recognised by their content. Blank lines are skipped. NaN and infinities,
    which are not JSON, are refused, as is a key that occurs twice in an object; integers of more
    than ``MAX_INT_DIGITS`` digits are read as text.

    Yields:
        Line number, counted from 1 (for an array: position of the row), and the row.

    Raises:
        DataError: If the file cannot be read, or a line is not a JSON object; names file and line.
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
    """Like ``read_rows``, for lines already read; ``where`` is their name in messages."""
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
    entries = dict(pairs)
    if len(entries) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} is there twice in one object")
    return entries


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


_PLACE = re.compile(r"\{\{|\}\}|\{([A-Za-z_][\w-]*)\}")
ROLES = ("system", "user", "assistant", "tool")


class RowMapping(ComponentConfig):
    """How fields of a row become a problem."""

    verifier: Annotated[str, Names("verifier")] = "none"
    """Verifier of these problems, used by ``rewards: [{use: auto}]``, the default; not needed where
    ``rewards`` names verifiers itself."""
    prompt: str | None = None
    """Field with the prompt: text, or chat messages ``[{role, content}, ...]``."""
    template: str | None = None
    """Text with ``{field}`` placeholders, instead of ``prompt``; ``{{`` and ``}}`` are literal
    braces."""
    id: str | None = None
    """Field with a unique id. Numeric ids are prefixed with the data set's name. Without this
    field, the id is a hash of the row, so that filtering and reordering do not change it."""
    spec: list[str] | dict[str, str] | None = None
    """Fields passed to the verifier: a list, or a mapping from the name it expects to the row's
    field; null passes the whole row."""
    tags: list[str] = []
    """Fields to stratify by, such as ``level``."""
    stop: list[Annotated[str, Field(min_length=1)]] = []
    """Strings that end a completion of these problems."""
    limit: Annotated[int, Field(gt=0)] | None = None
    """Use only this many rows, from the start."""

    @model_validator(mode="after")
    def _one_prompt(self) -> Self:
        if (self.prompt is None) == (self.template is None):
            raise ValueError("give one of 'prompt' (a field) and 'template' (text with {field})")
        if "{{" in (text := self.template or "") and not any(m[1] for m in _PLACE.finditer(text)):
            raise ValueError("'template' has no placeholder, {{ and }} are literal: write {field}")
        return self


def problems(
    rows: Iterable[tuple[str, Mapping[str, Json]]], mapping: RowMapping, name: str, *, source: str
) -> Iterator[Problem]:
    """Yield the problems made from rows.

    Args:
        rows: Each row, after the place it is from.
        mapping: What its fields mean.
        name: Name of the data set.
        source: Name of the source in messages.

    Raises:
        DataError: If a row lacks a field or has the wrong type in it, or there are no rows.
    """
    seen: Counter[str] = Counter()
    for where, row in rows:
        plain_id = _id(row, mapping, name, where)
        seen[plain_id] += 1
        # Equal rows have equal hashes; a count tells them apart.
        copy = f"-{seen[plain_id]}" if mapping.id is None and seen[plain_id] > 1 else ""
        yield Problem(
            id=plain_id + copy,
            prompt=_prompt(row, mapping, where),
            verifier=mapping.verifier,
            spec=_spec(row, mapping, where),
            dataset=name,
            stop=tuple(mapping.stop),
            tags={tag: _field(row, tag, where) for tag in mapping.tags},
            where=where,
        )
    if not seen:
        raise DataError("there are no rows", where=source)


def fill(template: str, row: Mapping[str, Json], where: str) -> str:
    """Substitute a row's fields into a template; braces around anything but a name are kept.

    Raises:
        DataError: If the row lacks a field, or its value is neither text nor a number.
    """

    def value(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0][0]
        value = _field(row, match[1], where)
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise _wrong(match[1], "text or a number", value, where)
        return str(value)

    return _PLACE.sub(value, template)


def _id(row: Mapping[str, Json], mapping: RowMapping, name: str, where: str) -> str:
    if mapping.id is None:
        return content_id(name, row)
    value = _field(row, mapping.id, where)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{name}_{value}"
    if not isinstance(value, str) or not value.strip():
        raise _wrong(mapping.id, "an id (text or a whole number)", value, where)
    return value


def _prompt(row: Mapping[str, Json], mapping: RowMapping, where: str) -> str | tuple[Message, ...]:
    if mapping.template is not None:
        return fill(mapping.template, row, where)
    assert mapping.prompt is not None
    value = _field(row, mapping.prompt, where)
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value:
        return tuple(_message(turn, mapping.prompt, where) for turn in value)
    raise _wrong(mapping.prompt, "text or a list of messages", value, where)


def _message(turn: Json, field: str, where: str) -> Message:
    if (
        not isinstance(turn, dict)
        or turn.get("role") not in ROLES
        or not isinstance(turn.get("content"), str)
    ):
        raise _wrong(field, f"messages with a role ({', '.join(ROLES)}) and text", turn, where)
    return Message(turn["role"], turn["content"])


def _spec(row: Mapping[str, Json], mapping: RowMapping, where: str) -> dict[str, Any]:
    if mapping.spec is None:
        return dict(row)
    if isinstance(mapping.spec, list):
        return {name: _field(row, name, where) for name in mapping.spec}
    return {ours: _field(row, theirs, where) for ours, theirs in mapping.spec.items()}


def _field(row: Mapping[str, Json], field: str, where: str) -> Json:
    if field not in row:
        raise DataError(
            f"the row has no field '{field}'",
            where=where,
            remedy=f"fields there are: {', '.join(map(str, row)) or 'none'}",
        )
    return row[field]


def _wrong(field: str, wanted: str, value: Json, where: str) -> DataError:
    shown = text if len(text := repr(value)) <= 80 else text[:77] + "..."
    return DataError(f"field '{field}' must be {wanted}, not {shown}", where=where)
