"""A conversation as it is played, token by token, and the request that it is for."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Literal

from rlvr_core.api import (
    Ended,
    Generation,
    GenerationRequest,
    Message,
    RunError,
    Transcript,
    Turn,
    Usage,
    Verdict,
)


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
        last_turn: Tokens of the last turn that the model wrote.
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

    @property
    def reply_ids(self) -> list[int]:
        """Its tokens; the model's turn is the last thing in the conversation."""
        return self.ids[len(self.ids) - self.last_turn :]

    def room(self, *, text_only: bool) -> int:
        """Tokens that are left of the whole.

        Args:
            text_only: Whether the engine gives text, and the server counts.
        """
        used = len(self.ids)
        if text_only and self.usage is not None:
            used = self.usage.completion_tokens or 0
        return self.ticket.request.params.max_tokens - used

    def say(self, generation: Generation) -> None:
        """Put a turn of the model behind what there is."""
        n = len(generation.token_ids)
        if not self.turns:
            self.version = generation.version
        self.ids += generation.token_ids
        self.logprobs += generation.logprobs
        self.mask += [True] * n
        self.versions += generation.token_versions or [generation.version] * n
        self.turns.append(Turn("assistant", generation.text, n))
        self.last_turn = n
        if generation.usage is not None:
            self.usage = generation.usage if self.usage is None else self.usage + generation.usage

    def hear(self, messages: Sequence[Message], ids: Sequence[int]) -> None:
        """Put an environment's messages behind what there is, and the tokens that stand for all."""
        self.ids += ids
        self.logprobs += [0.0] * len(ids)
        self.mask += [False] * len(ids)
        self.versions += [self.versions[-1] if self.versions else self.version] * len(ids)
        for index, message in enumerate(messages):
            role: Literal["tool", "user"] = "tool" if message.role == "tool" else "user"
            self.turns.append(Turn(role, message.content, 0 if index else len(ids)))

    def as_text(self, *, in_turns: bool) -> tuple[Message, ...]:
        """All of it, as chat turns or as one turn with the whole raw text."""
        asked = self.ticket.request.turns
        if not self.turns:
            return asked
        if not in_turns:
            text = asked[0].content + "".join(turn.text for turn in self.turns)
            return (Message("user", text),)
        # a message as 'tool' would have to name a call that the server has read
        return asked + tuple(
            Message("assistant" if turn.role == "assistant" else "user", turn.text)
            for turn in self.turns
        )

    def whole(self, ended: Ended, detail: str, verdict: Verdict | None) -> Generation:
        """The conversation as one generation.

        Args:
            ended: How it ended.
            detail: What went wrong, if something did.
            verdict: The environment's.
        """
        transcript = Transcript(
            self.ticket.environment, tuple(self.turns), ended, detail, verdict, dict(self.counts)
        )
        failed = transcript.failed
        return Generation(
            token_ids=tuple(self.ids),
            logprobs=tuple(self.logprobs),
            text=self.text,
            finish_reason="error" if failed else "stop" if ended == "done" else "length",
            version=self.version,
            usage=self.usage,
            loss_mask=tuple(self.mask),
            transcript=transcript,
            token_versions=tuple(self.versions) if {*self.versions} - {self.version} else (),
        )


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
            remedy="raise run.timeout, or lower environment.max_turns or environment.timeout",
        )
    return left
