"""The tasks of a data set as a sequence: made when asked for, all at once, or kept on disk.

The three forms have one index and the same tasks in the same order.
"""

from __future__ import annotations

import dataclasses
import fcntl
import gzip
import hashlib
import json
import os
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import overload

from rlvr_bs4.generate import generate
from rlvr_bs4.task import Limit, Par, SizeName, Task, canonical

Row = tuple[str, int, SizeName]
"""Archetype, seed and size."""


class Tasks(Sequence[Task]):
    """Tasks that are made when asked for; only their rows are held."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = tuple(rows)

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> Tasks: ...
    def __getitem__(self, index: int | slice) -> Task | Tasks:
        if isinstance(index, slice):
            return Tasks(self.rows[index])
        return generate(*self.rows[index])

    def __iter__(self) -> Iterator[Task]:
        return (generate(*row) for row in self.rows)

    def eager(self) -> tuple[Task, ...]:
        """All of them, made now."""
        return tuple(self)

    @property
    def key(self) -> str:
        """Name of these tasks in a cache: rows and everything that makes tasks of them."""
        digest = hashlib.sha256(canonical([fingerprint(), self.rows]).encode())
        return digest.hexdigest()[:32]

    def cached(self, folder: Path) -> tuple[Task, ...]:
        """All of them, read from a file in a folder, which is written first if it is not there.

        The file is complete or absent, and is written again if something else has damaged it. Of
        several processes one writes it, and the others wait.
        """
        path = folder / f"{self.key}.jsonl.gz"
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"{self.key}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            found = _read(path) if path.exists() else ()
            if len(found) < len(self):
                _write(path, self)
                found = _read(path)
        return found


def fingerprint() -> str:
    """Hash of this package's sources: other code may make other tasks."""
    digest = hashlib.sha256()
    package = resources.files("rlvr_bs4")
    for folder in (package, package / "archetypes"):
        for file in sorted(folder.iterdir(), key=lambda one: one.name):
            if file.name.endswith(".py"):
                digest.update(file.read_bytes())
    return digest.hexdigest()


def _write(path: Path, tasks: Tasks) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".building-")
    try:
        with os.fdopen(handle, "wb") as raw:
            with gzip.open(raw, "wt", encoding="utf-8") as lines:
                for task in tasks:
                    lines.write(json.dumps(dataclasses.asdict(task)) + "\n")
            raw.flush()
            os.fsync(raw.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _read(path: Path) -> tuple[Task, ...]:
    """The tasks of a file; none if it is damaged."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            return tuple(_load(line) for line in lines)
    except (EOFError, gzip.BadGzipFile, zlib.error, ValueError, KeyError, TypeError):
        return ()


def _load(line: str) -> Task:
    fields = json.loads(line)
    limit = fields.pop("limit")
    return Task(
        **fields
        | {
            "limit": limit and Limit(limit["reason"], tuple(limit["spans"])),
            "canaries": tuple(fields["canaries"]),
            "par": Par(**fields["par"]),
        }
    )
