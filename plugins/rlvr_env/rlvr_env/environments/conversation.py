"""A conversation in progress, token by token, and the request that it belongs to."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Literal

from rlvr_core.api import (
    Completion,
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


@dataclass(eq=False, slots=True)
class Branch:
    """One history of a conversation, token by token.

    Attributes:
        version: Policy version that sampled its first turn.
        prompt: Tokens it begins with, if not with the request's prompt.
        ids: The tokens after the prompt.
        logprobs: Log-probs of the tokens; 0 for tokens of an environment.
        versions: Policy version of each token; an environment's tokens have that of the turn they
            answer.
        turns: The turns that these tokens encode.
        spoken: Number in the conversation of each turn of the model; a branch copied from another
            has the same numbers.
    """

    version: int
    prompt: tuple[int, ...] | None = None
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    spoken: list[int] = field(default_factory=list)

    @property
    def text(self) -> str:
        """Text of the model's last turn."""
        return next((t.text for t in reversed(self.turns) if t.role == "assistant"), "")

    @property
    def reply_ids(self) -> list[int]:
        """Tokens of the model's last turn, which must be the end of the branch."""
        return self.ids[len(self.ids) - self.turns[-1].n_tokens :] if self.turns else []

    def upto(self, replies: int) -> Branch:
        """Return a new branch that copies this one up to and including reply ``replies``."""
        ends = [n for n, turn in enumerate(self.turns, start=1) if turn.role == "assistant"]
        turns = self.turns[: ends[replies - 1]]
        n = sum(turn.n_tokens for turn in turns)
        return Branch(
            self.version,
            self.prompt,
            self.ids[:n],
            self.logprobs[:n],
            self.versions[:n],
            turns,
            self.spoken[:replies],
        )

    def sampled(self, elsewhere: Container[int]) -> tuple[bool, ...]:
        """Return which tokens the model sampled, except in turns with a number in ``elsewhere``."""
        numbers = iter(self.spoken)
        mask: list[bool] = []
        for turn in self.turns:
            sampled = turn.role == "assistant" and next(numbers) not in elsewhere
            mask += [sampled] * turn.n_tokens
        return tuple(mask)

    @property
    def token_versions(self) -> tuple[int, ...]:
        """See ``Completion``."""
        return tuple(self.versions) if {*self.versions} - {self.version} else ()


@dataclass(eq=False, slots=True)
class Conversation:
    """One conversation. Only one thread uses it at a time.

    Attributes:
        number: Sequence number of the conversation.
        ticket: The request it belongs to.
        index: Index of the completion in that request.
        now: The current branch.
        state: Pickled state of the environment; None before the start and after closing.
        counts: The environment's counters.
        unsaid: Messages of the environment that are not tokenized yet.
        limit: Token limit of the current turn.
        usage: Usage of a remote engine.
        n_turns: Number of turns written by the model, in all branches.
        branch: Number of the current branch.
        heading: The next branch, and its beginning if it is new.
        branches: All branches by number, in the order in which they began.
    """

    number: int
    ticket: Ticket
    index: int
    now: Branch
    state: bytes | None = None
    counts: Counter[str] = field(default_factory=Counter)
    unsaid: tuple[Message, ...] = ()
    limit: int = 0
    usage: Usage | None = None
    n_turns: int = 0
    branch: int = 0
    heading: dict[str, Json] | None = None
    branches: dict[int, Branch] = field(init=False)

    def __post_init__(self) -> None:
        self.branches = {0: self.now}

    @property
    def n_tokens(self) -> int:
        """Number of tokens of the current branch, its prompt included."""
        prompt = self.now.prompt
        return len(self.ticket.request.prompt_ids if prompt is None else prompt) + len(self.now.ids)

    def room(self, *, text_only: bool) -> int:
        """Return the number of tokens left in the current branch.

        The limit counts a branch's own prompt in place of the problem's.

        Args:
            text_only: Whether the engine returns text only, so that the server counts tokens.
        """
        request, prompt = self.ticket.request, self.now.prompt
        used = len(self.now.ids) + max(0, len(prompt or ()) - len(request.prompt_ids))
        if text_only and self.usage is not None:
            used = self.usage.completion_tokens or 0
        return request.params.max_tokens - used

    def say(self, generation: Generation) -> None:
        """Append a turn of the model."""
        now, n = self.now, len(generation.token_ids)
        if not now.spoken:
            now.version = generation.version
            now.versions = [now.version] * len(now.ids)
        now.ids += generation.token_ids
        now.logprobs += generation.logprobs
        now.versions += generation.token_versions or [generation.version] * n
        now.turns.append(Turn("assistant", generation.text, n))
        now.spoken.append(self.n_turns)
        self.n_turns += 1
        if generation.usage is not None:
            self.usage = generation.usage if self.usage is None else self.usage + generation.usage

    def hear(self, messages: Sequence[Message], ids: Sequence[int]) -> None:
        """Append an environment's messages, and the tokens that encode them."""
        now = self.now
        now.ids += ids
        now.logprobs += [0.0] * len(ids)
        now.versions += [now.versions[-1] if now.versions else now.version] * len(ids)
        for index, message in enumerate(messages):
            role: Literal["tool", "user"] = "tool" if message.role == "tool" else "user"
            now.turns.append(Turn(role, message.content, 0 if index else len(ids)))

    def turn_to(self, branch: int, fork: tuple[int, int] | None) -> None:
        """Switch to another branch.

        Args:
            branch: Number of the branch.
            fork: For a new branch that copies another: the number of that one, and how many of its
                replies to copy. A new branch without ``fork`` is empty.
        """
        if branch not in self.branches:
            new_branch = (
                Branch(self.now.version) if fork is None else self.branches[fork[0]].upto(fork[1])
            )
            self.branches[branch] = new_branch
        self.branch, self.now = branch, self.branches[branch]

    def as_text(self, *, in_turns: bool) -> tuple[Message, ...]:
        """Return the current branch as chat turns, or as one turn with the whole raw text."""
        prompt_turns, turns = self.ticket.request.turns, self.now.turns
        if not turns:
            return prompt_turns
        if not in_turns:
            text = prompt_turns[0].content + "".join(turn.text for turn in turns)
            return (Message("user", text),)
        # a 'tool' message would have to refer to a call that the server has parsed
        return prompt_turns + tuple(
            Message("assistant" if turn.role == "assistant" else "user", turn.text)
            for turn in turns
        )

    def whole(self, ended: Ended, detail: str, verdict: Verdict | None) -> Generation:
        """Return the conversation as one generation.

        The judged branch is the one with the latest turn of those that begin with the problem's
        prompt. All its sampled tokens are trained; of each other branch, only sampled tokens that
        no earlier branch trains.

        Args:
            ended: How it ended.
            detail: The failure, if there was one.
            verdict: Verdict of the environment.
        """
        ours = [n for n, branch in self.branches.items() if branch.spoken and branch.prompt is None]
        first = max(ours, key=lambda n: self.branches[n].spoken[-1], default=0)
        judged = self.branches[first]
        others = tuple(self._others(first, ended))
        if others:
            self.counts["sampled_turns"] = self.n_turns
        transcript = Transcript(
            self.ticket.environment, tuple(judged.turns), ended, detail, verdict, dict(self.counts)
        )
        return Generation(
            token_ids=tuple(judged.ids),
            logprobs=tuple(judged.logprobs),
            text=judged.text,
            finish_reason=_finish_reason(transcript),
            version=judged.version,
            usage=self.usage,
            loss_mask=judged.sampled(()),
            transcript=transcript,
            token_versions=judged.token_versions,
            branches=others,
        )

    def _others(self, first: int, ended: Ended) -> Iterator[Completion]:
        """Yield the other branches with turns of the model, masking tokens trained earlier."""
        trained = {*self.branches[first].spoken}
        for number, branch in self.branches.items():
            if {*branch.spoken} <= trained:
                continue
            how = ended if number == self.branch else "done"
            transcript = Transcript(self.ticket.environment, tuple(branch.turns), how)
            yield Completion(
                prompt_ids=branch.prompt or self.ticket.request.prompt_ids,
                token_ids=tuple(branch.ids),
                logprobs=tuple(branch.logprobs),
                loss_mask=branch.sampled(trained),
                text=branch.text,
                finish_reason=_finish_reason(transcript),
                version=branch.version,
                transcript=transcript,
                token_versions=branch.token_versions,
            )
            trained |= {*branch.spoken}


def _finish_reason(transcript: Transcript) -> Literal["stop", "length", "error"]:
    if transcript.failed:
        return "error"
    return "stop" if transcript.ended == "done" else "length"


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
