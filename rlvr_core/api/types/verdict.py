"""What a verifier says of a completion, and what it took to ask a remote model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from rlvr_core.api.types.problem import Json

VerdictStatus = Literal["ok", "unscorable", "timeout", "error"]


@dataclass(frozen=True, slots=True)
class Usage:
    """What it took to ask a remote model; None is what is not known.

    Attributes:
        requests: Requests made, failed tries included.
        prompt_tokens: Tokens sent, as the server counted them.
        completion_tokens: Tokens received, reasoning that is not shown included.
        seconds: From the first try to the answer, waits between tries included.
        cost: In the currency of the configured price.
    """

    requests: int
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    seconds: float = 0.0
    cost: float | None = None

    def __add__(self, other: Usage) -> Usage:
        """Both together; a count that one of them does not know keeps what the other knows."""
        return Usage(
            self.requests + other.requests,
            _sum(self.prompt_tokens, other.prompt_tokens),
            _sum(self.completion_tokens, other.completion_tokens),
            self.seconds + other.seconds,
            _sum(self.cost, other.cost),
        )


def _sum(one: Any, other: Any) -> Any:
    return other if one is None else one if other is None else one + other


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a verifier says of one completion.

    An exception or a timeout is never a score of 0: ``score`` is None unless status is ``ok``.

    Attributes:
        score: Usually in [0, 1]; None when the completion could not be judged.
        status: ``ok``, ``unscorable`` (the problem or answer cannot be judged), ``timeout``,
            ``error``.
        passed: Whether the answer counts as right; None when the verifier has no such notion.
        parts: Named partial scores, in a fixed order.
        extracted: The text taken as the answer, or None.
        detail: One line for a person: which rule decided, or what went wrong.
        usage: What it took to ask a remote model for it, whatever the status.
    """

    score: float | None
    status: VerdictStatus = "ok"
    passed: bool | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    extracted: str | None = None
    detail: str = ""
    usage: Usage | None = None

    def __post_init__(self) -> None:
        if (self.score is None) == (self.status == "ok"):
            raise ValueError(f"score {self.score!r} does not go with status {self.status!r}")

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Verdict:
        """The verdict that ``dataclasses.asdict`` made this of."""
        usage = data.get("usage")
        return cls(**{**data, "usage": None if usage is None else Usage(**usage)})
