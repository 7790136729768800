"""One sampled answer, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rlvr_core.api.types.conversation import Transcript
from rlvr_core.api.types.verdict import Span, SpanUnit, Usage

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
        finish_reason: ``stop``, ``length``, ``abort`` (not an answer, T20) or ``error``.
        version: Policy version read before generation began.
        usage: What it took to ask, of a remote engine; its completions have no tokens here.
        transcript: The turns of a conversation; None of a single answer.
        token_versions: Policy version of each token, where weights changed on the way and the
            engine knows; else empty, and ``version`` stands for all.

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
    def n_tokens(self) -> int | None:
        """Length in tokens; of a remote engine's answer as its server counted them, if it did."""
        return len(self.token_ids) if self.usage is None else self.usage.completion_tokens

    @property
    def n_sampled(self) -> int:
        """Tokens that the model wrote: all but those of an environment."""
        return sum(self.loss_mask)

    def span_limit(self, unit: SpanUnit) -> int:
        """Positions that a span of this unit may cover: tokens, or turns that the model wrote."""
        if unit == "token":
            return len(self.token_ids)
        return 1 if self.transcript is None else self.transcript.n_turns

    def spans_in_tokens(self, spans: Sequence[Span]) -> tuple[Span, ...]:
        """The same stretches as token positions, in order.

        A stretch of turns goes from the first token of its first turn to the last token of its
        last one; what an environment said in between is inside it, and out of ``loss_mask``. A
        turn without tokens, as of a remote engine, gives no span.

        Raises:
            ValueError: If a span ends after the completion does.
        """
        turns = self._turns_in_tokens()
        found = []
        for span in spans:
            limit = self.span_limit(span.unit)
            if span.end > limit:
                raise ValueError(
                    f"span [{span.start}, {span.end}) ends after the completion, which has "
                    f"{limit} {span.unit}s"
                )
            if span.unit == "token":
                found.append(span)
                continue
            start, end = turns[span.start][0], turns[span.end - 1][1]
            if start < end:
                found.append(Span(start, end, span.score))
        return tuple(found)

    def _turns_in_tokens(self) -> list[tuple[int, int]]:
        """First token of each turn that the model wrote, and the one after its last."""
        if self.transcript is None:
            return [(0, len(self.token_ids))]
        found, position = [], 0
        for turn in self.transcript.turns:
            length = turn.n_tokens if self.token_ids else 0
            if turn.role == "assistant":
                found.append((position, position + length))
            position += length
        return found

    @classmethod
    def from_text(cls, text: str) -> Completion:
        """A completion known only by its text, for verifying stored answers."""
        return cls((), (), (), (), text, "stop")
