"""From what a data row says to constraints with checked arguments, for each format of row."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from typing import Any

from rlvr_core.api import DataError, Json
from rlvr_ifeval.constraint import Bound, ConstraintSet, short

MAX_LITERAL = 1_000_000
"""Longest text that is read as JSON or as a Python literal, in characters."""
MAX_NESTING = 100
"""Deepest nesting of brackets in it."""


def from_lists(spec: Mapping[str, Json], known: ConstraintSet, where: str) -> tuple[Bound, ...]:
    """Constraints of ``instruction_id_list`` and ``kwargs``, as IFEval and IFBench write them.

    Raises:
        DataError: If a list is missing or a constraint does not parse; names the row.
    """
    ids = _field(spec, "instruction_id_list", where)
    kwargs = _value(_field(spec, "kwargs", where), "kwargs", where)
    if not isinstance(kwargs, list | tuple):
        raise DataError(f"'kwargs' must be a list, not {short(kwargs)}", where=where)
    return known.parse_all(ids, [_value(entry, "kwargs", where) for entry in kwargs], where)


def from_ground_truth(
    spec: Mapping[str, Json], known: ConstraintSet, where: str
) -> tuple[Bound, ...]:
    """Constraints of a multi-constraint row.

    ``ground_truth`` is a list of ``{instruction_id: [...], kwargs: [...]}``, or that list as JSON
    or as a Python literal. Rows without it that have IFEval's two lists are read like those.

    Raises:
        DataError: If it is malformed or a constraint does not parse; names the row.
    """
    if "ground_truth" not in spec and "instruction_id_list" in spec:
        return from_lists(spec, known, where)
    groups = _value(_field(spec, "ground_truth", where), "ground_truth", where)
    if isinstance(groups, Mapping):
        groups = [groups]
    if not isinstance(groups, list | tuple) or not groups:
        raise DataError(f"'ground_truth' must be a list, not {short(groups)}", where=where)
    ids: list[Any] = []
    kwargs: list[Any] = []
    for given in groups:
        group = _mapping(_value(given, "ground_truth", where), "ground_truth", where)
        some = _field(group, "instruction_id", where)
        theirs = _field(group, "kwargs", where)
        for name, listed in (("instruction_id", some), ("kwargs", theirs)):
            if not isinstance(listed, list | tuple):
                raise DataError(f"'{name}' must be a list, not {short(listed)}", where=where)
        if len(some) != len(theirs):
            raise DataError(
                f"{len(some)} constraint ids, but arguments for {len(theirs)}", where=where
            )
        ids.extend(some)
        kwargs.extend(theirs)
    return known.parse_all(ids, kwargs, where)


def from_function(spec: Mapping[str, Json], known: ConstraintSet, where: str) -> tuple[Bound, ...]:
    """The one constraint of an RLVR-IFEval row: ``ground_truth`` with ``func_name``, as JSON.

    Raises:
        DataError: If it is malformed or does not parse; names the row.
    """
    value = _value(_field(spec, "ground_truth", where), "ground_truth", where)
    truth = dict(_mapping(value, "ground_truth", where))
    name = _field(truth, "func_name", where)
    if not isinstance(name, str):
        raise DataError(f"'func_name' must be text, not {short(name)}", where=where)
    del truth["func_name"]
    return (known.parse(name, truth, where),)


def _field(spec: Mapping[str, Json], name: str, where: str) -> Any:
    if spec.get(name) is None:
        raise DataError(
            f"field '{name}' is missing",
            where=where,
            remedy=f"fields there are: {', '.join(map(str, spec)) or 'none'}",
        )
    return spec[name]


def _mapping(value: object, name: str, where: str) -> Mapping[str, Json]:
    if not isinstance(value, Mapping):
        raise DataError(f"'{name}' must hold a mapping, not {short(value)}", where=where)
    return value


def _value(given: Any, name: str, where: str) -> Any:
    """A value as it is; text is read as JSON or as a Python literal, and never run."""
    if not isinstance(given, str):
        return given
    if len(given) > MAX_LITERAL or _nesting(given) > MAX_NESTING:
        raise DataError(f"'{name}' is too long or too deeply nested to be read", where=where)
    try:
        return json.loads(given)
    except ValueError:
        pass
    try:
        return ast.literal_eval(given.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise DataError(
            f"'{name}' is neither JSON nor a Python literal: {short(given)}", where=where
        ) from None


def _nesting(text: str) -> int:
    """An upper bound on how deep brackets and signs nest."""
    depth = deepest = signs = 0
    for letter in text:
        if letter in "([{":
            depth += 1
            deepest = max(deepest, depth)
        elif letter in ")]}":
            depth -= 1
        signs = signs + 1 if letter in "+-~" else 0
        deepest = max(deepest, signs)
    return deepest
