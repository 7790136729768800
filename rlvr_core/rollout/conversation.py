"""A conversation as it is played, and the request that it is for."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from rlvr_core.errors import RunError
from rlvr_core.protocols import Generation
from rlvr_core.types import (
    GenerationRequest,
    Message,
    Problem,
    Turn,
    Usage,
)

Suffix = Callable[[Problem, Sequence[int], Sequence[Message]], tuple[int, ...]]
"""Tokens behind a reply; see ``rlvr_core.data.suffix``."""


@dataclass(eq=False, slots=True)
class Ticket:
    """A request for conversations about one problem."""

    request: GenerationRequest
    environment: str
    problem: bytes
    stop: tuple[str, ...]
    finished: list[Generation | None]
    settled: bool = False
    future: Future[tuple[Generation, ...]] = field(default_factory=Future)


@dataclass(eq=False, slots=True)
class Conversation:
    """One conversation; touched by one thread at a time, as one thing happens to it at a time.

    Attributes:
        number: Order in which conversations came.
        ticket: What it is for.
        index: Its place there.
        version: The policy's under which its first turn was sampled.
        state: The environment's, pickled; None before it is started and when it is closed.
        versions: The policy's, of each token; an environment's have that of the turn they answer.
        unsaid: What the environment said that has no tokens yet.
        limit: Tokens that the turn being written may have.
    """

    number: int
    ticket: Ticket
    index: int
    version: int
    state: bytes | None = None
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    mask: list[bool] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    unsaid: tuple[Message, ...] = ()
    limit: int = 0
    last_turn: int = 0
    usage: Usage | None = None

    @property
    def n_turns(self) -> int:
        """Turns that the model has written."""
        return sum(turn.role == "assistant" for turn in self.turns)

    @property
    def text(self) -> str:
        """The last thing that the model wrote."""
        return next((t.text for t in reversed(self.turns) if t.role == "assistant"), "")


def seconds_left(deadline: float | None, timeout: float | None) -> float | None:
    """Seconds left.

    Raises:
        RunError: If there are none.
    """
    if deadline is None:
        return None
    left = deadline - time.monotonic()
    if left <= 0:
        raise RunError(
            f"conversations were not finished within {timeout:g} s",
            remedy="raise run.deadline, or lower environment.max_turns or environment.timeout",
        )
    return left
