"""The loader ``core/jsonl``: problems from a JSON file."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from rlvr_core.api import Problem
from rlvr_core.data.rows import RowMapping, problems, read_rows
from rlvr_core.data.uri import local_path


class JsonLines:
    """Problems from a file of JSON objects."""

    class Config(RowMapping):
        """Options of ``core/jsonl``."""

        path: str
        """File: JSON lines or one JSON array, gzipped or not; ``s3://`` and the like by plugin."""
        name: str | None = None
        """Name of the data set, in ids and metrics; the file's name without endings if absent."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def load(self) -> Iterator[Problem]:
        """Yield the problems.

        Raises:
            DataError: If the file or a row of it is unusable, or it holds none.
        """
        config = self._config
        path = local_path(config.path)
        name = config.name or Path(config.path).name.partition(".")[0]
        rows = islice(read_rows(path), config.limit)
        yield from problems(
            ((f"{path}:{number}", row) for number, row in rows), config, name, source=str(path)
        )
