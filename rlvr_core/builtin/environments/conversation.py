"""A conversation in progress, token by token, and the request that it belongs to."""

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
    Json,
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


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch of a conversation that is put aside; see ``Conversation`` for the fields."""

    ids: list[int]
    logprobs: list[float]
    mask: list[bool]
    versions: list[int]
    turns: list[Turn]
    last_turn: int
    version: int
    prompt: tuple[int, ...] | None


@dataclass(eq=False, slots=True)
class Conversation:
    """One conversation. Only one thread uses it at a time.

    Attributes:
        number: Sequence number of the conversation.
        ticket: The request it belongs to.
        index: Its index in that request.
        version: Policy version that sampled its first turn.
        state: Pickled state of the environment; None before the start and after closing.
        versions: Policy version of each token; an environment's tokens have that of the turn they
            answer.
        unsaid: Messages of the environment that are not tokenized yet.
        limit: Token limit of the current turn.
        last_turn: Number of tokens of the model's last turn.
        n_turns: Number of turns written by the model, in all branches.
        prompt: What a branch begins with that does not begin with the request's prompt; such a
            branch is played, but not trained on.
        branch: Number of the current branch; the tokens and turns here are its own.
        heading: The branch that goes on next, and what it begins with if it is new.
        apart: Tokens and turns of the other branches, the one that spoke last at the end.
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
    n_turns: int = 0
    prompt: tuple[int, ...] | None = None
    branch: int = 0
    heading: dict[str, Json] | None = None
    apart: dict[int, Branch] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Text of the model's last turn."""
        return next((t.text for t in reversed(self.turns) if t.role == "assistant"), "")

    @property
    def reply_ids(self) -> list[int]:
        """Tokens of the model's last turn, which must be the end of the conversation."""
        return self.ids[len(self.ids) - self.last_turn :]

    def room(self, *, text_only: bool) -> int:
        """Return the number of tokens left in the conversation.

        Args:
            text_only: Whether the engine returns text only, so that the server counts tokens.
        """
        used = len(self.ids)
        if text_only and self.usage is not None:
            used = self.usage.completion_tokens or 0
        return self.ticket.request.params.max_tokens - used

    def say(self, generation: Generation) -> None:
        """Append a turn of the model."""
        n = len(generation.token_ids)
        if not self.turns:
            self.version = generation.version
        self.ids += generation.token_ids
        self.logprobs += generation.logprobs
        self.mask += [True] * n
        self.versions += generation.token_versions or [generation.version] * n
        self.turns.append(Turn("assistant", generation.text, n))
        self.last_turn = n
        self.n_turns += 1
        if generation.usage is not None:
            self.usage = generation.usage if self.usage is None else self.usage + generation.usage

    def hear(self, messages: Sequence[Message], ids: Sequence[int]) -> None:
        """Append an environment's messages, and the tokens that encode them."""
        self.ids += ids
        self.logprobs += [0.0] * len(ids)
        self.mask += [False] * len(ids)
        self.versions += [self.versions[-1] if self.versions else self.version] * len(ids)
        for index, message in enumerate(messages):
            role: Literal["tool", "user"] = "tool" if message.role == "tool" else "user"
            self.turns.append(Turn(role, message.content, 0 if index else len(ids)))

    def turn_to(self, branch: int) -> None:
        """Put the current branch aside and go on with another one, empty if it is new."""
        if branch == self.branch:
            return
        self.apart.pop(self.branch, None)
        self.apart[self.branch] = Branch(
            self.ids,
            self.logprobs,
            self.mask,
            self.versions,
            self.turns,
            self.last_turn,
            self.version,
            self.prompt,
        )
        self.branch = branch
        found = self.apart.pop(branch, None) or Branch([], [], [], [], [], 0, self.version, None)
        self.ids, self.logprobs, self.mask = found.ids, found.logprobs, found.mask
        self.versions, self.turns, self.last_turn = found.versions, found.turns, found.last_turn
        self.version, self.prompt = found.version, found.prompt

    def as_text(self, *, in_turns: bool) -> tuple[Message, ...]:
        """Return the conversation as chat turns, or as one turn with the whole raw text."""
        asked = self.ticket.request.turns
        if not self.turns:
            return asked
        if not in_turns:
            text = asked[0].content + "".join(turn.text for turn in self.turns)
            return (Message("user", text),)
        # a 'tool' message would have to refer to a call that the server has parsed
        return asked + tuple(
            Message("assistant" if turn.role == "assistant" else "user", turn.text)
            for turn in self.turns
        )

    def whole(self, ended: Ended, detail: str, verdict: Verdict | None) -> Generation:
        """Return the conversation as one generation.

        Args:
            ended: How it ended.
            detail: The failure, if there was one.
            verdict: Verdict of the environment.
        """
        if self.prompt is not None:  # not of this prompt: the last one that is stands for all
            for number, branch in reversed(list(self.apart.items())):
                if branch.prompt is None:
                    self.turn_to(number)
                    break
        if self.apart:
            self.counts["untrained_tokens"] = sum(sum(one.mask) for one in self.apart.values())
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
    """Return the seconds left until the deadline; None without a deadline.

    Raises:
        RunError: If the deadline has passed.
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
