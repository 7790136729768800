"""The base of the screens: reads in a thread, shows errors, and watches for changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, TypeVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import ActiveBinding, Binding, BindingType
from textual.screen import ModalScreen, Screen
from textual.widget import Widget
from textual.widgets import DataTable, Footer, Static
from textual.worker import Worker, get_current_worker

from rlvr_core.api import RlvrError
from rlvr_core.api.services import printable
from rlvr_core.builtin.viewer.reader import Reader
from rlvr_core.builtin.viewer.terminal.rows import one_line

LOOK_EVERY = 1.0
"""Seconds between two looks for changes."""
_NAMES = {"slash": "/", "question_mark": "?", "right": "→", "left": "←"}
Found = TypeVar("Found")
Table = DataTable[Text]


class Page(Screen[None], Generic[Found]):
    """A screen with a title, a body, and a status line.

    Args:
        reader: Reads runs.
    """

    CSS_PATH = None
    DEFAULT_CSS = """
    Page .head { height: 1; text-style: bold; }
    Page .status { height: auto; max-height: 3; }
    Page DataTable { height: 1fr; scrollbar-size: 1 1; }
    Page DataTable:nocolor > .datatable--cursor { text-style: reverse; }
    Page DataTable:nocolor:focus > .datatable--cursor { text-style: reverse bold; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,backspace", "back", "back"),
        Binding("q", "app.quit", "quit"),
        Binding("question_mark", "keys", "keys"),
    ]
    live = True
    """Whether it is read again when records have changed."""

    def __init__(self, reader: Reader) -> None:
        super().__init__()
        self.reader = reader
        self._state: Any = None
        self._reading: Worker[None] | None = None
        self._looking: Worker[None] | None = None

    def compose(self) -> ComposeResult:
        """Lay out the screen."""
        yield Static(classes="head", markup=False)
        yield self.body()
        yield Static(classes="status", markup=False)
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        """Begin to read."""
        self.load()
        if self.live:
            self.set_interval(LOOK_EVERY, self._look)

    def body(self) -> Widget:
        """Return the widget between title and footer."""
        raise NotImplementedError

    def read(self) -> Found:
        """Read what is shown; runs in a thread."""
        raise NotImplementedError

    def state(self) -> Any:
        """Return something that differs when the records have changed; runs in a thread."""
        return None

    def show(self, found: Found) -> None:
        """Show what was read."""
        raise NotImplementedError

    def load(self, working: str = "reading …") -> None:
        """Read again and show the result; an earlier read that is still running is dropped."""
        self.say(working)
        self._reading = self.run_worker(self._read, thread=True, exclusive=True, group="read")

    def head(self, text: str) -> None:
        """Set the title."""
        self.query_one(".head", Static).update(Text(one_line(text), no_wrap=True))

    def say(self, text: str = "") -> None:
        """Set the status line."""
        self.query_one(".status", Static).update(Text(printable(text)))

    def action_back(self) -> None:
        """Go to the previous screen; on the first one, do nothing."""
        if len(self.app.screen_stack) > 2:
            self.app.pop_screen()

    def action_keys(self) -> None:
        """Show what every key does."""
        self.app.push_screen(Keys(dict(self.active_bindings)))

    def in_thread(self, work: Callable[[], str]) -> None:
        """Run ``work`` in a thread, then show the message it returns, or why it failed."""

        def carry_out() -> None:
            self.app.call_from_thread(self.say, _attempt(work)[1])

        self.run_worker(carry_out, thread=True, group="work")

    def _read(self) -> None:
        worker = get_current_worker()
        seen: list[Any] = []

        def work() -> str:
            seen.extend((self.state(), self.read()))
            return ""

        fine, message = _attempt(work)
        if worker.is_cancelled:
            return
        self.app.call_from_thread(self._shown, seen if fine else None, message)

    def _shown(self, seen: list[Any] | None, message: str) -> None:
        if not self.is_attached:
            return
        self.say(message)
        if seen is not None:
            self._state = seen[0]
            self.show(seen[1])

    def _look(self) -> None:
        busy = any(one is not None and one.is_running for one in (self._reading, self._looking))
        if self.app.screen is self and not busy:
            self._looking = self.run_worker(self._compare, thread=True, group="look")

    def _compare(self) -> None:
        seen: list[Any] = []
        fine, _ = _attempt(lambda: seen.append(self.state()) or "")  # type: ignore[func-returns-value]
        if fine and seen[0] != self._state:
            self.app.call_from_thread(self._changed)

    def _changed(self) -> None:
        if self.is_attached:
            self._reading = self.run_worker(self._read, thread=True, exclusive=True, group="read")


class Keys(ModalScreen[None]):
    """Shows what every key of a screen does, until one is pressed.

    Args:
        bindings: The keys of that screen.
    """

    DEFAULT_CSS = """
    Keys { align: center middle; }
    Keys > Static { width: auto; height: auto; border: round $foreground; padding: 0 1; }
    """

    def __init__(self, bindings: Mapping[str, ActiveBinding]) -> None:
        super().__init__()
        self._keys_by_action: dict[str, list[str]] = {}
        for one in bindings.values():
            if text := one.binding.description:
                shown = _NAMES.get(one.binding.key, one.binding.key)
                self._keys_by_action.setdefault(text.lower(), []).append(shown)

    def compose(self) -> ComposeResult:
        """Lay out the list."""
        lines = [f"{', '.join(keys):<14}{text}" for text, keys in self._keys_by_action.items()]
        yield Static(Text("\n".join(lines[:20])))

    def on_key(self, event: events.Key) -> None:
        """Go back."""
        event.stop()
        self.dismiss(None)


def fill(table: Table, cells: list[tuple[str, list[Text]]]) -> None:
    """Fill a table, each row with a key; the cursor stays on its row."""
    before = None
    if table.row_count and table.is_valid_row_index(table.cursor_row):
        before = table.ordered_rows[table.cursor_row].key.value
    offset = table.scroll_y
    table.clear()
    for key, row in cells:
        table.add_row(*row, key=key)
    keys = [key for key, _ in cells]
    if before in keys:
        table.move_cursor(row=keys.index(before), scroll=False)
        table.scroll_to(y=offset, animate=False)


def current(table: Table) -> str | None:
    """Return the key of the row with the cursor."""
    if not table.is_valid_row_index(table.cursor_row):
        return None
    return table.ordered_rows[table.cursor_row].key.value


def cell(value: object, style: str = "", limit: int = 200) -> Text:
    """Return a cell: text, never markup."""
    return Text(one_line(str(value), limit), style=style, no_wrap=True)


def _attempt(work: Callable[[], str]) -> tuple[bool, str]:
    """Run ``work``; return whether it succeeded, and its message or the error's."""
    try:
        return True, work()
    except RlvrError as error:
        return False, str(error)
    except Exception as error:  # damaged records: the browser goes on, as a server does
        return False, f"this cannot be shown: {type(error).__name__}: {error}"
