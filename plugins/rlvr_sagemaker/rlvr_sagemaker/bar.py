"""How far an upload is, for whoever waits for it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def uploading(total: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal, and nothing elsewhere; what is yielded takes the bytes that are there.

    Args:
        total: Bytes in all.
    """
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    console, shown = Console(stderr=True), sys.stderr.isatty()
    with Progress(*columns, TimeRemainingColumn(), console=console, disable=not shown) as bar:
        task = bar.add_task("upload", total=total)
        yield lambda n: bar.advance(task, n)
