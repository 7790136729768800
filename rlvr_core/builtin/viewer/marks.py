"""Notes and favourites: a file beside the run's folder, separate from the run's records."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rlvr_core.api import RunError
from rlvr_core.api.services import RunFolder, write_atomic

LONGEST = 20_000
"""Characters of a note."""


class Marks:
    """The notes and favourites of one run.

    A mark belongs to a group, ``12.340`` (step and draw), or to one of its completions,
    ``12.340/3``.

    Args:
        folder: The run.
        lock: A file whose lock lets one viewer at a time change them.
    """

    def __init__(self, folder: RunFolder, lock: Path) -> None:
        path = folder.path.resolve()
        self.path = path.with_name(f"{path.name}.notes.json")
        self._lock = lock

    def read(self) -> dict[str, dict[str, Any]]:
        """Return the marks by what they belong to.

        Raises:
            RunError: If the file is not what this class writes.
        """
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
            marks = found["marks"]
            return {str(key): dict(mark) for key, mark in marks.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise RunError(
                f"the file of notes cannot be read: {error}",
                where=str(self.path),
                remedy="mend it, or move it away",
            ) from error

    def change(self, key: str, *, favourite: bool | None = None, note: str | None = None) -> None:
        """Change one mark; one with neither favourite nor note is removed.

        Args:
            key: What it belongs to.
            favourite: Whether it is a favourite; None leaves it unchanged.
            note: Its note; None leaves it unchanged.

        Raises:
            RunError: If the file cannot be read or written.
        """
        with self._alone():
            marks = self.read()
            mark = marks.pop(key, {})
            if favourite is not None:
                mark["favourite"] = favourite
            if note is not None:
                mark["note"] = note[:LONGEST].strip()
            if mark.get("favourite") or mark.get("note"):
                mark["changed"] = datetime.now(UTC).isoformat(timespec="seconds")
                marks[key] = mark
            text = json.dumps({"rlvr_notes": 1, "marks": marks}, indent=1)
            write_atomic(self.path, text + "\n")

    @contextmanager
    def _alone(self) -> Iterator[None]:
        descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)
