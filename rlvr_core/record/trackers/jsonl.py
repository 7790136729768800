"""Each step's metrics as a line of JSON, in a file of the user's choice."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING

from rlvr_core.api import ComponentConfig
from rlvr_core.record.trackers.common import finite

if TYPE_CHECKING:
    from rlvr_core.api import TrackedRun


class JsonLines:
    """Appends ``{"run": …, "step": …, "loss": …, …}`` to a file, which several runs may share."""

    class Config(ComponentConfig):
        """Options of tracker ``jsonl``."""

        path: str | None = None
        """File; left out, ``jsonl/metrics.jsonl`` in the run's folder."""

    def __init__(self, config: Config) -> None:
        self._given = config.path
        self._file: IO[str] | None = None
        self._run = ""

    def start(self, run: TrackedRun, step: int) -> None:
        """See ``Tracker``; lines of this run from ``step`` on go, as it writes them anew.

        So does a last line that a kill left unfinished.
        """
        path = run.folder / "jsonl" / "metrics.jsonl" if self._given is None else Path(self._given)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._run = run.name
        if path.is_file():
            kept = "".join(self._kept(path.read_text(encoding="utf-8"), step))
            partial = path.with_name(f".{path.name}.new")
            partial.write_text(kept, encoding="utf-8")
            partial.replace(path)
        self._file = path.open("a", encoding="utf-8")

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Write a step's finite values."""
        if self._file is None:
            return
        line = {"run": self._run, "step": step, **finite(values)}
        self._file.write(json.dumps(line, allow_nan=False) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _kept(self, text: str, step: int) -> Iterator[str]:
        """The lines of other runs, and of this one before a step."""
        for raw in text.splitlines(keepends=True):
            try:
                line = json.loads(raw)
                later = line["run"] == self._run and line["step"] >= step
            except (ValueError, TypeError, KeyError):
                later = not raw.endswith("\n")
            if not later:
                yield raw if raw.endswith("\n") else f"{raw}\n"
