"""Equality of JSON values, as a whole and by path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Path = tuple[str | int, ...]


def same(left: Any, right: Any, *, ignore_order: bool = False) -> bool:
    """Return whether two JSON values are equal: numbers by value, objects without order.

    Args:
        left: One value.
        right: The other.
        ignore_order: Whether to ignore the order of arrays.
    """
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, int | float) and isinstance(right, int | float):
        return left == right
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(
            same(left[name], right[name], ignore_order=ignore_order) for name in left
        )
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        if len(left) != len(right):
            return False
        if not ignore_order:
            return all(map(same, left, right))
        return sorted(map(canonical, left)) == sorted(map(canonical, right))
    return type(left) is type(right) and bool(left == right)


def canonical(value: Any, *, ordered: bool = False) -> str:
    """Return a text that is equal for equal values; ignores array order unless ``ordered``."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, int | float):
        whole = isinstance(value, int) or value.is_integer()
        return f"number {int(value) if whole else value!r}"
    if isinstance(value, Mapping):
        inside = sorted(
            f"{name!r}: {canonical(entry, ordered=ordered)}" for name, entry in value.items()
        )
        return "{" + ", ".join(inside) + "}"
    inside = [canonical(item, ordered=ordered) for item in value]
    return "[" + ", ".join(inside if ordered else sorted(inside)) + "]"


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield path and value of each leaf; an empty object or array is a leaf."""
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from leaves(inner, (*path, name))
    elif isinstance(value, list) and value:
        for index, inner in enumerate(value):
            yield from leaves(inner, (*path, index))
    else:
        yield path, value


def share_of_paths(expected: Any, answer: Any) -> float:
    """Return the share of all paths at which both values are equal."""
    answer_leaves, expected_leaves = dict(leaves(answer)), dict(leaves(expected))
    right = sum(
        path in answer_leaves and same(value, answer_leaves[path])
        for path, value in expected_leaves.items()
    )
    return right / len(expected_leaves.keys() | answer_leaves.keys())
