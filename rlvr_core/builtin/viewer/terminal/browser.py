"""The terminal application: starts at the table of runs, or at a single run."""

from __future__ import annotations

import os
import sys
from typing import ClassVar

from textual.app import App
from textual.binding import BindingType

from rlvr_core.api import MachineError
from rlvr_core.builtin.viewer.index import Cache
from rlvr_core.builtin.viewer.indexing import Follower
from rlvr_core.builtin.viewer.reader import Reader
from rlvr_core.builtin.viewer.runs import Runs
from rlvr_core.builtin.viewer.terminal.run import RunPage
from rlvr_core.builtin.viewer.terminal.runs import RunsPage


class Browser(App[None]):
    """Browses runs by the keyboard.

    Args:
        runs: The runs to show.
        cache: The folder of indexes.
    """

    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = []

    def __init__(self, runs: Runs, cache: Cache) -> None:
        # only the terminal's own colours can be switched off completely
        super().__init__(ansi_color=True if "NO_COLOR" in os.environ else None)
        if self.no_color:
            self.theme = "ansi-dark"
        self._runs = runs
        self.reader = Reader(runs, Follower(cache))

    def on_mount(self) -> None:
        """Show the first screen."""
        if self._runs.alone:
            self.push_screen(RunPage(self.reader, self._runs.open(self._runs.root.name)))
        else:
            self.push_screen(RunsPage(self.reader))


def browse(runs: Runs, cache: Cache) -> None:
    """Browse until ``q`` is pressed.

    Raises:
        MachineError: If stdin or stdout is not a terminal.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM") == "dumb":
        raise MachineError(
            "rlvr view --terminal needs a terminal, and this is none",
            remedy="rlvr show prints a run; rlvr view serves it to a web browser",
        )
    browser = Browser(runs, cache)
    try:
        browser.run()
    finally:
        browser.reader.follower.close()
        cache.close()
