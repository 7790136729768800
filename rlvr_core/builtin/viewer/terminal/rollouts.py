"""The rollout browser: the groups that fit the filters, a page at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widgets import DataTable

from rlvr_core.api.services import RunFolder, brief
from rlvr_core.builtin.viewer.choice import PAGE, SORTS, Choice, Found
from rlvr_core.builtin.viewer.reader import Progress, Reader
from rlvr_core.builtin.viewer.terminal.asking import Question
from rlvr_core.builtin.viewer.terminal.export import default_name, export
from rlvr_core.builtin.viewer.terminal.filters import LISTED, TYPED, Filters
from rlvr_core.builtin.viewer.terminal.group import GroupPage
from rlvr_core.builtin.viewer.terminal.page import Page, Table, cell, current, fill
from rlvr_core.builtin.viewer.terminal.problem import ProblemPage


@dataclass(frozen=True, slots=True)
class Listing:
    """What one look at the rollouts found."""

    found: Found
    options: dict[str, list[str]]
    marks: dict[str, dict[str, Any]]
    progress: Progress
    notes: list[str]


class RolloutsPage(Page[Listing]):
    """The groups of a run that fit.

    Args:
        reader: Reads runs.
        folder: The run.
        choice: What is looked for.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "filter"),
        Binding("c", "clear", "all"),
        Binding("s", "sort", "order"),
        Binding("n", "turn(1)", "next page"),
        Binding("N", "turn(-1)", "previous page", show=False),
        Binding("f", "favourite", "favourite"),
        Binding("p", "problem", "problem"),
        Binding("e", "export('jsonl')", "export"),
        Binding("E", "export('sft')", "export SFT"),
    ]

    def __init__(self, reader: Reader, folder: RunFolder, choice: Choice | None = None) -> None:
        super().__init__(reader)
        self._folder = folder
        self._choice = choice or Choice()
        self._listing: Listing | None = None

    def body(self) -> Table:
        """Return the table."""
        table: Table = DataTable(cursor_type="row", zebra_stripes=False)
        for name in ("group", "step", "problem", "passed", "reward", "tokens", "prompt"):
            table.add_column(name, key=name)
        return table

    def read(self) -> Listing:
        """Find the groups that fit."""
        marks, fault = self.reader.marks_read(self._folder)
        progress = self.reader.progress(self._folder)
        found, lists = self.reader.find(self._folder, self._choice, marks)
        return Listing(found, lists, marks, progress, [*progress.notes, *fault])

    def state(self) -> Any:
        """Return a value that changes when groups or marks do."""
        progress = self.reader.progress(self._folder)
        marks, _ = self.reader.marks_read(self._folder)
        return progress.done, progress.complete, marks

    def show(self, found: Listing) -> None:
        """Show a page of groups."""
        self._listing = found
        chosen, progress = found.found, found.progress
        table: Table = self.query_one(DataTable)
        fill(table, [(row["key"], _cells(row, found.marks)) for row in chosen.rows])
        pages = max(1, -(-chosen.total // PAGE))
        title = f"{chosen.total:,} groups"
        if not progress.complete:
            title += f" in what was read so far ({progress.share:.0%})"
        if pages > 1:
            title += f", page {self._page} of {pages}"
        self.head(f"{title} by {self._choice.sort}: {self._folder.path.name}")
        notes = [*self._filters(), *found.notes]
        if not chosen.total:
            some = "No group fits." if progress.groups else "No rollouts were found."
            notes.append(some if progress.complete else f"{some} They are still being read.")
        self.say("\n".join(notes))

    def on_data_table_row_selected(self) -> None:
        """Open the group."""
        if (key := current(self.query_one(DataTable))) is not None:
            self.app.push_screen(GroupPage(self.reader, self._folder, self._choice, key))

    def action_filter(self) -> None:
        """Open the form of the filters."""
        lists = self._listing.options if self._listing else {}
        self.app.push_screen(Filters(self._choice, lists), self._take)

    def action_clear(self) -> None:
        """Clear the filters."""
        self._take(Choice())

    def action_sort(self) -> None:
        """Switch to the next sort order."""
        every = list(SORTS)
        after = every[(every.index(self._choice.sort) + 1) % len(every)]
        self._take(replace(self._choice, sort=after, page="1"))

    def action_turn(self, by: int) -> None:
        """Turn to another page."""
        total = self._listing.found.total if self._listing else 0
        page = min(max(1, self._page + by), max(1, -(-total // PAGE)))
        if page != self._page:
            self._take(replace(self._choice, page=str(page)))

    def action_favourite(self) -> None:
        """Toggle the group as a favourite."""
        key = current(self.query_one(DataTable))
        if key is None or self._listing is None:
            return
        now = bool(self._listing.marks.get(key, {}).get("favourite"))
        marks = self.reader.marks(self._folder)

        def change() -> str:
            marks.change(key, favourite=not now)
            self.app.call_from_thread(self.load, "")
            return ""

        self.in_thread(change)

    def action_problem(self) -> None:
        """Show the group's problem across the steps."""
        key = current(self.query_one(DataTable))
        rows = self._listing.found.rows if self._listing else []
        for row in rows:
            if row["key"] == key:
                self.app.push_screen(ProblemPage(self.reader, self._folder, row["problem"]))

    def action_export(self, kind: str) -> None:
        """Write what fits, on all pages, to a file."""
        what = "Right answers to imitate go to" if kind == "sft" else "What fits goes to"
        choice = replace(self._choice, answer="right") if kind == "sft" else self._choice

        def write(name: str | None) -> None:
            if name:
                self.say("writing …")
                self.in_thread(lambda: export(self.reader, self._folder, choice, kind, name))

        self.app.push_screen(Question(what, default_name(self._folder, kind)), write)

    @property
    def _page(self) -> int:
        return max(1, int(self._choice.page))

    def _take(self, choice: Choice | None) -> None:
        if choice is not None:
            self._choice = choice
            self.load("looking …")

    def _filters(self) -> list[str]:
        active = [
            f"{label.lower()} '{value}'"
            for name, label in {**TYPED, **LISTED}.items()
            if name != "sort" and (value := getattr(self._choice, name))
        ]
        return ["; ".join(active)] if active else []


def _cells(row: Any, marks: Mapping[str, Mapping[str, Any]]) -> list[Text]:
    mark = marks.get(row["key"], {})
    signs = ("★" if mark.get("favourite") else "") + ("✎" if mark.get("note") else "")
    return [
        cell(f"{row['key']} {signs}".rstrip()),
        cell(row["step"]),
        cell(row["problem"], limit=24),
        cell(f"{row['passed']} of {row['judged']}" if row["judged"] else "not judged"),
        cell("" if row["reward"] is None else brief(row["reward"])),
        cell("" if row["tokens"] is None else f"{row['tokens']:.0f}"),
        cell(row["shown"]),
    ]
