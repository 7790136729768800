"""Guard ``core/optimizer``: an update does to the weights what its formula says.

A few tensors in turn, a few elements of each: the gradient is the sum of what the micro-batches'
backward passes brought, AdamW's moments follow from it and from those before, and the weights from
the moments, the learning rate and the decay of the config. Between two updates nothing changes.

Under FSDP gradients arrive in parts of other shapes: there the sum over micro-batches is not
checked. Of other optimizers than AdamW the gradient alone is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.api import Metric, NoConfig
from rlvr_core.guards.base import BaseGuard
from rlvr_core.guards.tensors import is_sharded, local, sampled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from rlvr_core.api import Group, GuardContext, Json

TENSORS, ELEMENTS = 8, 256
"""Tensors that are looked at in an update, by turns, and elements of each."""

ROUNDING, ULPS, TINY = 1e-4, 5e-7, 1e-34
"""Share of a sum's terms, and of a weight that moves, that is rounding in float32; what float32
may flush to 0."""


@dataclass(slots=True)
class Watched:
    """A sample of one tensor around an update.

    Attributes:
        name: The tensor's name.
        parameter: The tensor.
        weight: Its elements before the update.
        mean: Running mean of the gradient.
        square: Running mean of its square.
        steps: Updates that the optimizer counts for it.
        arrived: Sum of the gradients of the backward passes.
        size: Sum of their absolute values.
        gradient: The gradient before clipping; None if it has none.
    """

    name: str
    parameter: Tensor
    weight: Tensor
    mean: Tensor
    square: Tensor
    steps: float
    arrived: Tensor
    size: Tensor
    gradient: Tensor | None = None
    handle: Any = field(default=None)

    def keep(self, gradient: Tensor) -> None:
        """Add what a backward pass brings."""
        elements = sampled(gradient, ELEMENTS)
        self.arrived, self.size = self.arrived + elements, self.size + elements.abs()


class OptimizerUpdates(BaseGuard):
    """Updates are those of the optimizer's formula."""

    name = "optimizer"
    reports = (
        Metric(
            "optimizer/error",
            "Largest difference of a sampled weight, moment or gradient from its formula, as a "
            "share of what it is made of; the band for rounding is 1e-4.",
            "share",
        ),
    )

    def __init__(self, config: NoConfig) -> None:
        super().__init__(config)
        self._updates = 0
        self._watched: list[Watched] = []
        self._norm = math.nan
        self._worst, self._due = 0.0, True

    def bind(self, context: GuardContext) -> None:
        """Learn whether the optimizer's formula is known."""
        super().bind(context)
        builder = context.trainer.optimizer.builder
        self._adamw = type(builder).__name__ == "AdamW"
        if not self._adamw:
            self.say_once(
                f"does not look at moves of {type(builder).__name__}: it knows AdamW alone"
            )

    def step_begins(self, groups: Sequence[Group], step: int, version: int) -> None:
        """Listen to the gradients of the run's first update; later ones do already."""
        self._worst, self._due = 0.0, self.is_due(step)
        if not (self._due and self._watched):
            self._listen()

    def _listen(self) -> None:
        for one in self._watched:
            if one.handle is not None:
                one.handle.remove()
        optimizer = self.context.trainer.optimizer
        n = len(optimizer.parameters)
        places = {(self._updates * TENSORS + k) % n for k in range(min(TENSORS, n))} if n else set()
        self._watched = []
        for place in sorted(places) if self._due else ():
            parameter, state = optimizer.parameters[place], {}
            if self._adamw:
                state = optimizer.inner.state.get(parameter, {})
            weight = sampled(parameter, ELEMENTS)
            zero = torch.zeros_like(weight)
            one = Watched(
                optimizer.names[place],
                parameter,
                weight,
                sampled(state["exp_avg"], ELEMENTS) if state else zero,
                sampled(state["exp_avg_sq"], ELEMENTS) if state else zero,
                float(state["step"]) if state else 0.0,
                arrived=zero,
                size=zero,
            )
            if not is_sharded(parameter):
                one.handle = parameter.register_hook(one.keep)
            self._watched.append(one)

    # -- before the update -----------------------------------------------------------------------

    def update_begins(self) -> None:
        """Compare the gradient with the sum of what the backward passes brought."""
        trainer, ranks = self.context.trainer, self.context.ranks
        if not self._due:
            return
        scale = float(trainer.optimizer.scaler.get_scale())
        fault = ""
        for one in self._watched:
            if one.handle is not None:
                one.handle.remove()
            gradient = one.parameter.grad
            one.gradient = None if gradient is None else sampled(gradient, ELEMENTS)
            if not torch.equal(one.weight, sampled(one.parameter, ELEMENTS)):
                fault = fault or (
                    f"{one.name} has changed between two updates\nsomething writes into the "
                    "trained tensors: an engine or a callback that shares their memory"
                )
        self._norm = self._whole_norm() / scale
        self.raise_first(self.view.step, fault)
        whole = [one for one in self._watched if one.handle is not None]
        shares = ranks.gather([(one.arrived.cpu(), one.size.cpu()) for one in whole])
        for number, one in enumerate(whole):
            arrived = sum(share[number][0] for share in shares) / len(shares)
            size = sum(share[number][1] for share in shares) / len(shares)
            given = torch.zeros_like(arrived) if one.gradient is None else one.gradient.cpu()
            if bool(torch.isfinite(given).all()) and self._differ(
                given, arrived, ROUNDING * size + TINY
            ):
                raise self.fault(
                    self.view.step,
                    f"the gradient of {one.name} is not the sum of what the backward passes of "
                    f"this update's {len(self.view.seen)} micro-batches brought",
                    "gradients are overwritten between micro-batches, those of earlier updates "
                    "were not cleared, or somebody writes into them",
                )
        for one in self._watched:
            if one.gradient is not None:
                one.gradient = one.gradient / scale

    def _whole_norm(self) -> float:
        """Return the norm of the whole gradient."""
        optimizer = self.context.trainer.optimizer
        gradients = [one.grad for one in optimizer.parameters if one.grad is not None]
        sharded = any(map(is_sharded, gradients))
        parts = [local(one) for one in gradients]
        norms = torch._foreach_norm([one for one in parts if one.numel()]) if parts else []
        squares = float(torch.stack([n.double() ** 2 for n in norms]).sum()) if norms else 0.0
        return math.sqrt(sum(self.context.ranks.gather(squares)) if sharded else squares)

    def _differ(self, found: Tensor, expected: Tensor, band: Tensor) -> bool:
        """Whether values differ: more than one of a few, or 2 % of many; a NaN does."""
        if not len(found):
            return False
        apart = ((found - expected).abs() / band).nan_to_num(nan=1e30)
        self._worst = max(self._worst, float(apart.max()))
        outside = int((apart > 1.0).sum())
        return outside > 0.02 * len(found) and outside >= min(2, len(found))

    # -- after the update ------------------------------------------------------------------------

    def update_ended(self, grad_norm: float, *, applied: bool) -> None:
        """Compare moments and weights with their formulas."""
        if not self._due:
            self._updates += applied
            return
        fault = self._other_norm(grad_norm)
        for one in self._watched:
            if not applied and not torch.equal(one.weight, sampled(one.parameter, ELEMENTS)):
                fault = fault or f"{one.name} has changed in an update that was skipped\n"
            elif applied and self._adamw and math.isfinite(grad_norm):
                fault = fault or self._moved_otherwise(one, grad_norm)
        self.raise_first(self.view.step, fault, "look at the optimizer, and at what calls it")
        self._updates += applied
        self.numbers = {"optimizer/error": ROUNDING * self._worst}
        self._listen()

    def _moved_otherwise(self, one: Watched, grad_norm: float) -> str:
        """Say how a tensor did not follow AdamW's formula; empty if it did."""
        optimizer, clip = self.context.trainer.optimizer, self.context.trainer.train.max_grad_norm
        weight = sampled(one.parameter, ELEMENTS)
        if one.gradient is None:
            moved = not torch.equal(one.weight, weight)
            return f"{one.name} has moved without a gradient\nlook at what moves it" * moved
        state = optimizer.inner.state.get(one.parameter, {})
        steps = float(state["step"]) if state else 0.0
        if steps != one.steps + 1:
            return (
                f"the optimizer counts {steps:g} updates of {one.name} after one update, and "
                f"{one.steps:g} before it\nan update was lost or made twice, or the optimizer's "
                "state was"
            )
        options = optimizer.builder.config
        beta1, beta2 = options.betas
        gradient = one.gradient * (1.0 if clip is None else min(1.0, clip / (grad_norm + 1e-6)))
        mean, square = sampled(state["exp_avg"], ELEMENTS), sampled(state["exp_avg_sq"], ELEMENTS)
        due = beta1 * one.mean + (1 - beta1) * gradient
        # grad_norm is float32, and so is the clipped gradient
        band = 4 * ROUNDING * (beta1 * one.mean.abs() + (1 - beta1) * gradient.abs()) + TINY
        if self._differ(mean, due, band):
            return (
                f"the optimizer did not take the gradient of {one.name} that the step computed\n"
                "the gradient is changed before the optimizer reads it (sign, scale, clipping, "
                "another tensor's, not cleared), or its moments are"
            )
        due = beta2 * one.square + (1 - beta2) * gradient**2
        if self._differ(square, due, 8 * ROUNDING * due + TINY):
            return (
                f"the mean squared gradient of {one.name} is wrong\nlook at the optimizer's betas"
            )
        rate = optimizer.inner.param_groups[0]["lr"]
        by_gradient = -rate * (mean / (1 - beta1**steps))
        by_gradient = by_gradient / ((square / (1 - beta2**steps)).sqrt() + options.eps)
        by_decay = -rate * options.weight_decay * one.weight
        size = torch.maximum(one.weight.abs(), weight.abs())
        band = 10 * ROUNDING * (by_gradient.abs() + by_decay.abs()) + ULPS * size + TINY
        if not self._differ(weight - one.weight, by_gradient + by_decay, band):
            return ""
        what = f"{one.name} did not move as AdamW says at a learning rate of {rate:.3g}"
        if torch.equal(weight.float().bfloat16().double(), weight):
            return (
                f"{what}: its weights are rounded to bfloat16\nmaster weights are float32: an "
                "update smaller than a weight's rounding is lost"
            )
        return (
            f"{what}\nanother learning rate, decay or other options than the config's, an update "
            "that is lost, or one that is made to a copy"
        )

    def _other_norm(self, told: float) -> str:
        if not (math.isfinite(self._norm) and math.isfinite(told)):
            return ""
        if abs(told - self._norm) <= 1e-3 * self._norm + TINY:
            return ""
        return (
            f"the norm of the gradient is reported as {told:.6g}, and the gradients have "
            f"{self._norm:.6g} before clipping\nlook at which tensors the norm is of"
        )

    def state_dict(self) -> dict[str, Json]:
        """Return how many updates there were, by which it is chosen what is checked."""
        return {"updates": self._updates}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore it."""
        self._updates = state["updates"]
