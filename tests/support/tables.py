"""Tables of cases that stand beside a test, in a JSON file of its name."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any


@cache
def _tables(file: Path) -> dict[str, list[Any]]:
    return json.loads(file.read_text(encoding="utf-8"))


def table(test: str, name: str, named: Mapping[str, Any] | None = None) -> list[Any]:
    """Return the rows of a table, those of several columns as tuples.

    Args:
        test: ``__file__`` of the test.
        name: Of the table.
        named: Values that the first column calls by a name.
    """
    rows = _tables(Path(test).with_suffix(".json"))[name]
    known = named or {}
    return [
        (known.get(row[0], row[0]) if isinstance(row[0], str) else row[0], *row[1:])
        if isinstance(row, list)
        else row
        for row in rows
    ]
