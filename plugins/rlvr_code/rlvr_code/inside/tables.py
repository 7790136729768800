"""Arrays of numpy, tables and columns of pandas: as plain data, where those packages are there."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

_KINDS = "biufcUSO"
"""Of numpy's types those that cross; of objects the plain ones."""


def plain(value: Any) -> tuple[str, Any] | None:
    """Name and data of an array, number, table or column; None of anything else."""
    numpy, pandas = sys.modules.get("numpy"), sys.modules.get("pandas")
    if is_array(value):
        return "ndarray", [value.dtype.str, list(value.shape), value.ravel().tolist()]
    if numpy is not None and isinstance(value, numpy.generic) and value.dtype.kind in _KINDS:
        return "scalar", [value.dtype.str, value.item()]
    if pandas is not None and type(value) is pandas.Series:
        return "series", [*_column(value), list(value.index), value.name]
    if pandas is not None and type(value) is pandas.DataFrame:
        columns = [_column(value.iloc[:, at]) for at in range(value.shape[1])]
        return "frame", [columns, list(value.columns), list(value.index)]
    return None


def is_array(value: Any) -> bool:
    """Whether something is an array of numpy that can cross."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(value) is numpy.ndarray and value.dtype.kind in _KINDS


def _column(value: Any) -> list[Any]:
    kind = str(value.dtype)
    return [value.tolist(), kind if kind in _COLUMNS else "object"]


_COLUMNS = ("int64", "int32", "float64", "float32", "bool", "object", "str")


def _array(given: Any) -> Any:
    kind, shape, values = given
    numpy = sys.modules["numpy"]
    if numpy.dtype(kind).kind not in _KINDS:
        raise ValueError("no such array")
    return numpy.array(values, dtype=kind).reshape(shape)


def empty(kind: str, shape: list[int]) -> Any:
    """An array to be filled."""
    if sys.modules["numpy"].dtype(kind).kind not in _KINDS:
        raise ValueError("no such array")
    return sys.modules["numpy"].empty(shape, dtype=kind)


def _scalar(given: Any) -> Any:
    kind, value = given
    return _array([kind, [1], [value]])[0]


def _series(given: Any) -> Any:
    values, kind, index, name = given
    return sys.modules["pandas"].Series(values, index=index, name=name, dtype=_known(kind))


def _frame(given: Any) -> Any:
    columns, names, index = given
    pandas = sys.modules["pandas"]
    made = [pandas.Series(values, index=index, dtype=_known(kind)) for values, kind in columns]
    found = pandas.DataFrame(dict(enumerate(made)), index=index)
    found.columns = names
    return found


def _known(kind: Any) -> str:
    if kind not in _COLUMNS:
        raise ValueError("no such column")
    return str(kind)


READERS: dict[str, Callable[[Any], Any]] = {
    "ndarray": _array,
    "scalar": _scalar,
    "series": _series,
    "frame": _frame,
}
