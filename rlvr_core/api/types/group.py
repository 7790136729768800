"""The judged completions of a problem, and what is made of many."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rlvr_core.api.types.completion import Completion
from rlvr_core.api.types.problem import Json, Problem
from rlvr_core.api.types.verdict import Span, Verdict


@dataclass(frozen=True, slots=True)
class Judged:
    """A completion with every verdict on it and the reward made of them.

    Attributes:
        completion: The completion.
        verdicts: One per reward of the config, by reward name, in config order.
        reward: The shaped number training uses; None when it cannot be scored.
        passed: The outcome, apart from shaping; None when unknown.
        spans: Scores of stretches of the completion, in token positions, each multiplied by the
            weight of the reward that gave it. Spans of different rewards may overlap: the score
            of a token is their sum. Empty where no verifier scores parts.
    """

    completion: Completion
    verdicts: Mapping[str, Verdict]
    reward: float | None
    passed: bool | None
    spans: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """The judged completions of one problem drawn under one policy version."""

    problem: Problem
    members: tuple[Judged, ...]
    version: int


@dataclass(frozen=True, slots=True)
class EvalReport:
    """What an evaluation found.

    Attributes:
        metrics: Numbers by name; ``accuracy`` is the headline where there is one.
        n: Problems evaluated.
        basis: What the numbers rest on and the specification does not say, as a benchmark's hash
            and the versions of libraries; kept with the result.
    """

    metrics: Mapping[str, float]
    n: int
    basis: Mapping[str, Json] = field(default_factory=dict)
