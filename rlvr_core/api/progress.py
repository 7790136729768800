"""How much of a long piece of work is done, for whoever shows it.

Work announces itself here and a display looks when it draws, so that no count is handed through
the layers between them. Where nobody looks, nothing is progress.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """A piece of work that goes on.

    Attributes:
        unit: What is progress, as in ``completions``.
        done: Returns how many are done; called from any thread.
        total: How many there are; None if that is not known.
    """

    unit: str
    done: Callable[[], int]
    total: int | None


_going_on: list[Work] = []


@contextmanager
def progress(unit: str, done: Callable[[], int], total: int | None = None) -> Iterator[None]:
    """Let displays show how much of the block's work is done; see ``Work`` for the arguments."""
    work = Work(unit, done, total)
    _going_on.append(work)
    try:
        yield
    finally:
        _going_on.remove(work)


def counting(unit: str, items: Iterable[T], total: int | None = None) -> Iterator[T]:
    """Yield the items, and let displays show how many of them were taken."""
    taken = 0
    with progress(unit, lambda: taken, total):
        for item in items:
            yield item
            taken += 1


def work_going_on() -> tuple[Work, ...]:
    """Return the current pieces of work in this process, the newest last."""
    return tuple(_going_on)
