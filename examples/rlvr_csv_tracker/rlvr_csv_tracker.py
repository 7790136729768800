"""A tracker that writes a few metrics as a table."""

import csv
from collections.abc import Mapping
from pathlib import Path

from rlvr_core.api import ComponentConfig, Registrar, TrackedRun, hookimpl


class Table:
    """Writes ``metrics.csv`` into the run's folder, a row for each step."""

    class Config(ComponentConfig):
        """Options of ``csv_tracker``."""

        columns: list[str] = ["reward/mean", "loss"]
        """Metrics to write; one that a step does not have is left empty."""

    def __init__(self, config: Config) -> None:
        self._columns = config.columns
        self._path = Path()

    def start(self, run: TrackedRun, step: int) -> None:
        """Begin the table; of a resumed run, keep the rows before its first step."""
        self._path = run.folder / "metrics.csv"
        rows: list[list[str]] = []
        if self._path.is_file():
            with self._path.open(newline="") as file:
                rows = [row for row in list(csv.reader(file))[1:] if int(row[0]) < step]
        with self._path.open("w", newline="") as file:
            csv.writer(file).writerows([["step", *self._columns], *rows])

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Write a row."""
        with self._path.open("a", newline="") as file:
            csv.writer(file).writerow([step, *(values.get(name, "") for name in self._columns)])

    def close(self) -> None:
        """Nothing: every row was written when it came."""


@hookimpl
def register_trackers(registrar: Registrar) -> None:
    """Make it ``csv_tracker/table``."""
    registrar.add("table", "rlvr_csv_tracker:Table", summary="A few metrics as a CSV file.")
