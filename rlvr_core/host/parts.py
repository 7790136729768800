"""Parts of the kernel that live in built-in rooms, imported when a run first needs one."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

_TABLE = "rlvr_core.builtin.parts"


def function_kinds() -> tuple[str, ...]:
    """Kinds of which a plain function can be a component."""
    return tuple(importlib.import_module(_TABLE).FUNCTIONS)


def function_adapter(kind: str) -> Any | None:
    """What makes a component class of a plain function; None where the kind has no such thing."""
    target = importlib.import_module(_TABLE).FUNCTIONS.get(kind)
    return None if target is None else _load(target)


@cache
def _load(target: str) -> Any:
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)
