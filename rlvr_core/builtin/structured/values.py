"""When two JSON values are equal, and which paths of them are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Path = tuple[str | int, ...]


def same(left: Any, right: Any, *, ignore_order: bool = False) -> bool:
    """Whether two JSON values are equal: numbers by value, objects without order.

    Args:
        left: One value.
        right: The other.
        ignore_order: Whether the order of arrays is no matter.
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
    """A text that is equal for equal values; unless ``ordered``, without order of arrays."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, int | float):
        whole = isinstance(value, int) or value.is_integer()
        return f"number {int(value) if whole else value!r}"
    if isinstance(value, Mapping):
        inside = sorted(
            f"{name!r}: {canonical(one, ordered=ordered)}" for name, one in value.items()
        )
        return "{" + ", ".join(inside) + "}"
    inside = [canonical(one, ordered=ordered) for one in value]
    return "[" + ", ".join(inside if ordered else sorted(inside)) + "]"


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """The values at the ends of all paths; an empty object or array is such an end."""
    if isinstance(value, Mapping) and value:
        for name, one in value.items():
            yield from leaves(one, (*path, name))
    elif isinstance(value, list) and value:
        for index, one in enumerate(value):
            yield from leaves(one, (*path, index))
    else:
        yield path, value


def share_of_paths(expected: Any, given: Any) -> float:
    """Of the paths of either value, the share that both have with the same value."""
    theirs, ours = dict(leaves(given)), dict(leaves(expected))
    right = sum(path in theirs and same(value, theirs[path]) for path, value in ours.items())
    return right / len(ours.keys() | theirs.keys())
