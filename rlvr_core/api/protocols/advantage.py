"""What an advantage estimator is given and gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from numpy import bool_, float64, int64
    from numpy.typing import NDArray

    from rlvr_core.api.traits import AdvantageTraits
    from rlvr_core.api.types import Group, Judged


@dataclass(frozen=True, slots=True)
class JudgedStep:
    """The judged groups of one step, all ranks. N completions in the order of the groups.

    The arrays hold what most estimators need; everything else (verdicts with their parts and spans,
    problem ids and tags, policy versions) is in ``groups``.

    Attributes:
        groups: What the step trains on.
        group_N: Place of each completion's group in ``groups``.
        reward_N: The weighted sum of each completion's scores; NaN if it could not be scored.
        score_NK: Score of each of K rewards; NaN where there is none.
        weights: Weight of each of the K rewards at this step.
        kl_N: Per completion, log policy - log reference of each of its tokens at the step's start,
            0 where the loss mask is off; None unless the estimator's traits ask for it.
    """

    groups: tuple[Group, ...]
    group_N: NDArray[int64]
    reward_N: NDArray[float64]
    score_NK: NDArray[float64]
    weights: tuple[float, ...]
    kl_N: tuple[NDArray[float64], ...] | None = None

    @property
    def members(self) -> list[Judged]:
        """The N completions with their verdicts."""
        return [member for group in self.groups for member in group.members]

    @property
    def scorable_N(self) -> NDArray[bool_]:  # noqa: N802
        """True where a completion has a reward."""
        scorable: NDArray[bool_] = self.reward_N == self.reward_N
        return scorable


@dataclass(frozen=True, slots=True)
class AdvantageOutput:
    """The advantages of a step.

    Attributes:
        advantages: One number per completion, shape (N,); or, with ``traits.per_token``, N
            sequences of one number per token. What it gives for a completion without a reward, or
            for a token outside the loss mask, is not used.
        metrics: Numbers for the step's line, recorded as ``advantage/<name>``.
    """

    advantages: Sequence[float] | Sequence[Sequence[float]] | NDArray[float64] | Any
    metrics: Mapping[str, float] = field(default_factory=dict)


@runtime_checkable
class AdvantageEstimator(Protocol):
    """A pure function of a step's judged groups; the same in every process."""

    @property
    def traits(self) -> AdvantageTraits:
        """What it needs and gives."""

    def __call__(self, step: JudgedStep) -> AdvantageOutput:
        """The advantages of every completion."""
