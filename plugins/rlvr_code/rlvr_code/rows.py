"""Rows of a data set from the hub or from a file, and prompts made of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from rlvr_core.api import ComponentConfig, DataError
from rlvr_core.data.hub import hub_rows
from rlvr_core.data.rows import read_rows
from rlvr_core.data.uri import local_path

Row = Mapping[str, Any]
Located = tuple[str, Row]
"""Where a row is from, for messages, and the row."""

DONE = "[DONE]"
INSTRUCT = "Put the whole program into one block that begins with ```python and ends with ```.\n"


class Common(ComponentConfig):
    """Options that all data sets of programs share."""

    path: str | None = None
    """A local file of the same rows, JSON lines or array, gzipped or not; from the hub if
    absent."""
    limit: Annotated[int, Field(gt=0)] | None = None
    """Take only so many problems, from the start."""
    style: Literal["base", "instruct"] = "base"
    """``base``: a text to be continued, in the form that evaluations of base models use.
    ``instruct``: a request for a fenced program."""


def located(path: str | None, hub: tuple[str, str | None, str]) -> Iterator[Located]:
    """Rows with their places.

    Args:
        path: A file, or None for the hub.
        hub: Repository, configuration and split there.
    """
    if path is None:
        repo, name, split = hub
        for number, row in hub_rows(repo, name, split):
            yield f"{repo} {split}, row {number}", row
    else:
        file = local_path(path)
        for number, row in read_rows(file):
            yield f"{file}:{number}", row


def field(row: Row, names: tuple[str, ...], where: str) -> str:
    """The first of some fields that holds text.

    Raises:
        DataError: If none does.
    """
    for name in names:
        value = row.get(name)
        if isinstance(value, str) and value.strip():
            return value
    there = ", ".join(sorted(row)) or "none"
    raise DataError(
        f"text in field {' or '.join(map(repr, names))} is needed",
        where=where,
        remedy=f"fields there are: {there}",
    )


def whole(row: Row, name: str, where: str) -> int:
    """A field that is a whole number.

    Raises:
        DataError: If it is not.
    """
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise DataError(f"field {name!r} must be a whole number, not {value!r:.60}", where=where)
    return value
