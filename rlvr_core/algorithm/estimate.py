"""Runs an advantage estimator over a step's groups, and checks its output."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from rlvr_core.api import (
    AdvantageEstimator,
    AdvantageOutput,
    JudgedStep,
    PluginError,
    RlvrError,
    RunError,
)
from rlvr_core.record.metrics import misuse, reported

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rlvr_core.api import Group


LARGEST = 1e100
"""Largest reward, so that squares of rewards are finite."""


@dataclass(frozen=True, slots=True)
class Advantages:
    """Checked advantages of N completions.

    Attributes:
        row_N: One number a completion; with advantages per token their mean over the completion's
            loss tokens. 0 for a completion without a reward.
        token_N: One number a token, 0 outside the loss mask; None with one number a completion.
        metrics: Numbers of the estimator, by full name.
    """

    row_N: NDArray[np.float64]
    token_N: tuple[NDArray[np.float64], ...] | None
    metrics: Mapping[str, float]


def judged_step(
    groups: Sequence[Group],
    weights: Sequence[float],
    kl_N: Sequence[NDArray[np.float64]] | None = None,
) -> JudgedStep:
    """Make the arrays that an estimator is given.

    Args:
        groups: The groups of the step.
        weights: Weight of each reward at the step.
        kl_N: See ``JudgedStep``.

    Raises:
        RunError: If a reward is infinite.
    """
    groups = [_joined(group) for group in groups]
    members = [(place, member) for place, g in enumerate(groups) for member in g.members]
    rewards = [_number(member.reward) for _, member in members]
    refuse_infinite(rewards)
    scores = [[_number(v.score) for v in member.verdicts.values()] for _, member in members]
    score_NK = np.full((len(members), len(weights)), np.nan)
    for place, given in enumerate(scores):
        score_NK[place, : len(given)] = given
    return JudgedStep(
        groups=tuple(groups),
        group_N=np.array([place for place, _ in members], dtype=np.int64),
        reward_N=np.array(rewards, dtype=np.float64),
        score_NK=score_NK,
        weights=tuple(weights),
        kl_N=None if kl_N is None else tuple(kl_N),
    )


def refuse_infinite(rewards: Sequence[float]) -> None:
    """Raise ``RunError`` if a reward is infinite or its square would be; NaN is none."""
    infinite = [place for place, reward in enumerate(rewards) if abs(reward) > LARGEST]
    if infinite:
        raise RunError(
            f"infinite reward of completions {infinite[:8]} of the step",
            remedy=f"a reward must be a number of at most {LARGEST:g}; a verifier that cannot "
            "score an answer returns score None",
        )


@dataclass(frozen=True, slots=True)
class Estimator:
    """An advantage estimator under its name.

    Attributes:
        name: Full name, for messages.
        component: The estimator.
    """

    name: str
    component: AdvantageEstimator

    def of(self, step: JudgedStep) -> Advantages:
        """Return the checked advantages of a step.

        Raises:
            PluginError: If the estimator fails, or gives something else than one finite number for
                each scored completion (or each of its loss tokens).
        """
        try:
            output = self.component(step)
        except (RlvrError, KeyboardInterrupt):
            raise
        except BaseException as error:  # a component may even call sys.exit
            raise self._fault(f"failed: {type(error).__name__}: {error}") from error
        if not isinstance(output, AdvantageOutput):
            raise self._fault(f"gave {type(output).__name__}, not an AdvantageOutput")
        metrics = reported(self.component, output.metrics, "advantage/")
        if self.component.traits.per_token:
            return self._per_token(step, output, metrics)
        row_N = self._array(output.advantages, "advantages")
        if row_N.shape != step.reward_N.shape:
            raise self._fault(
                f"gave advantages of shape {row_N.shape} for {len(step.reward_N)} completions"
            )
        row_N = np.where(step.scorable_N, row_N, 0.0)
        self._finite(row_N, step, range(len(row_N)))
        return Advantages(row_N, None, metrics)

    def _per_token(
        self, step: JudgedStep, output: AdvantageOutput, metrics: dict[str, float]
    ) -> Advantages:
        members, scorable_N = step.members, step.scorable_N
        try:
            given = list(output.advantages)
        except TypeError:
            given = []
        if len(given) != len(members):
            raise self._fault(
                f"gave advantages for {len(given)} completions of {len(members)}; its traits say "
                f"per_token, so it must give one sequence a completion"
            )
        rows, tokens = np.zeros(len(members)), []
        for place, (value, member) in enumerate(zip(given, members, strict=True)):
            mask_T = np.array(member.completion.loss_mask, dtype=bool)
            advantage_T = self._array(value, f"advantages[{place}]")
            if advantage_T.shape != mask_T.shape:
                raise self._fault(
                    f"gave advantages of shape {advantage_T.shape} for completion {place} of "
                    f"problem {step.groups[step.group_N[place]].problem.id}, which has "
                    f"{len(mask_T)} tokens"
                )
            advantage_T = np.where(mask_T & scorable_N[place], advantage_T, 0.0)
            self._finite(advantage_T, step, [place] * len(advantage_T))
            tokens.append(advantage_T)
            rows[place] = advantage_T.sum() / max(1, mask_T.sum())
        return Advantages(rows, tuple(tokens), metrics)

    def _array(self, value: object, what: str) -> NDArray[np.float64]:
        try:
            if isinstance(value, torch.Tensor):
                wide = torch.promote_types(value.dtype, torch.float64)
                value = value.detach().to(wide).cpu().numpy()
            array = np.asarray(value)
            if np.iscomplexobj(array):
                raise TypeError("they are complex")
            return array.astype(np.float64)
        except (TypeError, ValueError, RuntimeError) as error:
            raise self._fault(f"must give {what} as numbers: {error}") from error

    def _finite(self, values: NDArray[np.float64], step: JudgedStep, places: Sequence[int]) -> None:
        for place in np.flatnonzero(~np.isfinite(values))[:1]:
            problem = step.groups[step.group_N[places[place]]].problem
            raise self._fault(
                f"gave the advantage {values[place]} to completion {places[place]} of the step "
                f"(problem {problem.id})"
            )

    def _fault(self, what: str) -> PluginError:
        return misuse(self.component, what, "give what rlvr docs losses says of AdvantageOutput")


def _joined(group: Group) -> Group:
    if not any(member.completion.branches for member in group.members):
        return group
    joined = [replace(member, completion=member.completion.joined()) for member in group.members]
    return replace(group, members=tuple(joined))


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)
