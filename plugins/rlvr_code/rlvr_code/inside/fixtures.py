"""Fixtures that pytest brings: output, logs and patches."""

from __future__ import annotations

import contextlib
import io
import logging
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

_UNSET = object()


class CaptureResult(NamedTuple):
    """What ``capsys`` has read."""

    out: str
    err: str


class _Captured:
    """``capsys``."""

    def __init__(self) -> None:
        self._out, self._err = io.StringIO(), io.StringIO()

    def readouterr(self) -> Any:
        """What has been written since the last time."""
        found = CaptureResult(self._out.getvalue(), self._err.getvalue())
        for one in (self._out, self._err):
            one.seek(0)
            one.truncate()
        return found


@contextlib.contextmanager
def _capsys() -> Iterator[_Captured]:
    captured = _Captured()
    with contextlib.redirect_stdout(captured._out), contextlib.redirect_stderr(captured._err):
        yield captured


class _Patches:
    """``monkeypatch``."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], Any]] = []

    def setattr(self, target: Any, name: Any, value: Any = _UNSET, raising: bool = True) -> None:
        """Put another value in an attribute, given by object and name, or by its full name."""
        if value is _UNSET:
            module, _, attribute = target.rpartition(".")
            target, name, value = __import__(module, fromlist=["_"]), attribute, name
        before = getattr(target, name, _UNSET)
        if raising and before is _UNSET:
            raise AttributeError(name)
        self._undo.append(
            (lambda: delattr(target, name))
            if before is _UNSET
            else (lambda: setattr(target, name, before))
        )
        setattr(target, name, value)

    def setitem(self, target: Any, key: Any, value: Any) -> None:
        """Put another value in a mapping."""
        before = target.get(key, _UNSET)
        self._undo.append(
            (lambda: target.pop(key))
            if before is _UNSET
            else (lambda: target.__setitem__(key, before))
        )
        target[key] = value

    def setenv(self, name: str, value: str) -> None:
        """Set a variable of the environment."""
        self.setitem(os.environ, name, value)

    def undo(self) -> None:
        """Put everything back."""
        while self._undo:
            self._undo.pop()()


@contextlib.contextmanager
def _monkeypatch() -> Iterator[_Patches]:
    patches = _Patches()
    try:
        yield patches
    finally:
        patches.undo()


class _Logged(logging.Handler):
    """``caplog``."""

    def __init__(self) -> None:
        super().__init__(0)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep what is logged."""
        self.records.append(record)

    @property
    def messages(self) -> list[str]:
        """What it says."""
        return [one.getMessage() for one in self.records]

    @property
    def text(self) -> str:
        """All of it, line by line."""
        return "".join(f"{one.levelname} {one.name}:{one.getMessage()}\n" for one in self.records)

    @property
    def record_tuples(self) -> list[tuple[str, int, str]]:
        """Logger, level and text of each record."""
        return [(one.name, one.levelno, one.getMessage()) for one in self.records]

    def clear(self) -> None:
        """Forget what has been logged."""
        self.records.clear()

    def set_level(self, level: Any, logger: str | None = None) -> None:
        """Have records from a level on."""
        logging.getLogger(logger).setLevel(level)

    @contextlib.contextmanager
    def at_level(self, level: Any, logger: str | None = None) -> Iterator[None]:
        """The same for a while."""
        before = logging.getLogger(logger).level
        self.set_level(level, logger)
        try:
            yield
        finally:
            self.set_level(before, logger)


@contextlib.contextmanager
def _caplog() -> Iterator[_Logged]:
    logged = _Logged()
    logging.getLogger().addHandler(logged)
    try:
        yield logged
    finally:
        logging.getLogger().removeHandler(logged)


FIXTURES: dict[str, Callable[[], Any]] = {
    "caplog": _caplog,
    "capsys": _capsys,
    "monkeypatch": _monkeypatch,
}
"""What makes the fixtures that pytest brings, by their names."""
