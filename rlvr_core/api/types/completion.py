"""One sampled answer, token by token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rlvr_core.api.types.conversation import Transcript
from rlvr_core.api.types.verdict import Usage

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

    @classmethod
    def from_text(cls, text: str) -> Completion:
        """A completion known only by its text, for verifying stored answers."""
        return cls((), (), (), (), text, "stop")
