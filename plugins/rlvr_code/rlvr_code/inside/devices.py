"""``/dev/stdin`` and its like, which are links into ``/proc`` and so lead nowhere in the sandbox.

A program's own ``open`` knows them and gives a copy of the descriptor that the program has anyway:
no file is there for it, and nobody gains anything.
"""

from __future__ import annotations

import builtins
import io
import os
from collections.abc import Callable
from typing import Any

_DESCRIPTORS = {
    **{f"/dev/{name}": number for number, name in enumerate(("stdin", "stdout", "stderr"))},
    **{f"/dev/fd/{number}": number for number in range(3)},
}
_open = io.open


def install() -> None:
    """Let ``open`` of every program forked from here know these names."""
    # static: like a built-in, it becomes no method where a class has it for an attribute
    builtins.open = io.open = staticmethod(open)


def open(
    file: Any,
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Callable[[str, int], int] | None = None,
) -> Any:
    """``open`` as ever, but of the names of the standard streams."""
    if opener is None:
        opener = _copy_of(file)
    return _open(file, mode, buffering, encoding, errors, newline, closefd, opener)


def _copy_of(file: Any) -> Callable[[str, int], int] | None:
    """Return the opener of a standard stream, if ``file`` names one."""
    name = os.fspath(file) if isinstance(file, os.PathLike) else file
    number = _DESCRIPTORS.get(name) if isinstance(name, str) else None
    return None if number is None else lambda path, flags: os.dup(number)
