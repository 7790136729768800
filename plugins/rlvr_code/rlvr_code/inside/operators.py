"""Operators, by the names that they have on the wire."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any


def special(one: Any, name: str) -> Any:
    """A special method as Python itself looks it up: in the class, bound by what it finds there.

    Raises:
        AttributeError: If there is none.
    """
    for kind in type(one).__mro__:
        if name in vars(kind):
            found = vars(kind)[name]
            bind = getattr(type(found), "__get__", None)
            return found if bind is None else bind(found, one, type(one))
    raise AttributeError(name)


UNARY: dict[str, Callable[..., Any]] = {
    "neg": operator.neg,
    "pos": operator.pos,
    "abs": abs,
    "invert": operator.invert,
    "int": int,
    "float": float,
    "complex": complex,
    "index": operator.index,
    "bytes": bytes,
    "reversed": reversed,
    "trunc": lambda one: one.__trunc__(),
    "floor": lambda one: one.__floor__(),
    "ceil": lambda one: one.__ceil__(),
    "fspath": lambda one: one.__fspath__(),
}
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    **{
        name: getattr(operator, f"__{name}__")
        for name in [
            "add",
            "sub",
            "mul",
            "truediv",
            "floordiv",
            "mod",
            "pow",
            "matmul",
            "and",
            "or",
            "xor",
            "lshift",
            "rshift",
        ]
    },
    "divmod": divmod,
}
ORDER = {name: getattr(operator, name) for name in ("lt", "le", "gt", "ge")}
