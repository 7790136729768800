"""The live display: current progress of a run, or what a command waits for, redrawn in place.

It starts before the run's plan, while configuration and data are read, and is drawn by a thread, so
that it updates whatever the run waits for.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TextIO, cast

from rlvr_core.api import RunStarted, StepFinished
from rlvr_core.record.text import printable
from rlvr_core.terminal.display import Lines, steps_of
from rlvr_core.terminal.enduring import Enduring
from rlvr_core.terminal.facts import step_facts
from rlvr_core.terminal.pace import Pace, Waits, span

if TYPE_CHECKING:
    from rich.console import Group
    from rich.text import Text

BAR = 24
"""Width of the bar in columns."""


class Live(Lines):
    """A progress bar with the newest numbers under it.

    Args:
        stream: The output stream.
        total_steps: Steps of the whole run; 0 if they are not known before it starts.
        clock: Returns seconds that only grow.
    """

    def __init__(
        self, stream: TextIO, total_steps: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        from rich.console import Console
        from rich.live import Live as RichLive
        from rich.text import Text

        self._text = Text
        self._console = Console(file=cast("TextIO", Enduring(stream)), highlight=False)
        self._pace, self._waits = Pace(clock, total_steps), Waits(clock)
        self._facts = ""
        self._live = RichLive(
            get_renderable=self.drawn,
            console=self._console,
            refresh_per_second=4,
            transient=True,  # the lines before the plan disappear
        )

    def drawn(self) -> Group:
        """Return the current content."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        wait_line = self._line(self._waits.text, "dim")
        if not self._planned:
            return Group(wait_line)
        pace, left = self._pace, self._pace.left
        row = Table.grid(padding=(0, 1))
        row.add_row(
            "steps",
            ProgressBar(total=max(1, pace.total), completed=pace.done, width=BAR),
            f"{pace.done}/{pace.total or '?'}",
            self._line(f"elapsed {span(pace.elapsed)},"),
            self._line("left unknown yet" if left is None else f"left about {span(left)}"),
        )
        return Group(row, self._line(self._facts), wait_line)

    def plan(self, lines: Sequence[str]) -> None:
        """Print the lines and begin the bar."""
        self._live.transient = False
        super().plan(lines)
        self._live.start()

    def phase(self, label: str) -> None:
        """Show the label under the bar, and after a moment the time it takes."""
        self._waits.begin(printable(label))
        if not self._planned and not self._finished:
            self._live.start(refresh=True)

    def run_started(self, event: RunStarted) -> None:
        """Set the number of steps, and the first one."""
        self._pace.total = self._pace.total or steps_of(event.config)
        self._pace.reach(event.step)

    def step_finished(self, event: StepFinished) -> None:
        """Move the bar and show the step's numbers."""
        self._facts = "  ".join(step_facts(event.metrics, event.timing))
        self._pace.reach(event.step + 1)

    def _end(self) -> None:
        self._waits.begin("")
        self._live.stop()

    def _line(self, text: str, style: str = "") -> Text:
        return self._text(text, style=style, no_wrap=True, overflow="ellipsis")

    def _print(self, *lines: str) -> None:
        for line in lines:
            self._console.print(self._text(printable(line)), soft_wrap=True)


@contextlib.contextmanager
def waiting(label: str) -> Iterator[Callable[[str], None] | None]:
    """Show a wait on a terminal, and clear it afterwards.

    Args:
        label: The first label.

    Yields:
        A function that sets the next label, from any thread; None if stderr is not a terminal.
    """
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield None
        return
    with contextlib.closing(Live(sys.stderr, 0)) as shown:
        shown.phase(label)
        yield shown.phase
