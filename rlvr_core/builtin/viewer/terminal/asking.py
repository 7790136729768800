"""A one-line input dialog over the current screen."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from rlvr_core.builtin.viewer.terminal.rows import one_line


class Question(ModalScreen[str | None]):
    """Prompts for one line; the result is None if it was cancelled.

    Args:
        what: The label.
        answer: The initial text.
    """

    DEFAULT_CSS = """
    Question { align: center bottom; }
    Question > Vertical { height: auto; border: round $foreground; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "leave")]

    def __init__(self, what: str, answer: str = "") -> None:
        super().__init__()
        self._what, self._answer = what, answer

    def compose(self) -> ComposeResult:
        """Lay out the question."""
        with Vertical():
            yield Static(Text(f"{one_line(self._what)}  (Enter: take it, Escape: leave)"))
            yield Input(one_line(self._answer, 20_000), compact=True, select_on_focus=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Answer."""
        self.dismiss(event.value)

    def action_leave(self) -> None:
        """Leave without an answer."""
        self.dismiss(None)
