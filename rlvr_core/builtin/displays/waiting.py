"""What a command waits for, shown on a terminal for as long as it does."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from rlvr_core.builtin.displays.live import Live


@contextmanager
def waiting(label: str) -> Iterator[Callable[[str], None] | None]:
    """Show what is waited for on a terminal, and take it away afterwards.

    Args:
        label: What is waited for first.

    Yields:
        What takes the next label, from any thread; None where stderr is no terminal.
    """
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield None
        return
    with closing(Live(sys.stderr, 0)) as shown:
        shown.phase(label)
        yield shown.phase
