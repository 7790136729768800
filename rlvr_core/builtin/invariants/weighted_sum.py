"""The sum of losses on given answers: each loss's own gradient, times the weight in the config.

What a loss is on completions has its formula (``loss``). On given answers the loss is taken as it
is, and what is followed is what becomes of it: the gradient that arrives at the log-probs has to be
that of the loss, times its weight.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr_core.api import LossComputed
    from rlvr_core.builtin.invariants.check import Trainer

OURS = "rlvr_core."
"""Where losses come from whose backward pass may be made twice."""

BAND = 1e-3
"""Share of the gradient by which it may be off."""


@dataclass(slots=True)
class _Given:
    """A micro-batch of given answers: name of its loss, the due gradient, and what arrived."""

    name: str
    weight: float
    due_BT: Tensor
    arrived_BT: Tensor | None = None


@dataclass(slots=True)
class WeightedSum:
    """Follows the losses on given answers into their sum; one micro-batch of each an update.

    Attributes:
        seen: Those of the current update, by name of the loss.
    """

    seen: dict[str, _Given] = field(default_factory=dict)

    def given(self, trainer: Trainer, event: LossComputed) -> None:
        """Work out the gradient that is due, and listen to the one that arrives."""
        ((loss, batch, output), *others) = event.losses
        of_loss = {id(term.loss): term for term in trainer.objective.terms}
        term = of_loss.get(id(loss))
        if others or term is None or term.name in self.seen:
            return
        logp_BT: Any = batch.logp_BT
        if not (type(loss).__module__.startswith(OURS) and output.loss.requires_grad):
            return
        (own_BT,) = torch.autograd.grad(output.loss, logp_BT, retain_graph=True, allow_unused=True)
        if own_BT is None:
            return
        one = self.seen[term.name] = _Given(term.name, term.weight, own_BT.detach())
        logp_BT.register_hook(partial(_keep, one))

    def wrong(self, scale: float) -> str:
        """Return what is wrong with the sum of the update; empty if nothing is.

        Args:
            scale: The loss scale of float16.
        """
        seen, self.seen = [*self.seen.values()], {}
        return next((what for one in seen if (what := _compared(one, scale))), "")


def _keep(one: _Given, gradient_BT: Tensor) -> None:
    one.arrived_BT = gradient_BT.detach()


def _compared(one: _Given, scale: float) -> str:
    if one.arrived_BT is None:
        return ""
    arrived_BT, own_BT = one.arrived_BT.double() / scale, one.due_BT.double()
    size = float(own_BT.square().sum())
    off = float((arrived_BT - one.weight * own_BT).norm())
    rounding = 4 * torch.finfo(one.arrived_BT.dtype).eps
    if size == 0 or not off < float("inf"):  # nothing to learn, or an update that is skipped
        return ""
    if off <= (BAND + rounding) * abs(one.weight) * size**0.5:
        return ""
    found = float((arrived_BT * own_BT).sum()) / size
    return (
        f"the gradient that arrives of the loss {one.name}, on given answers, is {found:.4g} times "
        f"the loss's own, and its weight in the sum is {one.weight:g} (band: {BAND:g})"
    )
