"""Fixtures that pytest brings: output, logs, patches and a folder."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

_UNSET = object()


class CaptureResult(NamedTuple):
    """The text read by ``capsys``."""

    out: str
    err: str


class _Captured:
    """``capsys``."""

    def __init__(self) -> None:
        self.streams = io.StringIO(), io.StringIO()

    def readouterr(self) -> CaptureResult:
        """Return the text written since the last call."""
        texts = [stream.getvalue() for stream in self.streams]
        for stream in self.streams:
            stream.seek(0)
            stream.truncate()
        return CaptureResult(*texts)


@contextlib.contextmanager
def _capsys() -> Iterator[_Captured]:
    captured = _Captured()
    out, err = captured.streams
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        yield captured


class _Patches:
    """``monkeypatch``."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._stack = stack

    def setattr(self, target: Any, name: Any, value: Any = _UNSET, raising: bool = True) -> None:
        """Put another value in an attribute, given by object and name, or by its full name."""
        from unittest import mock

        if value is _UNSET:
            self._stack.enter_context(mock.patch(target, name))
        else:
            self._stack.enter_context(mock.patch.object(target, name, value, create=not raising))

    def setitem(self, target: Any, key: Any, value: Any) -> None:
        """Put another value in a mapping."""
        from unittest import mock

        self._stack.enter_context(mock.patch.dict(target, {key: value}))

    def setenv(self, name: str, value: str) -> None:
        """Set a variable of the environment."""
        self.setitem(os.environ, name, value)


@contextlib.contextmanager
def _monkeypatch() -> Iterator[_Patches]:
    with contextlib.ExitStack() as stack:
        yield _Patches(stack)


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
        return [record.getMessage() for record in self.records]

    @property
    def text(self) -> str:
        """All of it, line by line."""
        return "".join(
            f"{record.levelname} {record.name}:{record.getMessage()}\n" for record in self.records
        )

    def set_level(self, level: Any, logger: str | None = None) -> None:
        """Have records from a level on."""
        logging.getLogger(logger).setLevel(level)


@contextlib.contextmanager
def _caplog() -> Iterator[_Logged]:
    logged = _Logged()
    logging.getLogger().addHandler(logged)
    try:
        yield logged
    finally:
        logging.getLogger().removeHandler(logged)


@contextlib.contextmanager
def _tmp_path() -> Iterator[pathlib.Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield pathlib.Path(folder)


FIXTURES: dict[str, Callable[[], Any]] = {
    "caplog": _caplog,
    "capsys": _capsys,
    "monkeypatch": _monkeypatch,
    "tmp_path": _tmp_path,
}
"""Makers of pytest's own fixtures, by name."""
