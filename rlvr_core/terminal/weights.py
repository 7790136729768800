"""Counts loaded weights of a model, by the progress bar of transformers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager
from typing import Any

from rlvr_core.api.progress import counting

LOADING = "Loading weights"
"""The label of that bar."""


@contextmanager
def counted_weights() -> Iterator[None]:
    """Report them as progress within the block, if transformers is loaded."""
    logging: Any = sys.modules.get("transformers.utils.logging")
    if logging is None:
        yield
        return

    class Counted(logging.EmptyTqdm):  # type: ignore[misc]
        def __iter__(self) -> Iterator[Any]:
            items = self._iterator
            total = len(items) if isinstance(items, Sized) else None
            return counting("weights", items, total)

    def bar(factory: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        loads = options.get("desc") == LOADING and factory is logging.EmptyTqdm
        return (Counted if loads else factory)(*args, **options)

    before = logging.set_tqdm_hook(bar)
    try:
        yield
    finally:
        logging.set_tqdm_hook(before)
