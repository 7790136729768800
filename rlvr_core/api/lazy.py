"""Modules that re-export names of other modules, each imported when it is first used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

Face = tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]


def face(module: str, homes: Mapping[str, str]) -> Face:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a module that re-exports names.

    Args:
        module: The face's ``__name__``.
        homes: Module below ``rlvr_core`` to the names in it that the face hands on, with spaces
            between them; a name may be that of a module itself. What type checkers see is the
            ``.pyi`` beside the face, which ``tools/docs.py`` writes from this.
    """
    home = {name: f"rlvr_core.{where}" for where, names in homes.items() for name in names.split()}

    def load(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        holder = importlib.import_module(home[name])
        if name not in vars(holder) and "__path__" in vars(holder):
            importlib.import_module(f"{home[name]}.{name}")
        value = getattr(holder, name)
        setattr(sys.modules[module], name, value)
        return value

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[module]), *home})

    return load, listed, sorted(home)
