"""A stream that survives the loss of its reader."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TextIO


class Enduring:
    """A stream that discards output, without an error, once its other end is closed."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._gone = False

    def write(self, text: str) -> int:
        """Write, unless the reader is gone."""
        self._try(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        """Flush, unless the reader is gone."""
        self._try(self._stream.flush)

    def _try(self, call: Callable[[], object]) -> None:
        if not self._gone:
            try:
                call()
            except (OSError, ValueError):
                self._gone = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
