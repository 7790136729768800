"""The share of their inputs that the adapter's layers drop, against ``model.lora.dropout``.

With dropout the training pass is not the policy that sampled, so its log-probs say nothing of the
model; what the dropout layers do is counted instead.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn

    from rlvr_core.builtin.invariants.check import StepView

UPDATES = 8
"""Updates of a run in which inputs are counted."""
DEVIATIONS = 6.0
"""Standard deviations of a binomial count that are accepted."""

Counts = tuple[int, int]
"""Inputs of the adapter that were dropped, and all of them."""


class DroppedInputs:
    """Counts what the adapter's layers drop in the training pass.

    Args:
        p: ``model.lora.dropout``, above 0.
    """

    def __init__(self, p: float) -> None:
        self._p = p
        self._updates = 0
        self._counts: list[Tensor] = []
        self._hooks: list[Any] = []

    def watch(self, model: nn.Module) -> None:
        """Count from now on, in the first updates."""
        if self._updates >= UPDATES or self._hooks:
            return
        self._hooks = [
            module.register_forward_hook(self._count)
            for name, module in model.named_modules()
            if name.rpartition(".")[0].endswith(".lora_dropout")
        ]

    def take(self) -> Counts:
        """Return the counts since the last time."""
        dropped, total = torch.stack(self._counts).sum(0).tolist() if self._counts else (0, 0)
        self._counts = []
        return dropped, total

    def wrong(self, view: StepView, shares: Sequence[Counts]) -> str:
        """Return what is wrong with the counts of all processes; empty if nothing."""
        trained = any(seen.gradient_BT is not None for seen in view.seen)
        if not self._hooks or not trained:
            return ""
        self._updates += 1
        if self._updates >= UPDATES:
            for hook in self._hooks:
                hook.remove()
            self._hooks = []
        dropped, total = (sum(counts) for counts in zip(*shares, strict=True))
        if not total:
            return (
                f"the adapter's dropout is off in the training pass: model.lora.dropout {self._p:g}"
            )
        deviation = math.sqrt(self._p * (1 - self._p) * total)
        if abs(dropped - self._p * total) <= DEVIATIONS * deviation + 1:
            return ""
        return (
            f"the adapter's dropout drops {dropped / total:.1%} of its inputs, and "
            f"model.lora.dropout is {self._p:g} (band: {DEVIATIONS:g} standard deviations of "
            f"{deviation / total:.1%})"
        )

    def _count(self, module: nn.Module, given: tuple[Tensor, ...], out: Tensor) -> None:
        if not torch.is_grad_enabled() or not module.training:
            return
        there = given[0].detach() != 0
        # left on the device: reading a number would wait for it, in every layer
        self._counts.append(torch.stack([(there & (out.detach() == 0)).sum(), there.sum()]))
