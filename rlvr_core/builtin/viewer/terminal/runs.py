"""The table of runs."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from textual.binding import Binding, BindingType
from textual.widgets import DataTable

from rlvr_core.api.services import brief
from rlvr_core.builtin.viewer.reader import Reader, span
from rlvr_core.builtin.viewer.runs import SORTS, Line, chosen
from rlvr_core.builtin.viewer.terminal.asking import Question
from rlvr_core.builtin.viewer.terminal.page import Page, Table, cell, current, fill
from rlvr_core.builtin.viewer.terminal.run import RunPage


class RunsPage(Page[list[Line]]):
    """Every run with its outcome and newest numbers."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "filter"),
        Binding("o", "outcome", "outcome"),
        Binding("s", "sort", "order"),
        Binding("r", "turn", "reverse"),
    ]

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self._lines: list[Line] = []
        self._text, self._outcome, self._sort, self._down = "", "", "started", True

    def body(self) -> Table:
        """Return the table."""
        table: Table = DataTable(cursor_type="row", zebra_stripes=False)
        for name in ("name", "outcome", "steps", "reward", "pass", "started", "time"):
            table.add_column(name, key=name)
        return table

    def read(self) -> list[Line]:
        """Read the lines."""
        return list(self.reader.runs.lines())

    def state(self) -> Any:
        """Return the lines without their durations, which change with time alone."""
        lines = [{**line.data(), "seconds": None} for line in self.reader.runs.lines()]
        return json.dumps(lines)

    def show(self, found: list[Line]) -> None:
        """Show the lines that fit."""
        self._lines = found
        fitting = chosen(found, self._text, self._outcome, self._sort, down=self._down)
        fill(
            self.query_one(DataTable),
            [
                (
                    line.name,
                    [
                        cell(line.name, limit=60),
                        cell(line.outcome, "bold" if line.outcome == "running" else ""),
                        cell(f"{line.steps:,}"),
                        cell("" if line.reward is None else brief(line.reward)),
                        cell("" if line.pass_rate is None else brief(line.pass_rate)),
                        cell(line.started[:16].replace("T", " ")),
                        cell(span(line.seconds)),
                    ],
                )
                for line in fitting
            ],
        )
        filters = f", name with '{self._text}'" if self._text else ""
        filters += f", {self._outcome}" if self._outcome else ""
        order = f"{self._sort}{'' if self._down else ', reversed'}"
        self.head(
            f"{len(fitting)} of {len(found)} runs by {order}{filters}: {self.reader.runs.root}"
        )
        if not found:
            self.say("There are no runs here yet. Start one: rlvr run CONFIG")
        else:
            faults = [f"{line.name}: {line.fault}" for line in fitting if line.fault]
            self.say("\n".join(faults[:2]))

    def on_data_table_row_selected(self) -> None:
        """Open the run."""
        key = current(self.query_one(DataTable))
        line = next((line for line in self._lines if line.name == key), None)
        if line is None or key is None:
            return
        if line.outcome == "refused":
            self.say(line.fault)
            return
        self.app.push_screen(RunPage(self.reader, self.reader.runs.open(key)))

    def action_filter(self) -> None:
        """Ask for a part of a name."""
        self.app.push_screen(Question("Name contains", self._text), self._filtered)

    def _filtered(self, answer: str | None) -> None:
        if answer is not None:
            self._text = answer
            self.show(self._lines)

    def action_outcome(self) -> None:
        """Filter by the next outcome; after the last one, show all again."""
        every = ["", *sorted({line.outcome for line in self._lines})]
        place = every.index(self._outcome) if self._outcome in every else 0
        self._outcome = every[(place + 1) % len(every)]
        self.show(self._lines)

    def action_sort(self) -> None:
        """Sort by the next column."""
        every = list(SORTS)
        self._sort = every[(every.index(self._sort) + 1) % len(every)]
        self.show(self._lines)

    def action_turn(self) -> None:
        """Reverse the order."""
        self._down = not self._down
        self.show(self._lines)
