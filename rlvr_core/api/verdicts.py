"""Verdicts on completions and on spans of them; estimates with their uncertainty."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from rlvr_core.api.problems import Json

VerdictStatus = Literal["ok", "unscorable", "timeout", "busy", "error"]
SpanUnit = Literal["token", "turn"]


@dataclass(frozen=True, slots=True)
class Usage:
    """Requests, tokens, time and cost of calls to a remote model; None where unknown.

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
        """Add up; a count that is None on one side keeps the value of the other."""
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
class Span:
    """The score of one stretch of a completion, for advantages per token or per turn.

    Attributes:
        start: First position of the stretch, counted from 0.
        end: Position after its last; greater than ``start``.
        score: A finite number.
        unit: What positions count: ``token``, an index into ``Completion.token_ids``, or
            ``turn``, a turn that the model wrote, as ``Reply.turn`` counts them. A single answer
            is turn 0. An environment does not see tokens and scores turns.

    Raises:
        TypeError: If a position or the score is no number.
        ValueError: If the stretch is empty or negative, or the score is not finite.
    """

    start: int
    end: int
    score: float
    unit: SpanUnit = "token"

    def __post_init__(self) -> None:
        for position in (self.start, self.end):
            if not isinstance(position, int) or isinstance(position, bool):
                raise TypeError(f"a span's start and end are integers, not {position!r}")
        if not isinstance(self.score, int | float):
            raise TypeError(f"a span's score is a number, not {type(self.score).__name__}")
        if self.unit not in ("token", "turn"):
            raise ValueError(f"a span's unit is 'token' or 'turn', not {self.unit!r}")
        if not 0 <= self.start < self.end:
            raise ValueError(f"span [{self.start}, {self.end}) is empty or starts before 0")
        if not math.isfinite(self.score):
            raise ValueError(f"span [{self.start}, {self.end}) has the score {self.score}")


@dataclass(frozen=True, slots=True)
class Verdict:
    """A verifier's result for one completion.

    An exception or a timeout is never a score of 0: ``score`` is None unless status is ``ok``.

    Attributes:
        score: Usually in [0, 1]; None when the completion could not be judged.
        status: ``ok``, ``unscorable`` (the problem or answer cannot be judged), ``timeout``,
            ``busy`` (the machine was too busy to tell; the pool judges it again), ``error``.
        passed: Whether the answer counts as right; None when the verifier has no such notion.
        parts: Named partial scores, in a fixed order.
        extracted: The text taken as the answer, or None.
        detail: One line for a person: which rule decided, or what went wrong.
        usage: What it took to ask a remote model for it, whatever the status.
        spans: Scores of stretches of the completion, in order, of one unit and not overlapping;
            they need not cover it. Only with status ``ok``. They do not change ``score``:
            advantage estimators that work per token or per turn read them.

    Raises:
        TypeError: If ``spans`` holds something else than spans.
        ValueError: If score and status disagree, or spans are out of order, overlap or mix units.
    """

    score: float | None
    status: VerdictStatus = "ok"
    passed: bool | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    extracted: str | None = None
    detail: str = ""
    usage: Usage | None = None
    spans: tuple[Span, ...] = ()

    def __post_init__(self) -> None:
        if (self.score is None) == (self.status == "ok"):
            raise ValueError(f"score {self.score!r} does not go with status {self.status!r}")
        if not self.spans:
            return
        if self.score is None:
            raise ValueError(f"spans do not go with status {self.status!r}")
        for span in self.spans:
            if not isinstance(span, Span):
                raise TypeError(f"spans are Span, not {type(span).__name__}")
        for first, following in itertools.pairwise(self.spans):
            if first.unit != following.unit:
                raise ValueError("the spans of a verdict are of one unit")
            if first.end > following.start:
                raise ValueError(
                    f"spans [{first.start}, {first.end}) and [{following.start}, {following.end}) "
                    f"overlap or are out of order"
                )

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Verdict:
        """Rebuild a verdict from the JSON of its ``dataclasses.asdict``."""
        usage = data.get("usage")
        spans = tuple(Span(**span) for span in data.get("spans", ()))
        return cls(**{**data, "usage": None if usage is None else Usage(**usage), "spans": spans})


Method = Literal["wilson", "t", "jackknife", "none"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its sample size and its 95% interval.

    Attributes:
        value: The estimate; None when nothing was there to take it from.
        n: Independent things (problems) it is an average over.
        low: Lower end; None without an interval.
        high: Upper end.
        method: How the interval was made.
    """

    value: float | None
    n: int
    low: float | None
    high: float | None
    method: Method

    def data(self) -> dict[str, float | int | str | None]:
        """Return the estimate as JSON."""
        return asdict(self)
