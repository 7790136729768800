"""The screen of one run: what ``rlvr show`` says of it."""

from __future__ import annotations

from typing import Any, ClassVar

from textual.binding import Binding, BindingType

from rlvr_core.api.services import RunFolder, load_host
from rlvr_core.builtin.viewer.reader import Progress, Reader
from rlvr_core.builtin.viewer.runs import state
from rlvr_core.builtin.viewer.terminal.page import Page
from rlvr_core.builtin.viewer.terminal.rollouts import RolloutsPage
from rlvr_core.builtin.viewer.terminal.rows import block
from rlvr_core.builtin.viewer.terminal.text_view import TextView

Parts = tuple[str, Progress, list[tuple[str, list[str]]]]


class RunPage(Page[Parts]):
    """A run's figures, learning curve, ledger and findings.

    Args:
        reader: Reads runs.
        folder: The run.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter,b", "rollouts", "browse rollouts")]

    def __init__(self, reader: Reader, folder: RunFolder) -> None:
        super().__init__(reader)
        self._folder = folder

    def body(self) -> TextView:
        """Return the text."""
        return TextView()

    def read(self) -> Parts:
        """Read the run's records."""
        view, progress = self.reader.runs.view(self._folder), self.reader.progress(self._folder)
        width = max(40, min(100, self.app.size.width - 2))
        return view.outcome, progress, load_host().service("core/run-lines")(view, width)

    def state(self) -> Any:
        """Return a value that changes when its records do."""
        progress = self.reader.progress(self._folder)
        return state(self._folder), progress.done, progress.complete

    def show(self, found: Parts) -> None:
        """Show the run."""
        outcome, progress, parts = found
        self.head(f"{self._folder.path.name}: {outcome}, {describe_progress(progress)}")
        blocks = []
        for title, lines in parts:
            blocks += [block(title, "title"), block("\n".join(lines)), block("")]
        self.query_one(TextView).show(blocks)
        self.say("\n".join(progress.notes))

    def action_rollouts(self) -> None:
        """Browse its rollouts."""
        self.app.push_screen(RolloutsPage(self.reader, self._folder))


def describe_progress(progress: Progress) -> str:
    """Return the number of groups read, and the share of the rollouts while incomplete."""
    groups = f"{progress.groups:,} groups"
    return (
        groups if progress.complete else f"{groups} so far ({progress.share:.0%} of the rollouts)"
    )
