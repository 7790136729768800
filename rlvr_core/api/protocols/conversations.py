"""What lets problems be played as conversations of several turns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from rlvr_core.api.protocols.engine import Engine
from rlvr_core.api.types import Json, Message, Problem

Suffix = Callable[[Problem, Sequence[int], Sequence[Message]], tuple[int, ...]]
"""Tokens of an environment's messages, with those of the chat template around them, given the
problem and the tokens of the reply that they answer."""


class Conversations(Protocol):
    """How the problems of a run or an evaluation are generated: in one turn or in several."""

    def present(self, problem: Problem) -> Problem:
        """The problem as the model is to see it: prompt, tools and stop strings."""

    def check(self, problem: Problem) -> None:
        """Refuse a problem that cannot be played.

        Raises:
            DataError: If its environment lacks something in its spec.
        """

    def play(self, engine: Engine, suffix: Suffix, *, background: bool) -> Engine:
        """An engine that plays requests about these problems and passes others on.

        Args:
            engine: What generates a turn; a ``BackgroundEngine`` if ``background``.
            suffix: Tokens between two turns of the model.
            background: Whether generation goes on while training runs.
        """

    def lines(self) -> list[str]:
        """For a person: what plays, and within which limits."""

    def record(self, problems: Iterable[Problem]) -> dict[str, Json] | None:
        """What decides how conversations about these problems go; None if there are none."""
