"""The form of the filters: the same as on the page of the rollouts."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Button, Footer, Input, Select, Static

from rlvr_core.api import ConfigError
from rlvr_core.api.services import printable
from rlvr_core.builtin.viewer.choice import Choice
from rlvr_core.builtin.viewer.terminal.rows import one_line

TYPED = {
    "text": "Text contains", "problem": "Problem contains", "step_from": "From step",
    "step_to": "To step", "reward_from": "Reward from", "reward_to": "Reward to",
}  # fmt: skip
LISTED = {
    "group": "Group", "answer": "Completion", "dataset": "Data set", "fate": "Fate",
    "status": "Verdict status", "finish": "Finished by", "marked": "Marked", "sort": "Order",
}  # fmt: skip


class Filters(ModalScreen[Choice | None]):
    """Edits the filters; the result is None if it was cancelled.

    Args:
        choice: The current filters.
        options: The values that each filter offers.
    """

    DEFAULT_CSS = """
    Filters { align: center middle; }
    Filters > VerticalScroll {
        width: 76; max-width: 100%; height: auto; max-height: 100%; border: round $foreground;
        padding: 0 1; scrollbar-size-vertical: 1;
    }
    Filters Horizontal { height: 1; }
    Filters .name { width: 18; }
    Filters Input, Filters Select { width: 1fr; }
    Filters .fault { height: auto; text-style: bold; }
    Filters Input:nocolor:focus { text-style: reverse; }
    Filters Select:nocolor:focus > SelectCurrent { text-style: reverse; }
    Filters Button:nocolor:focus { text-style: reverse; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "leave"),
        Binding("ctrl+s", "take", "show", priority=True),
    ]

    def __init__(self, choice: Choice, options: dict[str, list[str]]) -> None:
        super().__init__()
        self._choice, self._options = choice, options

    def compose(self) -> ComposeResult:
        """Lay out the form."""
        with VerticalScroll(can_focus=False):
            yield Static(
                "Filters  (Tab: next, Enter: list or show, Ctrl+S: show, Escape: leave)",
                markup=False,
            )
            for name, label in TYPED.items():
                with Horizontal():
                    yield Static(label, classes="name", markup=False)
                    yield Input(getattr(self._choice, name), id=name, compact=True)
            for name, label in LISTED.items():
                with Horizontal():
                    yield Static(label, classes="name", markup=False)
                    yield self._list(name)
            yield Button("Show", compact=True)
            yield Static(classes="fault", markup=False)
        yield Footer(compact=True, show_command_palette=False)

    def on_input_submitted(self) -> None:
        """Show what fits."""
        self.action_take()

    def on_button_pressed(self) -> None:
        """Show what fits."""
        self.action_take()

    def action_take(self) -> None:
        """Show what fits, if the form is valid."""
        parameters = {name: self.query_one(f"#{name}", Input).value for name in TYPED}
        for name in LISTED:
            value = self.query_one(f"#{name}", Select).value
            parameters[name] = value if isinstance(value, str) else ""
        try:
            self.dismiss(Choice.of(parameters))
        except ConfigError as error:
            self.query_one(".fault", Static).update(Text(printable(str(error))))

    def action_leave(self) -> None:
        """Leave everything as it is."""
        self.dismiss(None)

    def _list(self, name: str) -> Select[str]:
        now, values = getattr(self._choice, name), list(self._options.get(name, []))
        if now and now not in values:
            values.append(now)
        blank = name != "sort"
        return Select(
            [(Text(one_line(value, 60)), value) for value in values],
            prompt="any",
            allow_blank=blank,
            value=now if now else Select.NULL,
            id=name,
            compact=True,
        )
