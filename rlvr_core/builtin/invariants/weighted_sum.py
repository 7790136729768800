"""The sum of losses on given answers: each loss's own gradient, times the weight in the config.

What a loss is on completions has its formula (``loss``). On given answers ``sft`` has one, and the
log-probs that it is given are those of a plain pass of one row at temperature 1. Other losses are
taken as they are, and what is followed is what becomes of them: the gradient that arrives at the
log-probs has to be that of the loss, times its weight.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.builtin.invariants.check import compute_dtype
from rlvr_core.builtin.invariants.plain_pass import comparable, plain_logprobs

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr_core.api import LossComputed
    from rlvr_core.builtin.invariants.check import Trainer

OURS = "rlvr_core."
"""Where losses come from whose backward pass may be made twice."""

BANDS = {torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""Nats by which log-probs may differ from a plain pass in the mean."""

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
        wrong_loss: What is wrong with the value of one of them.
    """

    seen: dict[str, _Given] = field(default_factory=dict)
    wrong_loss: str = ""

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
        if not self.wrong_loss and _is_sft(loss):
            self.wrong_loss = _other_loss(trainer, event, float(output.loss.detach()))
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
        what, self.wrong_loss = self.wrong_loss, ""
        return what or next((what for one in seen if (what := _compared(one, scale))), "")


def _is_sft(loss: Any) -> bool:
    kind = type(loss)
    return f"{kind.__module__}:{kind.__qualname__}" == "rlvr_core.losses:SFT"


def _other_loss(trainer: Trainer, event: LossComputed, value: float) -> str:
    """Say how ``sft`` is not minus the mean log-prob of the answers' tokens at temperature 1."""
    (_, batch, _), micro, counts = event.losses[0], event.micro_batch, event.normalizer
    logp_BT, mask_BT = batch.logp_BT.detach().double(), batch.mask_BT
    due = -float(logp_BT[mask_BT].sum()) * trainer.ranks.world / max(counts.tokens, 1)
    if not abs(value - due) <= 1e-4 * abs(due) + 1e-9:
        return (
            f"the loss sft on given answers is {value:.6g}, and minus the log-probs of its tokens "
            f"over the {counts.tokens} tokens of the update are {due:.6g}"
        )
    if not comparable(trainer):
        return ""
    row = int(mask_BT.sum(1).argmax())
    with torch.no_grad():
        plain_M = plain_logprobs(trainer, trainer.model, micro, row, mask_BT, temperature=1.0)
    apart = float((logp_BT[row][mask_BT[row]] - plain_M).abs().mean())
    band = BANDS[compute_dtype(trainer)]
    if not apart > band:
        return ""
    return (
        f"the log-probs of a given answer are {apart:.3g} nats in the mean from those of a plain "
        f"pass at temperature 1 (band: {band:g}): another temperature, other prompts or positions"
    )


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
