"""Guard ``guards/optimizer``: an update does to the weights what its formula says.

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

from rlvr_core.api import BaseGuard, Metric, NoConfig
from rlvr_core.guards.tensors import is_sharded, sampled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from rlvr_core.api import Group, GuardContext

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

    name = "guards/optimizer"
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
        self._watched: list[Watched] = []
        self._worst = 0.0

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
        self.begin(step)
        self._worst, self._updates = 0.0, version
        if not (self.due and self._watched):
            self._listen()

    def _listen(self) -> None:
        for watched in self._watched:
            if watched.handle is not None:
                watched.handle.remove()
        self._watched = []
        optimizer = self.context.trainer.optimizer
        n = len(optimizer.parameters)
        if not (self.due and n):
            return
        for place in sorted({(self._updates * TENSORS + k) % n for k in range(min(TENSORS, n))}):
            parameter, state = optimizer.parameters[place], {}
            if self._adamw:
                state = optimizer.inner.state.get(parameter, {})
            weight = sampled(parameter, ELEMENTS)
            zero = torch.zeros_like(weight)
            watched = Watched(
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
                watched.handle = parameter.register_hook(watched.keep)
            self._watched.append(watched)

    # -- before the update -----------------------------------------------------------------------

    def update_begins(self) -> None:
        """Compare the gradient with the sum of what the backward passes brought."""
        trainer, ranks = self.context.trainer, self.context.ranks
        if not self.due:
            return
        scale = float(trainer.optimizer.scaler.get_scale())
        fault = ""
        for watched in self._watched:
            if watched.handle is not None:
                watched.handle.remove()
            gradient = watched.parameter.grad
            watched.gradient = None if gradient is None else sampled(gradient, ELEMENTS)
            if not torch.equal(watched.weight, sampled(watched.parameter, ELEMENTS)):
                fault = fault or (
                    f"{watched.name} has changed between two updates\nsomething writes into the "
                    "trained tensors: an engine or a callback that shares their memory"
                )
        self.raise_first(self.view.step, fault)
        whole = [watched for watched in self._watched if watched.handle is not None]
        shares = ranks.gather([(watched.arrived.cpu(), watched.size.cpu()) for watched in whole])
        for number, watched in enumerate(whole):
            arrived = sum(share[number][0] for share in shares) / len(shares)
            size = sum(share[number][1] for share in shares) / len(shares)
            gradient = watched.gradient
            given = torch.zeros_like(arrived) if gradient is None else gradient.cpu()
            if bool(torch.isfinite(given).all()) and self._differ(
                given, arrived, ROUNDING * size + TINY
            ):
                raise self.fault(
                    self.view.step,
                    f"the gradient of {watched.name} is not the sum of what the backward passes of "
                    f"this update's {len(self.view.seen)} micro-batches brought",
                    "gradients are overwritten between micro-batches, those of earlier updates "
                    "were not cleared, or somebody writes into them",
                )
        for watched in self._watched:
            if watched.gradient is not None:
                watched.gradient = watched.gradient / scale

    def _differ(self, actual: Tensor, expected: Tensor, band: Tensor) -> bool:
        """Whether values differ: more than one of a few, or 2 % of many; a NaN does."""
        if not len(actual):
            return False
        apart = ((actual - expected).abs() / band).nan_to_num(nan=1e30)
        self._worst = max(self._worst, float(apart.max()))
        outside = int((apart > 1.0).sum())
        return outside > 0.02 * len(actual) and outside >= min(2, len(actual))

    # -- after the update ------------------------------------------------------------------------

    def update_ended(self, grad_norm: float, *, applied: bool) -> None:
        """Compare moments and weights with their formulas."""
        if not self.due:
            return
        fault = ""
        for watched in self._watched:
            weight = sampled(watched.parameter, ELEMENTS)
            if not applied and not torch.equal(watched.weight, weight):
                fault = fault or f"{watched.name} has changed in an update that was skipped\n"
            elif applied and self._adamw and math.isfinite(grad_norm):
                fault = fault or self._moved_otherwise(watched, weight, grad_norm)
        self.raise_first(self.view.step, fault, "look at the optimizer, and at what calls it")
        self._updates += applied
        self.numbers = {"optimizer/error": ROUNDING * self._worst}
        self._listen()

    def _moved_otherwise(self, watched: Watched, weight: Tensor, grad_norm: float) -> str:
        """Say how a tensor did not follow AdamW's formula; empty if it did."""
        optimizer, clip = self.context.trainer.optimizer, self.context.trainer.train.max_grad_norm
        name, before = watched.name, watched.weight
        if watched.gradient is None:
            moved = not torch.equal(before, weight)
            return f"{name} has moved without a gradient\nlook at what moves it" * moved
        state = optimizer.inner.state.get(watched.parameter, {})
        steps = float(state["step"]) if state else 0.0
        if steps != watched.steps + 1:
            return (
                f"the optimizer counts {steps:g} updates of {name} after one update, and "
                f"{watched.steps:g} before it\nan update was lost or made twice, or the "
                "optimizer's state was"
            )
        options = optimizer.builder.config
        beta1, beta2 = options.betas
        gradient = watched.gradient * (1.0 if clip is None else min(1.0, clip / (grad_norm + 1e-6)))
        mean, square = sampled(state["exp_avg"], ELEMENTS), sampled(state["exp_avg_sq"], ELEMENTS)
        due = beta1 * watched.mean + (1 - beta1) * gradient
        # grad_norm is float32, and so is the clipped gradient
        band = 4 * ROUNDING * (beta1 * watched.mean.abs() + (1 - beta1) * gradient.abs()) + TINY
        if self._differ(mean, due, band):
            return (
                f"the optimizer did not take the gradient of {name} that the step computed\n"
                "the gradient is changed before the optimizer reads it (sign, scale, clipping, "
                "another tensor's, not cleared), or its moments are"
            )
        due = beta2 * watched.square + (1 - beta2) * gradient**2
        if self._differ(square, due, 8 * ROUNDING * due + TINY):
            return f"the mean squared gradient of {name} is wrong\nlook at the optimizer's betas"
        rate = optimizer.inner.param_groups[0]["lr"]
        by_gradient = -rate * (mean / (1 - beta1**steps))
        by_gradient = by_gradient / ((square / (1 - beta2**steps)).sqrt() + options.eps)
        by_decay = -rate * options.weight_decay * before
        size = torch.maximum(before.abs(), weight.abs())
        band = 10 * ROUNDING * (by_gradient.abs() + by_decay.abs()) + ULPS * size + TINY
        if not self._differ(weight - before, by_gradient + by_decay, band):
            return ""
        what = f"{name} did not move as AdamW says at a learning rate of {rate:.3g}"
        if torch.equal(weight.float().bfloat16().double(), weight):
            return (
                f"{what}: its weights are rounded to bfloat16\nmaster weights are float32: an "
                "update smaller than a weight's rounding is lost"
            )
        return (
            f"{what}\nanother learning rate, decay or other options than the config's, an update "
            "that is lost, or one that is made to a copy"
        )
