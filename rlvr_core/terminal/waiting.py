"""Shows on a terminal what a command waits for, while it waits."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from rlvr_core.terminal.live import Live


@contextmanager
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
    with closing(Live(sys.stderr, 0)) as shown:
        shown.phase(label)
        yield shown.phase
