"""In what two records of runs differ, part by part."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SHOWN = 6
"""Files that are named of a longer list."""
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
        one, other = map(_shown, self.values)
        return f"{self.key}: {one} and {other}"


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[Difference]:
    """Return the differences of two records, each ``{part: {key: value}}``.

    A part that only one of them has is left out, and so is the code of packages.
    """
    found = []
    for part in one:
        if part == "code" or not isinstance(other.get(part), Mapping):
            continue
        first, second = flat(one[part] or {}), flat(other[part])
        keys = [
            key
            for key in {**first, **second}
            if first.get(key) != second.get(key) and (part, key) not in _BESIDE
        ]
        found += [Difference(part, key, (first.get(key), second.get(key))) for key in keys]
    return found


def code_differences(
    one: Mapping[str, Mapping[str, Any]],
    other: Mapping[str, Mapping[str, Any]],
    one_files: Mapping[str, Mapping[str, str]],
    other_files: Mapping[str, Mapping[str, str]],
) -> list[Difference]:
    """Return the packages whose code differs, and in which files.

    Args:
        one: Packages of the first run by name: ``version``, ``sha256``, ``git``.
        other: Packages of the second.
        one_files: Hash of each file of each package of the first.
        other_files: Those of the second.
    """
    found = []
    for name in {**one, **other}:
        first, second = one.get(name), other.get(name)
        if first is None or second is None:
            where = "only in the first" if second is None else "only in the second"
            values = (first and first["version"], second and second["version"])
            found.append(Difference("code", name, values, f"{name}: {where}"))
        elif first["sha256"] != second["sha256"]:
            named = _files(one_files.get(name, {}), other_files.get(name, {}))
            text = f"{name} {_versions(first, second)}: {named}"
            values = (first["sha256"], second["sha256"])
            found.append(Difference("code", name, values, text))
    return found


def flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Return nested mappings and lists as one mapping with dotted keys."""
    if isinstance(value, Mapping) and value:
        items = [(str(key), child) for key, child in value.items()]
    elif isinstance(value, list) and value:
        items = [(str(index), child) for index, child in enumerate(value)]
    else:
        return {prefix: value}
    found: dict[str, Any] = {}
    for key, child in items:
        found |= flat(child, f"{prefix}.{key}" if prefix else key)
    return found


def _files(one: Mapping[str, str], other: Mapping[str, str]) -> str:
    if not one or not other:
        return "its files differ"
    parts = []
    for word, names in (
        ("changed", [name for name in one if name in other and one[name] != other[name]]),
        ("only in the first", [name for name in one if name not in other]),
        ("only in the second", [name for name in other if name not in one]),
    ):
        if names:
            more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            parts.append(f"{word}: {', '.join(names[:SHOWN])}{more}")
    return "; ".join(parts)


def _versions(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    first, second = (f"{each['version']}{_commit(each)}" for each in (one, other))
    return first if first == second else f"{first} and {second}"


def _commit(package: Mapping[str, Any]) -> str:
    git = package.get("git")
    if not git:
        return ""
    changed = len(git["changed"]) + len(git["untracked"])
    return f" at {git['commit'][:8]}" + (f" with {changed} files changed" if changed else "")


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "..."
