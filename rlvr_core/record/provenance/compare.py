"""Compares two records of runs, part by part."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_BESIDE = {("prompts", "description"), ("model", "path"), ("model", "revision")}
"""Keys recorded for people only: another name does not make another model."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference.

    Attributes:
        part: Part of the record: ``config``, ``model``, ...
        key: What differs in it, with dots.
        values: Its value in each; None where there is none.
    """

    part: str
    key: str
    values: tuple[Any, Any]

    @property
    def words(self) -> str:
        """Return the difference without its part."""
        first, other = map(_shown, self.values)
        return f"{self.key}: {first} and {other}"


def differences(record: Mapping[str, Any], other: Mapping[str, Any]) -> list[Difference]:
    """Return the differences of two records, each ``{part: {key: value}}``.

    A part that only one of them has is left out.
    """
    changes = []
    for part in record:
        if not isinstance(other.get(part), Mapping):
            continue
        first, second = flat(record[part] or {}), flat(other[part])
        keys = [
            key
            for key in {**first, **second}
            if first.get(key) != second.get(key) and (part, key) not in _BESIDE
        ]
        changes += [Difference(part, key, (first.get(key), second.get(key))) for key in keys]
    return changes


def flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Return nested mappings and lists as one mapping with dotted keys."""
    if isinstance(value, Mapping) and value:
        items = [(str(key), child) for key, child in value.items()]
    elif isinstance(value, list) and value:
        items = [(str(index), child) for index, child in enumerate(value)]
    else:
        return {prefix: value}
    flattened: dict[str, Any] = {}
    for key, child in items:
        flattened |= flat(child, f"{prefix}.{key}" if prefix else key)
    return flattened


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "..."
