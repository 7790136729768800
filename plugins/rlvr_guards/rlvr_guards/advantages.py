"""Guard ``guards/advantages``: advantages follow from the rewards of their group.

Those of the core's estimators are computed again by plain formulas, one completion at a time. And
at the first update, where every ratio is 1, the gradient raises tokens of positive advantage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from rlvr_core.api import BaseGuard, Metric, NoConfig, RowKey, row_key

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rlvr_core.api import Group, StepView

    Vector = NDArray[np.float64]

TOLERANCE = 1e-3
"""Largest error of an advantage, as a share of it, or of 0.01."""

LEAST_SIGNS = 16
"""Tokens whose gradient is compared with the sign of their advantage, at least."""

Place = tuple[int, int]
"""Group and completion."""


class Advantages(BaseGuard):
    """Advantages are those of the rewards."""

    name = "guards/advantages"
    reports = (
        Metric("advantages/error", "Largest error of an advantage of the step.", ""),
        Metric(
            "advantages/ascent",
            "Share of tokens whose gradient goes the way of their advantage.",
            "share",
        ),
    )

    def __init__(self, config: NoConfig) -> None:
        super().__init__(config)
        self._expected: dict[Place, float] | None = None
        self._places: dict[RowKey, list[Place]] = {}

    def step_begins(self, groups: Sequence[Group], step: int, version: int) -> None:
        """Compute the advantages of the step."""
        self.begin(step)
        self._places, self._expected = {}, None
        estimator = self.context.trainer.objective.estimator
        if estimator is None or not self.due:
            return
        component, options = estimator.component, self.context.config.advantage.with_
        formula = None
        if type(component).__module__.startswith("rlvr_core."):
            formula = FORMULAS.get(type(component).__name__)
        combined = options.get("combine", "sum_then_normalise") != "sum_then_normalise"
        if formula is None or combined:
            self.say_once(
                f"does not compute advantages again: {type(component).__name__} has no formula here"
                + " with these options" * combined
            )
            return
        for place, group in enumerate(groups):
            for number, member in enumerate(group.members):
                for row in member.completion.rows:
                    self._places.setdefault(row_key(place, row), []).append((place, number))
        rewards = [[member.reward for member in group.members] for group in groups]
        scale = self.context.trainer.advantage_scale
        self._expected = {
            (place, number): value * scale.get(groups[place].problem.id, 1.0)
            for place, values in enumerate(formula(rewards))
            for number, value in enumerate(values)
        }

    def update_begins(self) -> None:
        """Compare what the losses were given."""
        if not self.due:
            return
        view, given = self.view, dict[RowKey, list[float]]()
        for row in view.rows() if self._expected is not None else ():
            if any(row.mask):
                given.setdefault(row.key, []).append(row.advantage)
        signs = _signs(view) if view.update == 0 else (0, 0)
        whole: dict[RowKey, list[float]] = {}
        agree = against = 0
        for share, (up, down) in self.context.ranks.gather((given, signs)):
            agree, against = agree + up, against + down
            for key, values in share.items():
                whole.setdefault(key, []).extend(values)
        if self._expected is not None:
            self._compare(whole, self._expected)
        if agree + against >= LEAST_SIGNS:
            self.numbers["advantages/ascent"] = agree / (agree + against)
            if agree < against:
                raise self.fault(
                    view.step,
                    f"the gradient lowers tokens of positive advantage and raises those of "
                    f"negative: {against} of {agree + against} tokens go the wrong way (band: "
                    "less than half)",
                    "the loss has the wrong sign, or reads its advantages of other rows: look at "
                    "the loss and at what it makes of advantage_B",
                )

    def _compare(self, given: Mapping[RowKey, list[float]], due: Mapping[Place, float]) -> None:
        pairs: list[tuple[Place, float, float]] = []
        for key, values in given.items():
            places = self._places[key]
            wanted = sorted(due[place] for place in places if place in due)
            if len(wanted) == len(values):
                pairs += [(places[0], a, e) for a, e in zip(sorted(values), wanted, strict=True)]
            elif wanted:  # an equal completion was left out: which one is not known
                nearest = [min((abs(e - a), e) for e in wanted)[1] for a in values]
                pairs += [(places[0], a, e) for a, e in zip(values, nearest, strict=True)]
        errors = [abs(a - e) / max(abs(e), 0.01) for _, a, e in pairs]
        if not errors:
            return
        self.numbers["advantages/error"] = max(abs(a - e) for _, a, e in pairs)
        wrong = [number for number, error in enumerate(errors) if not error <= TOLERANCE]
        if not wrong:
            return
        place, used, right = pairs[errors.index(max(errors))]
        group = self.view.groups[place[0]]
        raise self.fault(
            self.view.step,
            f"{len(wrong)} of {len(pairs)} rows have another advantage than their rewards give: "
            f"problem {group.problem.id}, completion {place[1]} with reward "
            f"{group.members[place[1]].reward}: {used:.4g} was used, {right:.4g} is right "
            f"(tolerance {TOLERANCE:g} of it)",
            "look for a sign, a scale, another baseline, or values of other completions",
        )


def _signs(view: StepView) -> tuple[int, int]:
    """Count tokens whose gradient ascends their advantage, and those where it descends.

    Only where one loss learns from advantages, and at tokens where its KL pulls hardly at all: at
    the first update every ratio is 1. The estimator k1 pulls every token alike, however near the
    reference is.
    """
    agree = against = 0
    for seen in view.seen:
        batch, gradient_BT = seen.batch, seen.gradient_BT
        traits = seen.losses[0][0].traits
        if len(seen.losses) != 1 or gradient_BT is None or traits.teacher:
            continue
        if batch.ref_logp_BT is not None and traits.kl_estimator == "k1":
            continue
        advantage_BT = batch.advantage_BT
        if advantage_BT is None:
            advantage_BT = batch.advantage_B[:, None].expand_as(gradient_BT)
        chosen_BT = batch.mask_BT & (advantage_BT.abs() > 1e-3) & (gradient_BT != 0)
        if batch.entropy_mask_BT is not None:
            # with top_entropy the other tokens have the gradient of the KL alone
            chosen_BT = chosen_BT & batch.entropy_mask_BT
        if batch.ref_logp_BT is not None:
            chosen_BT = chosen_BT & ((batch.ref_logp_BT - batch.logp_BT).abs() < 0.01)
        product_N = torch.sign(gradient_BT[chosen_BT]) * torch.sign(advantage_BT[chosen_BT])
        ups, downs = torch.stack([(product_N > 0).sum(), (product_N < 0).sum()]).tolist()
        against, agree = against + ups, agree + downs
    return agree, against


Rewards = Sequence[Sequence[float | None]]
Values = list[list[float]]
Formula = Callable[[Rewards], Values]


def _per_group(formula: Callable[[Vector], Vector]) -> Formula:
    """Make a formula of a step of one of the known rewards of a group, which are two or more."""

    def by_group(rewards: Rewards) -> Values:
        values = []
        for group in rewards:
            known = np.array([reward for reward in group if reward is not None])
            right = iter((formula(known) if len(known) > 1 else 0.0 * known).tolist())
            values.append([0.0 if reward is None else next(right) for reward in group])
        return values

    return by_group


def _over_step(rewards: Rewards) -> Values:
    """Return the centered rewards over the standard deviation of the step."""
    known = [reward for group in rewards for reward in group if reward is not None]
    scale = float(np.std(known)) + 1e-4 if known else 1.0
    return [[value / scale for value in group] for group in FORMULAS["Center"](rewards)]


FORMULAS: Mapping[str, Formula] = {
    "Group": _per_group(lambda r: (r - r.mean()) / max(r.std(), 1e-6)),
    "Center": _per_group(lambda r: r - r.mean()),
    "Batch": _over_step,
    "Rloo": _per_group(lambda r: r - (r.sum() - r) / (len(r) - 1)),
    "GroupStdDdof1": _per_group(lambda r: (r - r.mean()) / (r.std(ddof=1) + 1e-4)),
}
"""By the class of an estimator of the core."""
