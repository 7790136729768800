"""Context variables of the program: each context of the tests has one in the program's process.

The tests' tasks, threads and copies of contexts are numbered as they are made. What the tests ask
from one is done in the program's context of the same number, which was copied from that of its
maker at that time, as Python does with its own.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterable
from typing import Any

_MAIN, _NONE = 0, -1
_LATER = ("task", "anext", "aenter", "aexit", "turn", "cancel", "result")
"""Operations on tasks of the program's event loop, which enters their contexts by itself."""


class Numbers:
    """Numbers of the tests' contexts, in the tests' process."""

    def __init__(self) -> None:
        self._number: contextvars.ContextVar[int] = contextvars.ContextVar("number")
        self._next = _MAIN + 1
        self._copied: list[tuple[int, int]] = []
        self._copy = contextvars.copy_context

    def watch(self) -> None:
        """Number the copies of contexts that tests make from now on."""
        contextvars.copy_context = self.copy

    def copy(self) -> contextvars.Context:
        """Copy the current context, and number the copy."""
        made = self._copy()
        made.run(self._new, self.here())
        return made

    def here(self) -> int:
        """The number of the current context."""
        found = self._number.get(None)
        if found is not None:
            return found
        if threading.current_thread() is threading.main_thread():
            return _MAIN
        return self._new(_NONE)  # a thread begins with an empty one

    def news(self) -> list[tuple[int, int]]:
        """Contexts made since this was called last, each with the number of what it copies."""
        news, self._copied = self._copied, []
        return news

    def _new(self, copied: int) -> int:
        number, self._next = self._next, self._next + 1
        self._copied.append((number, copied))
        self._number.set(number)
        return number


class Contexts:
    """The program's contexts, by the numbers of the tests'."""

    def __init__(self) -> None:
        self._made: dict[int, contextvars.Context] = {}
        self._entered: set[int] = set()
        self.of_task: contextvars.Context | None = None

    def learn(self, news: Iterable[tuple[int, int]]) -> None:
        """Make the contexts that the tests have made."""
        for number, copied in news:
            self._made[number] = contextvars.Context() if copied < 0 else self._get(copied).copy()

    def run(self, number: int, do: Callable[..., Any], asked: dict[str, Any], *given: Any) -> Any:
        """Do what the tests ask, in the context of theirs."""
        if number in self._entered:  # they were called by what runs in it
            return do(asked, *given)
        context = self._get(number)
        if asked["op"] in _LATER:
            self.of_task = context
            return do(asked, *given)
        self._entered.add(number)
        try:
            return context.run(do, asked, *given)
        finally:
            self._entered.discard(number)

    def _get(self, number: int) -> contextvars.Context:
        if number not in self._made:
            self._made[number] = contextvars.copy_context()
        return self._made[number]


CONTEXTS = Contexts()
