"""Whether the gradient behind the log-probs is theirs: head, temperature, model.

The guard ``loss`` knows which gradient has to arrive at the log-probs. What becomes of it from
there on is compared here for the last trained tensors before the head, which costs a backward pass
through the head alone: with the gradient of one row in a plain pass of the model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.builtin.invariants.check import compute_dtype
from rlvr_core.builtin.invariants.fingerprints import is_sharded
from rlvr_core.builtin.invariants.plain_pass import plain_logprobs

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr_core.api import LossBatch, MicroBatch
    from rlvr_core.builtin.invariants.check import Trainer

BANDS = {torch.float32: 0.01, torch.float16: 0.05, torch.bfloat16: 0.15}
"""Largest distance of the two gradients, as a share of the plain one."""

UNSURE = 0.5
"""Sum of 1 - p over the tokens of a row from which its gradient is no mere rounding."""

TENSORS = 2
"""Trained tensors that are compared."""


class _Aside:
    """Whether a gradient is computed that is no part of the update; hooks on tensors see it too."""

    active = False


ASIDE = _Aside()


def gradient_error(trainer: Trainer, micro: MicroBatch, batch: LossBatch) -> tuple[float, str]:
    """Compare the gradient of a row's log-probs with that of a plain pass.

    Args:
        trainer: The policy's trainer.
        micro: The rows of the forward pass.
        batch: What the loss was given, with the graph.

    Returns:
        The distance as a share of the plain gradient, NaN where nothing can be compared, and what
        is wrong, empty if nothing is.
    """
    model, logp_BT = trainer.model, batch.logp_BT
    tensors = _last_trained(model)
    # a compiled backward pass runs once, and with dropout two passes are two functions
    if not tensors or not logp_BT.requires_grad or trainer.train.compile or _drops(model):
        return float("nan"), ""
    unsure_B = (-torch.expm1(logp_BT.detach()) * batch.mask_BT).sum(1)
    row = int(unsure_B.argmax())
    if not float(unsure_B[row]) >= UNSURE:
        return float("nan"), ""
    total = logp_BT[row][batch.mask_BT[row]].sum()
    ASIDE.active = True
    try:
        try:
            found = _flat(_gradient(total, tensors, retain_graph=True))
        except RuntimeError as freed:
            if "second time" not in str(freed):
                raise
            return float("nan"), ""  # a loss has freed the graph: its backward pass says whose
        with torch.enable_grad():
            again = plain_logprobs(trainer, model, micro, row, batch.mask_BT).sum()
        plain = _flat(_gradient(again, tensors))
    finally:
        ASIDE.active = False
    if found is None or plain is None or not float(plain.norm()) > 0:
        return float("nan"), ""
    error = float((found - plain).norm() / plain.norm())
    dtype = compute_dtype(trainer)
    band = BANDS[dtype] * (5 if dtype == torch.float32 and found.device.type != "cpu" else 1)
    if error <= band:
        return error, ""
    slope = float(found @ plain / plain.square().sum())
    return error, (
        f"the gradient of the log-probs behind the loss is not theirs: it is {slope:.3g} times "
        f"that of a plain pass of the same row, and {error:.2g} of it apart (band {band:g})"
    )


def _last_trained(model: Any) -> list[Tensor]:
    """Return the last trained tensors that are no embedding or head; none of a sharded model."""
    trained = [one for one in model.parameters() if one.requires_grad]
    if any(map(is_sharded, trained)):
        return []  # other processes would have to compute along
    ends = (model.get_input_embeddings(), model.get_output_embeddings())
    left_out = {id(one) for end in ends if end is not None for one in end.parameters()}
    return [one for one in trained if id(one) not in left_out][-TENSORS:]


def _gradient(
    total: Tensor, tensors: list[Tensor], *, retain_graph: bool = False
) -> tuple[Tensor | None, ...]:
    return torch.autograd.grad(total, tensors, retain_graph=retain_graph, allow_unused=True)


def _drops(model: Any) -> bool:
    return any(
        isinstance(one, torch.nn.Dropout) and one.training and one.p > 0 for one in model.modules()
    )


def _flat(gradients: tuple[Tensor | None, ...]) -> Tensor | None:
    """Return gradients as one vector, in float64; None if one is missing."""
    known = [one.detach().double().flatten() for one in gradients if one is not None]
    return torch.cat(known) if known and len(known) == len(gradients) else None
