"""Where in a plugin's own code something happened: the file and line its author must look at."""

from __future__ import annotations

import inspect
import linecache
import traceback
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, NamedTuple


class Place(NamedTuple):
    """A line of a file; ``Place("", 0)`` when nobody knows."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


NOWHERE = Place("", 0)

FILE_PREFIX = "_rlvr_file_"
"""What the names of modules begin with that are imported from files that a config names."""


def of_error(error: BaseException, package: str) -> Place:
    """The place to look at for an error.

    Args:
        error: As it was caught.
        package: Top-level package of the plugin. Its innermost frame is the place, because what
            its code calls is seldom where the fault is.

    Returns:
        The line of a syntax error itself, else of the innermost frame of the package, else
        ``NOWHERE``.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return Place(error.filename, error.lineno or 0)
    frames = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    return _innermost(reversed(frames), package)


def of_import(frame: FrameType | None, package: str) -> Place:
    """The place of the import statement of ``package`` that led to this frame."""
    return _innermost(traceback.walk_stack(frame), package)


def of_function(function: Callable[..., Any]) -> Place:
    """The ``def`` line of a function, below its decorators."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return NOWHERE
    for line in range(code.co_firstlineno, code.co_firstlineno + 50):
        if linecache.getline(code.co_filename, line).lstrip().startswith(("def ", "async def ")):
            return Place(code.co_filename, line)
    return Place(code.co_filename, code.co_firstlineno)


def _innermost(frames: Iterable[tuple[FrameType, int]], package: str) -> Place:
    for frame, line in frames:
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] == package:
            return Place(frame.f_code.co_filename, line)
    return NOWHERE
