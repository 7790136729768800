"""In what two records of runs differ, part by part."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_BESIDE = {("prompts", "description"), ("model", "path"), ("model", "revision")}
"""What is recorded for people: another name is no other model."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference.

    Attributes:
        part: Part of the record: ``config``, ``model``, ...
        key: What differs in it, with dots.
        values: Its value in each; None where there is none.
        text: The difference in words, if values do not say it.
    """

    part: str
    key: str
    values: tuple[Any, Any]
    text: str = ""

    @property
    def line(self) -> str:
        """Return the difference as a line of text."""
        return f"{self.part}: {self.words}"

    @property
    def words(self) -> str:
        """Return the difference without its part."""
        if self.text:
            return self.text
        first, other = map(_shown, self.values)
        return f"{self.key}: {first} and {other}"


def differences(record: Mapping[str, Any], other: Mapping[str, Any]) -> list[Difference]:
    """Return the differences of two records, each ``{part: {key: value}}``.

    A part that only one of them has is left out, and so is the code of packages.
    """
    changes = []
    for part in record:
        if part == "code" or not isinstance(other.get(part), Mapping):
            continue
        first, second = flat(record[part] or {}), flat(other[part])
        keys = [
            key
            for key in {**first, **second}
            if first.get(key) != second.get(key) and (part, key) not in _BESIDE
        ]
        changes += [Difference(part, key, (first.get(key), second.get(key))) for key in keys]
    return changes


def code_differences(
    packages: Mapping[str, Mapping[str, Any]], other: Mapping[str, Mapping[str, Any]]
) -> list[Difference]:
    """Return the packages whose code differs, with their versions.

    Args:
        packages: Packages of the first run by name: ``version`` and ``sha256``.
        other: Packages of the second.
    """
    changes = []
    for name in {**packages, **other}:
        first, second = packages.get(name), other.get(name)
        if first is None or second is None:
            where = "only in the first" if second is None else "only in the second"
            values = (first and first["version"], second and second["version"])
            changes.append(Difference("code", name, values, f"{name}: {where}"))
        elif first["sha256"] != second["sha256"]:
            values = (first["sha256"], second["sha256"])
            text = f"{name}: {_state(first)} and {_state(second)}"
            changes.append(Difference("code", name, values, text))
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


def _state(package: Mapping[str, Any]) -> str:
    return f"{package['version']} ({package['sha256'][:8]})"


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "..."
