"""A verifier in a worker process whose reading is watched: files, modules and programs.

What code reads by a path that it computes cannot be told from its text. Python's audit events tell.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from rlvr_core.api import (
    Completion,
    ComponentConfig,
    Json,
    Problem,
    Verdict,
    Verifier,
)
from rlvr_core.api.services import VerifierSpec

_WRITING = frozenset("wax+")
_RUN = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn")
_WRITES = os.O_WRONLY | os.O_RDWR


class Watched:
    """A verifier that says in the ``parts`` of its verdicts what it has read since the last one.

    A part is ``file PATH``, ``module PATH``, ``program PATH`` or ``written PATH``.
    """

    class Config(ComponentConfig):
        """How to construct the verifier.

        Attributes:
            target: Where it is imported from.
            options: Its options.
            limit: Seconds that a verdict may take.
        """

        target: str
        options: dict[str, Json]
        limit: float

    def __init__(self, config: Config) -> None:
        self._known = set(sys.modules)
        self._seen: dict[str, None] = {}
        sys.addaudithook(self._hear)
        self._verifier: Verifier = VerifierSpec(config.target, config.options).build()

    @staticmethod
    def time_limit(config: Config) -> float:
        """Return the verifier's limit."""
        return config.limit

    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        """Return the verifier's verdict, with what was read as parts."""
        verdict = self._verifier.verify(problem, completion)
        new = {*sys.modules} - self._known
        self._known |= new
        read = [*self._seen, *self._files(new)]
        self._seen.clear()
        return replace(verdict, parts=dict.fromkeys(read[:1000], 0.0), detail="", spans=())

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        try:
            if event == "open":
                self._note("written" if _writes(args) else "file", [args[0]])
            elif event == "sqlite3.connect":
                self._note("file", [args[0]])
            elif event in _RUN:
                self._note("program", _words(args))
        except (TypeError, ValueError, IndexError):
            pass  # an odd argument: the call itself refuses it, or has its own meaning for it

    def _note(self, kind: str, paths: Iterable[Any]) -> None:
        for path in paths:
            if isinstance(path, str | bytes | os.PathLike):
                full = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - links stay as named
                self._seen[f"{kind} {full}"] = None

    @staticmethod
    def _files(modules: Iterable[str]) -> Iterator[str]:
        for name in modules:
            file = getattr(sys.modules.get(name), "__file__", None)
            if isinstance(file, str):
                yield f"module {file}"


def _writes(args: tuple[Any, ...]) -> bool:
    _, mode, flags = args
    if isinstance(mode, str):
        return bool(_WRITING & set(mode))
    return bool(flags & _WRITES)


def _words(value: Any) -> Iterator[str]:
    """Yield every word of a command that may be a path."""
    if isinstance(value, bytes):
        value = os.fsdecode(value)
    if isinstance(value, str):
        yield value
        if any(one.isspace() for one in value):
            yield from shlex.split(value, comments=True)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _words(one)
