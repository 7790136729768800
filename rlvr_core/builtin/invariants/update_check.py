"""One tensor around an update of AdamW or Muon: what of it is not as the formula says."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.builtin.invariants.differences import Difference, compare, described
from rlvr_core.builtin.invariants.formulas import adamw_move, first_moment, second_moment

if TYPE_CHECKING:
    from torch import Tensor

ROUNDING = 1e-4
"""Share of a sum's terms that is rounding in float32, of many micro-batches too."""

ULPS = 5e-7
"""Share of a weight that is rounding when it moves."""

TINY = 1e-34
"""What float32 may flush to 0."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Sampled elements by tensor, and counts of updates.

    Attributes:
        weights: The trained tensors.
        means: Running means of the gradient, or Muon's momentum; 0 where there are none.
        squares: Running means of its square.
        steps: Updates of each tensor by its state; NaN where it does not count.
    """

    weights: list[Tensor]
    means: list[Tensor]
    squares: list[Tensor]
    steps: list[float]


@dataclass(frozen=True, slots=True)
class Tensors:
    """Sampled elements of one tensor around an update; ``gradient`` is the clipped one."""

    name: str
    weight: Tensor
    mean: Tensor
    square: Tensor
    steps: float
    new_weight: Tensor
    new_mean: Tensor
    new_square: Tensor
    new_steps: float
    gradient: Tensor

    @classmethod
    def of(
        cls, number: int, name: str, before: Snapshot, after: Snapshot, gradient: Tensor
    ) -> Tensors:
        """Return one tensor's part of two snapshots."""
        one = [
            (each.weights[number], each.means[number], each.squares[number], each.steps[number])
            for each in (before, after)
        ]
        return cls(name, *one[0], *one[1], gradient)


@dataclass(slots=True)
class UpdateCheck:
    """Compares tensors around one update with their formulas; says what is wrong with one.

    What is said has the remedy behind a line break, and is empty where all is well.

    Attributes:
        options: The optimizer's options from the config.
        rate: The learning rate that the config gives the step.
        worst: Largest difference so far, in widths of its band.
    """

    options: Any
    rate: float
    worst: float = field(default=0.0)

    def of(self, one: Tensors) -> str:
        """Say what is wrong with a tensor that had a gradient."""
        return self._count(one) or self._moments(one) or self._weight(one)

    def _compare(self, found: Tensor, expected: Tensor, band: Tensor) -> Difference:
        difference = compare(found, expected, band)
        self.worst = max(self.worst, difference.worst)
        return difference

    def _count(self, one: Tensors) -> str:
        """Exactly one update is counted, by optimizers that count."""
        if math.isnan(one.new_steps) or one.new_steps == one.steps + 1:
            return ""
        if one.new_steps == one.steps == 0:
            return (
                f"no update reached {one.name}, though it has a gradient\nthe tensor is frozen, "
                "its gradient was taken away before the optimizer read it, or the optimizer was "
                "not given it"
            )
        counted = (
            f"the optimizer counts {one.new_steps:g} updates of {one.name} after one update, and "
            f"{one.steps:g} before it\n"
        )
        if one.new_steps > one.steps:
            return f"{counted}the update was applied twice: call the optimizer once an update"
        return (
            f"{counted}its state, the moments, was lost, or the tensor's gradient: keep one "
            "optimizer for the whole run, and give it every trained tensor's gradient"
        )

    def _moments(self, one: Tensors) -> str:
        """The running means follow from the gradient and from those before."""
        adam = not math.isnan(one.new_steps)
        beta = self.options.betas[0] if adam else self.options.momentum
        share = 1.0 - beta if adam else 1.0  # Muon adds the gradient whole
        expected = first_moment(one.mean, one.gradient, beta, share)
        band = ROUNDING * (beta * one.mean.abs() + share * one.gradient.abs()) + TINY
        if self._compare(one.new_mean, expected, band).bad:
            taken = (one.new_mean - beta * one.mean) / share
            seen = compare(taken, one.gradient, band / share)
            what = (
                f"the optimizer did not take the gradient of {one.name} that the step computed: "
                f"by its moments, {described(seen, 'the clipped gradient')}"
            )
            zero = (taken.abs() <= band / share) & (one.gradient.abs() > band / share)
            if int(zero.sum()) == seen.bad:
                return (
                    f"{what}; all of these get a gradient of 0\na part of the tensor is frozen: "
                    "its gradient is masked, or lost, before the optimizer reads it"
                )
            return (
                f"{what}\nthe gradient is changed before the optimizer reads it (sign, scale, "
                "clipping, another tensor's, not cleared), or its moments are"
            )
        if not adam:
            return ""
        expected = second_moment(one.square, one.gradient, self.options.betas[1])
        wrong = self._compare(one.new_square, expected, 2 * ROUNDING * expected + TINY)
        if wrong.bad:
            return (
                f"the optimizer's mean squared gradient of {one.name} is wrong: "
                f"{described(wrong, 'its formula')}\nlook at the optimizer's state and betas"
            )
        return ""

    def _weight(self, one: Tensors) -> str:
        """The weights move as AdamW says; Muon's matrices are not computed again."""
        if math.isnan(one.new_steps):
            return ""
        moments = (one.new_mean, one.new_square)
        by_gradient, by_decay = adamw_move(
            one.weight, moments, one.new_steps, self.rate, self.options
        )
        move = one.new_weight - one.weight
        size = torch.maximum(one.weight.abs(), one.new_weight.abs())
        band = 10 * ROUNDING * (by_gradient.abs() + by_decay.abs()) + ULPS * size + TINY
        wrong = self._compare(move, by_gradient + by_decay, band)
        if not wrong.bad:
            return ""
        what = (
            f"{one.name} did not move as the optimizer's formula says at a learning rate of "
            f"{self.rate:.3g}: "
        )
        if not bool(move.any()):
            return (
                f"{what}it has not moved\nthe learning rate is not the config's but 0, or the "
                "update was lost, put back, or made to a copy"
            )
        if torch.equal(one.new_weight.float().bfloat16().double(), one.new_weight):
            return (
                f"{what}its weights are rounded to bfloat16\nmaster weights are float32: an update "
                "smaller than a weight's rounding is lost; compute in bfloat16, train in float32"
            )
        beside = move - by_gradient
        shrunk = float(beside @ one.weight / (one.weight @ one.weight).clamp(min=TINY))
        rest = compare(beside, shrunk * one.weight, band + 1e-3 * beside.abs())
        if not rest.bad and shrunk:
            decay = -self.rate * self.options.weight_decay
            return (
                f"{what}beside the update by its gradient, weights change by {shrunk:+.3%} of "
                f"themselves, where weight decay makes {decay + 0.0:+.3%}\n"
                "look at the weight decay, and at what else scales weights"
            )
        return (
            f"{what}{described(wrong, 'the formula')}\nanother learning rate than the config's "
            "schedule, other options than the config's, or an update that is changed on its way"
        )
