"""What the adapter's layers drop of their inputs, against ``model.lora.dropout``.

With dropout the training pass is not the policy that sampled, so its log-probs say nothing of the
model; what the dropout layers do is counted instead: which share they drop, that what is left is
1 / (1 - p) times as large (Srivastava et al. 2014, section 10), that no two micro-batches drop the
same, and that a backward pass that computes them again drops the same.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor, nn

    from rlvr_core.builtin.invariants.check import StepView

UPDATES = 8
"""Updates of a run in which inputs are counted."""
DEVIATIONS = 6.0
"""Standard deviations of a binomial count that are accepted."""

ROUNDING = 3e-3
"""Largest error of a mean ratio of numbers in half precision that are all multiplied alike."""

CERTAIN = 50.0
"""Odds, as a power of 1/e, at which two masks of as many inputs are not alike by chance."""

MOST = 1 << 14
"""Inputs of a micro-batch that are compared, at most; a p that would need more is not looked at."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """What layers dropped in an update.

    Attributes:
        dropped: Inputs that were.
        total: All of them.
        masks: A digest for each micro-batch of which inputs its first layer dropped.
        others: Micro-batches in which another mask was dropped when it was computed again.
        apart: Inputs that were dropped in passes without a gradient, where none may be.
        before: Sum of the sizes of what was not dropped.
        after: The same behind the layer.
    """

    dropped: int
    total: int
    masks: tuple[str, ...] = ()
    others: int = 0
    apart: int = 0
    before: float = 0.0
    after: float = 0.0


class DroppedInputs:
    """Counts what the adapter's layers drop in the training pass.

    Args:
        p: ``model.lora.dropout``, above 0.
    """

    def __init__(self, p: float) -> None:
        self._p = p
        alike = -math.log1p(-2 * p * (1 - p))  # of one input, in two masks
        needed = math.ceil(CERTAIN / alike)
        self._compared = needed if needed <= MOST else 0
        self._known: set[str] = set()
        self._first: nn.Module | None = None
        self._newest: list[Tensor | None] = []
        self._masks: list[Tensor] = []
        self._again: list[tuple[Tensor, Tensor]] = []
        self._updates = 0
        self._counts: list[Tensor] = []
        self._apart: list[Tensor] = []
        self._hooks: list[Any] = []

    def watch(self, model: nn.Module) -> None:
        """Count from now on, in the first updates."""
        if self._updates >= UPDATES or self._hooks:
            return
        layers = [
            module
            for name, module in model.named_modules()
            if name.rpartition(".")[0].endswith(".lora_dropout")
        ]
        self._first = layers[0] if layers else None
        self._hooks = [layer.register_forward_hook(self._count) for layer in layers]

    def computed(self) -> None:
        """Note the mask of a micro-batch: before its backward pass, which may compute it again."""
        *again, newest = self._newest or (None,)
        self._computed_again(again)
        if newest is not None:
            self._masks.append(newest)

    def _computed_again(self, masks: Iterable[Tensor | None]) -> None:
        """Pair what was dropped since the last mask was noted with that mask."""
        self._newest = []
        for mask in masks:
            if mask is not None and self._masks:
                self._again.append((self._masks[-1], mask))

    def take(self) -> Dropped:
        """Return what was dropped since the last time."""
        sums = torch.stack(self._counts).sum(0).tolist() if self._counts else (0, 0, 0.0, 0.0)
        dropped, total, before, after = sums
        self._computed_again(self._newest)
        other = [(before != after).any() for before, after in self._again]
        others = int(torch.stack(other).sum()) if other else 0
        masks_NC = torch.stack(self._masks).cpu() if self._masks else ()
        apart = int(torch.stack(self._apart).sum()) if self._apart else 0
        self._counts, self._masks, self._again, self._apart = [], [], [], []
        digests = (hashlib.sha256(mask_C.numpy().tobytes()).hexdigest() for mask_C in masks_NC)
        return Dropped(int(dropped), int(total), tuple(digests), others, apart, before, after)

    def wrong(self, view: StepView, shares: Sequence[Dropped]) -> str:
        """Return what is wrong with what all processes dropped; empty if nothing is."""
        trained = any(seen.gradient_BT is not None for seen in view.seen)
        if not self._hooks or not trained:
            return ""
        self._updates += 1
        if self._updates >= UPDATES:
            for hook in self._hooks:
                hook.remove()
            self._hooks = []
        dropped, total = sum(one.dropped for one in shares), sum(one.total for one in shares)
        if not total:
            return (
                f"the adapter's dropout is off in the training pass: model.lora.dropout {self._p:g}"
            )
        if apart := sum(one.apart for one in shares):
            return (
                f"the adapter's dropout is on in a pass without a gradient, and drops {apart} "
                "inputs there: old log-probs, the reference's, or what is sampled, are not the "
                "policy's"
            )
        if others := sum(one.others for one in shares):
            return (
                f"the backward pass computes {others} micro-batches again with another dropout "
                "than the forward pass: the gradient is of another function than the loss"
            )
        for mask in (mask for one in shares for mask in one.masks):
            if mask in self._known:
                return (
                    "the adapter's dropout drops the same inputs in two micro-batches: its random "
                    "numbers are seeded with the same number again"
                )
            self._known.add(mask)
        deviation = math.sqrt(self._p * (1 - self._p) * total)
        if abs(dropped - self._p * total) <= DEVIATIONS * deviation + 1:
            return self._scaled(shares)
        return (
            f"the adapter's dropout drops {dropped / total:.1%} of its inputs, and "
            f"model.lora.dropout is {self._p:g} (band: {DEVIATIONS:g} standard deviations of "
            f"{deviation / total:.1%})"
        )

    def _scaled(self, shares: Sequence[Dropped]) -> str:
        """Return how what is not dropped is scaled otherwise than by 1 / (1 - p)."""
        before, after = sum(one.before for one in shares), sum(one.after for one in shares)
        due = 1 / (1 - self._p)
        band = max(ROUNDING, min(self._p / 4, 0.02))
        if not before or abs(after / before - due) <= band * due:
            return ""
        return (
            f"the adapter's dropout multiplies what it does not drop by {after / before:.4f}, and "
            f"by 1 / (1 - {self._p:g}) = {due:.4f} its mean stays what it is without dropout "
            f"(band: {band:.1%})"
        )

    def _count(self, module: nn.Module, given: tuple[Tensor, ...], out: Tensor) -> None:
        if not module.training:
            return
        there = given[0].detach() != 0
        if not torch.is_grad_enabled():
            if module is self._first:
                self._apart.append((there & (out == 0)).sum())
            return
        if module is self._first:
            kept = (out.detach() != 0).flatten()[: self._compared]
            self._newest.append(kept if 0 < len(kept) == self._compared else None)
        # left on the device: reading a number would wait for it, in every layer
        passed = there & (out.detach() != 0)
        sizes = [(one.detach().double().abs() * passed).sum() for one in (given[0], out)]
        counts = [(there & ~passed).sum(), there.sum()]
        self._counts.append(torch.stack([*(one.double() for one in counts), *sizes]))
