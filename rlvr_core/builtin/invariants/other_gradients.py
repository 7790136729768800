"""Gradients of a loss that do not pass through the log-probs of sampled tokens.

An entropy bonus acts through the entropies, a distillation through the policy's log-probs of the
teacher's tokens. What must arrive there is written down here, in float64, and compared with what
the backward pass brings: a term that has its value and no gradient, or another one, does nothing or
something else, and neither the loss nor its value shows it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.builtin.invariants.differences import compare, described

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr_core.api import Loss, LossBatch, Normalizer
    from rlvr_core.builtin.invariants.check import Seen

_DISTILLATIONS = frozenset(f"rlvr_core.builtin.distillation.losses:{n}" for n in ("GKD", "OPSD"))

LEAST = -1e4
"""Log-probs are no less, as docs/losses.md says: a token that cannot occur has -inf."""

TINY = 1e-30
"""What float32 may flush to 0."""


@dataclass(frozen=True, slots=True)
class Distilled:
    """What a distillation must be, and how large what it is summed of is.

    Attributes:
        value: The micro-batch's share of the loss.
        size: Sum of its absolute terms.
        gradient_BTK: With respect to the policy's log-probs of the teacher's tokens.
        size_BTK: The absolute terms of each gradient.
    """

    value: float
    size: float
    gradient_BTK: Tensor
    size_BTK: Tensor


def distils(loss: Loss) -> bool:
    """Whether a loss is one of the built-in distillations."""
    return f"{type(loss).__module__}:{type(loss).__qualname__}" in _DISTILLATIONS


def distilled(loss: Any, batch: LossBatch, normalizer: Normalizer) -> Distilled | None:
    """Compute a distillation from its formula; None where the batch has no teacher."""
    teacher_BTK, student_BTK = batch.teacher_logp_BTK, batch.student_logp_BTK
    if teacher_BTK is None or student_BTK is None:
        return None
    options = loss._distill
    mask_BT1 = batch.mask_BT[:, :, None]
    t = torch.where(mask_BT1, teacher_BTK.detach().double().clamp(min=LEAST), 0.0)
    s = torch.where(mask_BT1, student_BTK.detach().double().clamp(min=LEAST), 0.0)
    n_B11 = batch.mask_BT.sum(1).clamp(min=1)[:, None, None]
    share = mask_BT1 * normalizer.world_size / (max(normalizer.rows, 1) * n_B11)
    if normalizer.share_B is not None:
        share = share * normalizer.share_B[:, None, None]
    q, p = t.exp(), s.exp()
    if options.divergence == "kl":
        q = q / q.sum(-1, keepdim=True)
        terms, slope, size = q * (q.clamp(min=TINY).log() - s), -q, q * (1 + s.abs())
    else:
        a = options.alpha
        mixture = torch.logaddexp(t + math.log(a), s + math.log1p(-a))
        terms = a * q * (t - mixture) + (1 - a) * p * (s - mixture)
        slope = (1 - a) * p * (s - mixture)  # what the mixture changes by is 0 in the sum
        size = (q + p) * (1 + t.abs() + s.abs())
    free = student_BTK.detach() > LEAST
    return Distilled(
        value=float((share * terms).sum()),
        size=float((share * size).sum()),
        gradient_BTK=share * torch.where(free, slope, 0.0),
        size_BTK=share * size,
    )


def wrong_entropy_gradient(seen: Seen, slope: float, band: float, scale: float) -> str:
    """Say how the gradient at the entropies differs from the entropy bonus; empty if it does not.

    Args:
        seen: The micro-batch, after its backward pass.
        slope: What each loss token's entropy must have: minus the bonus over the update's tokens.
        band: Difference that is rounding.
        scale: Loss scale of float16, on every gradient.
    """
    mask_BT, entropy_BT = seen.batch.mask_BT, seen.batch.entropy_BT
    if entropy_BT is None:
        return ""
    due_BT = slope * mask_BT.double()
    name = "entropies is not that of the entropy bonus"
    return _apart(seen.entropy_gradient_BT, due_BT, band * torch.ones_like(due_BT), scale, name)


def wrong_student_gradient(
    found_BTK: Tensor | None, due: Distilled, weight: float, share: float, scale: float
) -> str:
    """Say how the gradient beside the teacher's tokens differs from the formula; empty if not."""
    name = "policy's log-probs of the teacher's tokens is not that of the divergence"
    band_BTK = abs(weight) * share * due.size_BTK
    return _apart(found_BTK, weight * due.gradient_BTK, band_BTK, scale, name)


def _apart(found: Tensor | None, due: Tensor, band: Tensor, scale: float, name: str) -> str:
    rounding = 0.0
    if found is None:
        found = torch.zeros_like(due)
    elif found.dtype != torch.float32:
        rounding = 4 * torch.finfo(found.dtype).eps
    gradient = found.double() / scale
    if not bool(torch.isfinite(gradient).all()):
        return ""  # an update that will be skipped
    # what float32 flushes to 0 has been multiplied by the loss scale
    bands = band + rounding * due.abs() + TINY
    wrong = compare(*(one.flatten().cpu() for one in (gradient, due, bands)), share=0.0)
    if not wrong.bad:
        return ""
    nothing = " (it is 0)" if not bool(gradient.any()) else ""
    return (
        f"the gradient that arrives at the {name}: {described(wrong, 'its formula')}{nothing}: a "
        "part of the loss has its value, and not its gradient"
    )
