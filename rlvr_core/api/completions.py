"""One sampled answer, token by token, and the conversation that it may come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Literal

from rlvr_core.api.problems import Json, Message
from rlvr_core.api.verdicts import Span, SpanUnit, Usage, Verdict

Ended = Literal["done", "max_turns", "turn_length", "budget", "timeout", "error"]
"""How a conversation ended: by its environment's word; at a limit (turns, tokens of one turn, room
for another one); or by a failure of the environment, which is no fault of the model's."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a conversation after the prompt.

    Attributes:
        role: ``assistant`` for what the model wrote, else who the environment spoke as.
        text: Text of the turn, without special tokens.
        n_tokens: Number of its tokens in the completion. Those of the template between two turns
            of the model are counted at the first message between them.
    """

    role: Literal["assistant", "tool", "user"]
    text: str
    n_tokens: int


@dataclass(frozen=True, slots=True)
class Transcript:
    """A conversation between the model and an environment.

    Attributes:
        environment: Full name of the environment.
        turns: The turns after the prompt, in order.
        ended: Why it ended.
        detail: What went wrong, if something did.
        verdict: The environment's verdict; None when it leaves that to verifiers.
        counts: What the environment counted, such as tool calls.
    """

    environment: str
    turns: tuple[Turn, ...]
    ended: Ended
    detail: str = ""
    verdict: Verdict | None = None
    counts: Mapping[str, float] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Whether the environment failed: such a conversation is judged by nobody."""
        return self.ended in ("timeout", "error")

    @property
    def n_turns(self) -> int:
        """Number of turns that the model wrote."""
        return sum(turn.role == "assistant" for turn in self.turns)

    def loss_mask(self, length: int) -> tuple[bool, ...]:
        """Return a mask that is True for the tokens that the model wrote.

        Args:
            length: Tokens of the completion; 0 of a remote engine's, which has none.
        """
        if length == 0:
            return ()
        return tuple(turn.role == "assistant" for turn in self.turns for _ in range(turn.n_tokens))

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Transcript:
        """Rebuild a transcript from the JSON of its ``dataclasses.asdict``."""
        verdict = None if data["verdict"] is None else Verdict.from_json(data["verdict"])
        turns = tuple(Turn(**turn) for turn in data["turns"])
        return cls(**{**data, "turns": turns, "verdict": verdict})


@dataclass(frozen=True, slots=True)
class Reply:
    """The model's text of one turn, as an environment gets it; never cut off.

    Attributes:
        text: Without special tokens.
        turn: Turns that the model wrote before it.
        turns_left: Turns it may write after it.
        prompt_tokens: Number of tokens that it was sampled behind; 0 if not known.
        completion_tokens: Number of tokens that it was sampled as; 0 if not known.
    """

    text: str
    turn: int
    turns_left: int
    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Observation:
    """An environment's answer to a reply, after which the model goes on.

    Attributes:
        messages: At least one, each as ``tool`` or ``user``. A chat template frames them; where
            the prompt is raw text they are put behind the reply as they are.
        counts: Numbers to add to the counts of the conversation, such as ``{"tool_calls": 1}``.
    """

    messages: tuple[Message, ...]
    counts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Done:
    """Returned by an environment when the conversation is over.

    Attributes:
        verdict: Its verdict; None leaves that to the verifiers of ``rewards``.
        counts: As in ``Observation``.
    """

    verdict: Verdict | None = None
    counts: Mapping[str, float] = field(default_factory=dict)


FinishReason = Literal["stop", "length", "abort", "error"]


@dataclass(frozen=True, slots=True)
class Completion:
    """One sampled answer.

    Attributes:
        prompt_ids: Token ids the model was given.
        token_ids: Token ids it produced, the end-of-sequence token included when it produced one.
        logprobs: Log-probability of each token under the distribution really sampled from.
        loss_mask: Which tokens the loss may train; tool output and the like is False.
        text: ``token_ids`` decoded, without special tokens; of a conversation the last turn that
            the model wrote. What a verifier reads.
        finish_reason: ``stop``, ``length``, ``abort`` (not an answer) or ``error``.
        version: Policy version read before generation began.
        usage: What it took to ask, of a remote engine; its completions have no tokens here.
        transcript: The turns of a conversation; None of a single answer.
        token_versions: Policy version of each token, where weights changed on the way and the
            engine knows; else empty, and ``version`` stands for all.
        branches: The other histories of a conversation that was edited or begun anew, each a row
            of its own in training, with the reward of this completion. Each sampled token is in the
            loss of one row: those of a beginning that rows share in that of the first of ``rows``,
            and context in the others.

    Raises:
        ValueError: If the per-token sequences differ in length.
    """

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    loss_mask: tuple[bool, ...]
    text: str
    finish_reason: FinishReason
    version: int = 0
    usage: Usage | None = None
    transcript: Transcript | None = None
    token_versions: tuple[int, ...] = ()
    branches: tuple[Completion, ...] = ()

    def __post_init__(self) -> None:
        lengths = (len(self.token_ids), len(self.logprobs), len(self.loss_mask))
        if len(set(lengths)) != 1:
            raise ValueError(f"token_ids, logprobs and loss_mask differ in length: {lengths}")
        if self.token_versions and len(self.token_versions) != len(self.token_ids):
            raise ValueError(
                f"token_versions and token_ids differ in length: {len(self.token_versions)} and "
                f"{len(self.token_ids)}"
            )

    @property
    def rows(self) -> tuple[Completion, ...]:
        """The sequences that it is trained as: itself, then its branches."""
        return (self, *self.branches)

    @property
    def n_tokens(self) -> int | None:
        """Length in tokens; of a remote engine's answer as its server counted them, if it did."""
        return len(self.token_ids) if self.usage is None else self.usage.completion_tokens

    @property
    def n_sampled(self) -> int:
        """Number of tokens that the model wrote, in all branches: not those of an environment."""
        return sum(sum(row.loss_mask) for row in self.rows)

    def joined(self) -> Completion:
        """Return it with the tokens of its branches behind its own, one sequence for estimators."""
        names, rows = ("token_ids", "logprobs", "loss_mask"), self.rows
        joined: Any = {n: tuple(chain.from_iterable(getattr(r, n) for r in rows)) for n in names}
        return replace(self, **joined, token_versions=(), branches=())

    def span_limit(self, unit: SpanUnit) -> int:
        """Number of positions that a span may cover: tokens, or turns that the model wrote."""
        if unit == "token":
            return len(self.token_ids)
        return 1 if self.transcript is None else self.transcript.n_turns

    def spans_in_tokens(self, spans: Sequence[Span]) -> tuple[Span, ...]:
        """Convert spans of turns or tokens to spans of token positions, in order.

        A stretch of turns goes from the first token of its first turn to the last token of its
        last one; what an environment said in between is inside it, and out of ``loss_mask``. A
        turn without tokens, as of a remote engine, gives no span.

        Raises:
            ValueError: If a span ends after the completion does.
        """
        turns = self._turns_in_tokens()
        converted = []
        for span in spans:
            limit = self.span_limit(span.unit)
            if span.end > limit:
                raise ValueError(
                    f"span [{span.start}, {span.end}) ends after the completion, which has "
                    f"{limit} {span.unit}s"
                )
            if span.unit == "token":
                converted.append(span)
                continue
            start, end = turns[span.start][0], turns[span.end - 1][1]
            if start < end:
                converted.append(Span(start, end, span.score))
        return tuple(converted)

    def _turns_in_tokens(self) -> list[tuple[int, int]]:
        """First token of each turn that the model wrote, and the one after its last."""
        if self.transcript is None:
            return [(0, len(self.token_ids))]
        ranges, position = [], 0
        for turn in self.transcript.turns:
            length = turn.n_tokens if self.token_ids else 0
            if turn.role == "assistant":
                ranges.append((position, position + length))
            position += length
        return ranges

    @classmethod
    def from_text(cls, text: str) -> Completion:
        """Make a completion of a text alone, to verify stored answers."""
        return cls((), (), (), (), text, "stop")
