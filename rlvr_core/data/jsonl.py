"""The loader ``core/jsonl``, and what it shares with the loaders of other files."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from rlvr_core.api import Problem
from rlvr_core.data.rows import JsonRow, RowMapping, problems, read_rows
from rlvr_core.data.uri import local_path

Placed = Iterator[tuple[str, JsonRow]]
"""Rows, each with its location for messages."""


class FileMapping(RowMapping):
    """Options of every loader of a file."""

    path: str
    """File; ``s3://`` and the like by plugin."""
    name: str | None = None
    """Name of the data set, in ids and metrics; the file's name without endings if absent."""


class FileLoader:
    """Problems from the rows of a file, whose name is that of the data set if it has no other."""

    def __init__(self, config: Any) -> None:
        self._config = config

    def rows(self, path: Path) -> Placed:
        """Rows of the file."""
        raise NotImplementedError

    def dataset(self, path: Path) -> str:
        """Name of the data set where the configuration gives none."""
        return Path(self._config.path).name.partition(".")[0]

    def load(self) -> Iterator[Problem]:
        """Yield the problems.

        Raises:
            DataError: If the file or a row of it is unusable, or it holds none.
        """
        config = self._config
        path = local_path(config.path)
        rows = islice(self.rows(path), config.limit)
        yield from problems(rows, config, config.name or self.dataset(path), source=str(path))


def json_rows(path: Path) -> Placed:
    """Rows of a file of JSON lines or of one JSON array, each with its place."""
    return ((f"{path}:{number}", row) for number, row in read_rows(path))


class JsonLines(FileLoader):
    """Problems from a file of JSON objects."""

    class Config(FileMapping):
        """Options of ``core/jsonl``: JSON lines or one JSON array, gzipped or not."""

    def rows(self, path: Path) -> Placed:
        """See ``json_rows``."""
        return json_rows(path)
