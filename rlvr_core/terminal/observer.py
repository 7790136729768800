"""Base of the displays of a run's progress."""

from __future__ import annotations

from collections.abc import Sequence

from rlvr_core.api import RunFinished
from rlvr_core.api.components import RunObserver


class Display(RunObserver):
    """Shows the progress of a run; text is printed literally, never as markup."""

    def finish(self, lines: Sequence[str]) -> None:
        """Show the last lines and restore the terminal; safe to call twice."""

    def run_finished(self, event: RunFinished) -> None:
        """Report how the run ended, and where its folder is."""
        path = event.run_dir
        reason = [event.reason] if event.reason else []
        self.finish([*reason, f"{event.outcome}: {path}", f"see it: rlvr show {path}"])

    def close(self) -> None:
        """Restore the terminal, however the run ended; see ``finish``."""
        self.finish([])


class Silent(Display):
    """A display that shows nothing."""
