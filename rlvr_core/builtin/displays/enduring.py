"""A stream that outlives whoever reads it."""

from __future__ import annotations

from typing import Any, TextIO


class Enduring:
    """A stream that falls silent, without an error, when its other end is gone."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._gone = False

    def write(self, text: str) -> int:
        """Write, if anybody reads."""
        if not self._gone:
            try:
                self._stream.write(text)
            except (OSError, ValueError):
                self._gone = True
        return len(text)

    def flush(self) -> None:
        """Flush, if anybody reads."""
        if not self._gone:
            try:
                self._stream.flush()
            except (OSError, ValueError):
                self._gone = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
