"""From rows to problems: which field is the prompt, the id, the spec. Shared by file and hub."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from rlvr_core.api import ComponentConfig, DataError, Json, Message, Names, Problem

_PLACE = re.compile(r"\{\{|\}\}|\{([A-Za-z_][\w-]*)\}")
ROLES = ("system", "user", "assistant", "tool")


class RowMapping(ComponentConfig):
    """How a row becomes a problem."""

    verifier: Annotated[str, Names("verifier")]
    """Verifier that ``rewards: [{use: auto}]`` takes for these problems."""
    prompt: str | None = None
    """Field with the prompt: text, or chat messages ``[{role, content}, ...]``."""
    template: str | None = None
    """Text with ``{field}`` in it, instead of ``prompt``; ``{{`` and ``}}`` are braces."""
    id: str | None = None
    """Field with a unique id. Numbers get the data set's name in front. Without it, the id is a
    hash of the row, which no filter or order changes."""
    spec: list[str] | dict[str, str] | None = None
    """Fields the verifier gets: a list, or a mapping from the name it expects to the row's; the
    whole row if absent."""
    tags: list[str] = []
    """Fields to stratify by, such as ``level``."""
    stop: list[Annotated[str, Field(min_length=1)]] = []
    """Strings that end a completion of these problems."""
    limit: Annotated[int, Field(gt=0)] | None = None
    """Take only so many rows, from the start."""

    @model_validator(mode="after")
    def _one_prompt(self) -> Self:
        if (self.prompt is None) == (self.template is None):
            raise ValueError("give one of 'prompt' (a field) and 'template' (text with {field})")
        return self


def problems(
    rows: Iterable[tuple[str, Mapping[str, Json]]], mapping: RowMapping, name: str, *, source: str
) -> Iterator[Problem]:
    """Problems of rows.

    Args:
        rows: Where each row is from, and the row.
        mapping: What its fields mean.
        name: Name of the data set.
        source: What to call the whole in messages.

    Raises:
        DataError: If a row lacks a field or holds the wrong thing in it, or there are no rows.
    """
    seen: Counter[str] = Counter()
    for where, row in rows:
        plain_id = _id(row, mapping, name, where)
        seen[plain_id] += 1
        # Equal rows have equal hashes; they are told apart by their count.
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


def content_id(dataset: str, row: Mapping[str, Json]) -> str:
    """A stable id for a row that has none: ``<dataset>_<12 hex digits of its content>``."""
    canonical = json.dumps(row, sort_keys=True, separators=(",", ":"))
    return f"{dataset}_{hashlib.sha256(canonical.encode()).hexdigest()[:12]}"


def fill(template: str, row: Mapping[str, Json], where: str) -> str:
    """Put a row's fields into a template. Braces around anything but a name stay as they are.

    Raises:
        DataError: If the row lacks a field, or it is neither text nor a number.
    """

    def value(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0][0]
        found = _field(row, match[1], where)
        if isinstance(found, bool) or not isinstance(found, str | int | float):
            raise _wrong(match[1], "text or a number", found, where)
        return str(found)

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
    names = (
        mapping.spec if isinstance(mapping.spec, dict) else {name: name for name in mapping.spec}
    )
    return {ours: _field(row, theirs, where) for ours, theirs in names.items()}


def _field(row: Mapping[str, Json], field: str, where: str) -> Json:
    if field not in row:
        raise DataError(
            f"the row has no field '{field}'",
            where=where,
            remedy=f"fields there are: {', '.join(map(str, row)) or 'none'}",
        )
    return row[field]


def _wrong(field: str, wanted: str, value: Json, where: str) -> DataError:
    shown = repr(value)
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    return DataError(f"field '{field}' must be {wanted}, not {shown}", where=where)
