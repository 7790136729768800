"""What built-in optimizers do, written down once more in float64.

A formula of an optimizer takes sampled elements of a tensor before an update, and says what they
are after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

ADAMW = "rlvr_core.step.optim:AdamW"
MUON = "rlvr_core.builtin.optimizers.muon:Muon"


def kind_of(builder: object) -> str:
    """Return the name of a built-in optimizer that has a formula; empty for any other."""
    name = f"{type(builder).__module__}:{type(builder).__qualname__}"
    return name if name in (ADAMW, MUON) else ""


def first_moment(before: Tensor, gradient: Tensor, beta: float, share: float) -> Tensor:
    """Return the running mean of the gradient after an update; ``share`` is 1 - beta for Adam."""
    return beta * before + share * gradient


def second_moment(before: Tensor, gradient: Tensor, beta: float) -> Tensor:
    """Return Adam's running mean of the squared gradient after an update."""
    return beta * before + (1.0 - beta) * gradient * gradient


def adamw_move(
    weight: Tensor,
    moments: tuple[Tensor, Tensor],
    steps: float,
    rate: float,
    options: Any,
) -> tuple[Tensor, Tensor]:
    """Return by how much AdamW moves a weight: by its gradients, and by decay.

    Args:
        weight: Before the update.
        moments: The running means after it.
        steps: Updates of the tensor, this one included.
        rate: Learning rate.
        options: ``betas``, ``eps`` and ``weight_decay``.
    """
    mean = moments[0] / (1.0 - options.betas[0] ** steps)
    square = moments[1] / (1.0 - options.betas[1] ** steps)
    by_gradient = -rate * mean / (square.sqrt() + options.eps)
    return by_gradient, -rate * options.weight_decay * weight
