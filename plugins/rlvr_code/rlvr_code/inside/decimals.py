"""The context of decimal numbers, which program and tests share as they would in one process."""

from __future__ import annotations

import sys
from typing import Any

_FIELDS = ("prec", "rounding", "Emin", "Emax")


class Decimals:
    """What one process and the other know of each other's context."""

    def __init__(self) -> None:
        self._known: tuple[Any, ...] | None = None

    def news(self) -> tuple[Any, ...] | None:
        """The current context, if the other process does not know it; None if it does."""
        decimal: Any = sys.modules.get("decimal")
        if decimal is None:
            return None
        first, now = (
            tuple(getattr(one, name) for name in _FIELDS)
            for one in (decimal.DefaultContext, decimal.getcontext())
        )
        before = first if self._known is None else self._known
        self._known = now
        return None if now == before else now

    def learn(self, news: tuple[Any, ...] | None) -> None:
        """Take over the context of the other process."""
        if news is None:
            return
        import decimal

        now = decimal.getcontext()
        for name, value in zip(_FIELDS, news, strict=True):
            setattr(now, name, value)
        self._known = tuple(news)
