"""The program as the tests would see it run: what it prints, reads, warns of and logs, patches."""

from __future__ import annotations

import builtins
import contextlib
import importlib
import io
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TextIO, cast


class Watch:
    """What a program says while it does something for the tests.

    Args:
        ask: Has the tests read their standard input.
    """

    def __init__(self, ask: Callable[..., Any]) -> None:
        self._ask = ask
        self._listens = False
        self._told: list[Any] = []
        self._levels: dict[str, int] = {}
        self._streams: dict[str, io.StringIO] = {}

    @contextlib.contextmanager
    def watched(self, asked: dict[str, Any], answer: dict[str, Any]) -> Iterator[None]:
        """Do something as the tests would see it: what is written, warned and logged comes to them.

        What they have put in place of functions of the library is used instead.
        """
        streams = {name: io.StringIO() for name in ("stdout", "stderr")}
        outer, self._streams = self._streams, streams
        real = {name: getattr(sys, name) for name in streams}
        before = {}
        self._told.clear()
        for place, value in asked["patched"]:
            module, _, name = place.rpartition(".")
            before[place] = getattr(importlib.import_module(module), name)
            setattr(sys.modules[module], name, value)
        if asked["environ"] is not None:
            os.environ.clear()
            os.environ.update(asked["environ"])
        for name, stream in streams.items():
            setattr(sys, name, stream)
        try:
            yield
        finally:
            for name, stream in real.items():
                setattr(sys, name, stream)
            for place, value in before.items():
                module, _, name = place.rpartition(".")
                setattr(sys.modules[module], name, value)
            if written := self.written():
                answer["written"] = written
            self._streams = outer
            if self._told:
                answer["told"] = list(self._told)

    def written(self) -> dict[str, str]:
        """What has been written since this was asked for the last time, by stream."""
        found = {name: one.getvalue() for name, one in self._streams.items() if one.getvalue()}
        for name in found:
            self._streams[name].seek(0)
            self._streams[name].truncate()
        return found

    def set_levels(self, levels: dict[str, int]) -> None:
        """Have loggers say what the tests want of them; as before where they say nothing of it."""
        import logging

        for name in {**self._levels, **levels}:
            logger = logging.getLogger(name)
            before = self._levels.setdefault(name, logger.level)
            logger.setLevel(levels.get(name, before))

    def _warned(self, message: Any, category: Any, *rest: Any, **more: Any) -> None:
        self._told.append(["warning", category, str(message)])

    def listen(self) -> None:
        """Read standard input where the tests do, who may have put something in its place."""
        if self._listens:
            return
        self._listens = True
        sys.stdin = cast("TextIO", Input(lambda op: self._ask(-1, op)))
        builtins.input = lambda prompt="", /: self._ask(-1, "input", str(prompt))
        warnings.simplefilter("always")
        warnings.showwarning = self._warned
        if "logging" in sys.modules:
            self._take_logs()

    def _take_logs(self) -> None:
        import logging

        told = self._told
        known = {*vars(logging.makeLogRecord({})), "message", "asctime"}

        class Taker(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                error = record.exc_info[1] if record.exc_info else None
                extra = {key: one for key, one in vars(record).items() if key not in known}
                told.append(["log", record.name, record.levelno, record.getMessage(), error, extra])

        logging.getLogger().addHandler(Taker())


class Input(io.TextIOBase):
    """Standard input, read by the tests' process."""

    def __init__(self, ask: Callable[[str], Any]) -> None:
        self._ask_for = ask

    def readline(self, size: int | None = -1, /) -> str:  # type: ignore[override]
        """The next line."""
        return str(self._ask_for("readline"))

    def read(self, size: int | None = -1, /) -> str:
        """All that is left."""
        return str(self._ask_for("read"))

    def readable(self) -> bool:
        """It is."""
        return True
