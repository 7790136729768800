"""Results of operations on shapes without data, which torch is asked for once for each.

torch computes most of them in Python, in the time of ten operations; a step of a large model asks
for the same ones again and again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

_KNOWN: dict[Any, Any] = {}
"""By operation and arguments: the results, as places among the arguments or as new tensors."""
_OTHERS = {"set_", "resize_", "resize_as_"}
"""Operations that change more than data."""


def known(func: Any, args: Any, kwargs: dict[str, Any], leaves: Sequence[Any]) -> Any:
    """What ``func(*args, **kwargs)`` gives.

    Args:
        func: An operation of torch.
        args: Its arguments; tensors are of torch's meta device.
        kwargs: Its named ones.
        leaves: All that is in both, in order.
    """
    if func.is_view or func.__name__.partition(".")[0] in _OTHERS:
        return func(*args, **kwargs)
    key = (func, _described((args, kwargs)))
    if key not in _KNOWN:
        found = func(*args, **kwargs)
        _KNOWN[key] = _recipe(found, leaves)
        return found
    recipe = _KNOWN[key]
    return func(*args, **kwargs) if recipe is None else _made(recipe, leaves)


def _described(tree: Any) -> Any:
    """Arguments as what can be looked up: of tensors what decides about a result."""
    if isinstance(tree, Tensor):
        return (Tensor, tree.size(), tree.stride(), tree.dtype)
    if isinstance(tree, dict):
        return tuple((name, _described(one)) for name, one in tree.items())
    if isinstance(tree, tuple | list):
        return (type(tree), *map(_described, tree))
    return (type(tree), tree)


def _recipe(found: Any, leaves: Sequence[Any]) -> Any:
    """How to make results again; None where they have memory of an argument."""
    places = {id(one): place for place, one in enumerate(leaves) if isinstance(one, Tensor)}
    memory = {one.untyped_storage()._cdata for one in leaves if isinstance(one, Tensor)}

    def of(one: Any) -> Any:
        if isinstance(one, tuple | list):
            return (type(one), [of(each) for each in one])
        if not isinstance(one, Tensor):
            return ("value", one)
        if id(one) in places:
            return ("given", places[id(one)])
        if one.untyped_storage()._cdata in memory or one.storage_offset():
            raise _SharedError
        return ("new", one.size(), one.stride(), one.dtype)

    try:
        return of(found)
    except _SharedError:
        return None


class _SharedError(Exception):
    """A result has memory of an argument."""


def _made(recipe: Any, leaves: Sequence[Any]) -> Any:
    kind, *rest = recipe
    if kind == "given":
        return leaves[rest[0]]
    if kind == "value":
        return rest[0]
    if kind == "new":
        size, stride, dtype = rest
        return torch.empty_strided(size, stride, dtype=dtype, device="meta")
    return kind([_made(one, leaves) for one in rest[0]])
