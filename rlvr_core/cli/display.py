"""What shows a run to whoever watches. Displays that show something stand in a built-in room."""

from __future__ import annotations

from collections.abc import Sequence

from rlvr_core.api import RunFinished
from rlvr_core.api.watching import RunObserver
from rlvr_core.host.host import Host


class Display(RunObserver):
    """What shows a run to whoever watches; text is shown as it is, never as markup."""

    def finish(self, lines: Sequence[str]) -> None:
        """Show the last lines and give the terminal back; safe to call twice."""

    def run_finished(self, event: RunFinished) -> None:
        """Say how the run ended, and where it is."""
        path = event.run_dir
        reason = [event.reason] if event.reason else []
        self.finish([*reason, f"{event.outcome}: {path}", f"see it: rlvr show {path}"])

    def close(self) -> None:
        """See ``finish``: whatever happens, the terminal is given back."""
        self.finish([])


class Silent(Display):
    """Shows nothing."""


def make_display(kind: str | None, total_steps: int, host: Host) -> Display:
    """The display of this kind.

    Args:
        kind: ``live``, ``plain``, ``jsonl`` or ``none``; None for ``live`` on a terminal and
            ``plain`` elsewhere.
        total_steps: Steps of the whole run.
        host: The plugins.
    """
    if kind == "none":
        return Silent()
    display: Display = host.service("core/displays")(kind, total_steps)
    return display
