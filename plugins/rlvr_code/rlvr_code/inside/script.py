"""Runs source text the way ``python main.py`` does, but in this process, which ends with it."""

from __future__ import annotations

import atexit
import builtins
import contextlib
import gc
import io
import linecache
import os
import sys
import threading
import traceback
import types
from typing import Any, NoReturn, TextIO, cast

NAME = "main.py"


def run(code: bytes) -> NoReturn:
    """Run a program to its end."""
    status = 1
    try:
        status = execute(code, main_module())
        threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as at any exit
        atexit._run_exitfuncs()
        flush()
        _flush_others()
    finally:
        os._exit(status)


def main_module() -> dict[str, Any]:
    """The name space of a fresh ``__main__``."""
    module = types.ModuleType("__main__")
    module.__file__ = NAME
    module.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = module
    return module.__dict__


def execute(code: bytes, names: dict[str, Any], filename: str = NAME) -> int:
    """Run source text in a name space; its exit status. Errors are written to standard error."""
    try:
        exec(compiled(code, filename), names)
    except SystemExit as error:
        return exit_status(error)
    except BaseException as error:
        report(error, filename)
        return 1
    return 0


def compiled(code: bytes, filename: str, mode: str = "exec") -> types.CodeType:
    """Compile source text, and keep it where tracebacks look for their lines."""
    text = code.decode("utf-8", "surrogatepass")
    linecache.cache[filename] = (len(code), None, text.splitlines(keepends=True), filename)
    compiled: types.CodeType = compile(text, filename, mode, dont_inherit=True)
    return compiled


def exit_status(error: SystemExit) -> int:
    """Return the exit code that a shell would see after ``sys.exit(...)``."""
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    sys.stderr.write(f"{error.code}\n")
    return 1


def report(error: BaseException, filename: str) -> None:
    """Write a traceback that begins with the program's own first line."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != filename:
        trace = trace.tb_next
    try:
        flush()
        sys.stderr.write("".join(traceback.format_exception(type(error), error, trace)))
    except BaseException:
        os.write(2, type(error).__name__.encode() + b"\n")


def flush() -> None:
    """Write out what the program's streams hold back."""
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        with contextlib.suppress(BaseException):
            cast("TextIO", stream).flush()


def _flush_others() -> None:
    """Write out the program's other streams, which an interpreter does by deleting them."""
    objects = gc.get_objects()  # of few kinds: asking each object takes three times as long
    kinds = {id(kind): kind for kind in map(type, objects)}
    stream_kinds = {key for key, kind in kinds.items() if issubclass(kind, io.IOBase)}
    streams = [candidate for candidate in objects if id(type(candidate)) in stream_kinds]
    for stream in sorted(streams, key=lambda stream: not issubclass(type(stream), io.TextIOBase)):
        with contextlib.suppress(BaseException):
            stream.flush()
