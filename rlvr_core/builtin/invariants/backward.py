"""Whether the gradient behind the log-probs is theirs: head, temperature, model.

The guard ``loss`` knows which gradient has to arrive at the log-probs. What becomes of it from
there on is compared here for the last trained tensors before the head, which costs a backward pass
through the head alone: with the gradient of one row in a plain pass of the model.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.builtin.invariants.check import compute_dtype
from rlvr_core.builtin.invariants.fingerprints import is_sharded

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
        found = _flat(torch.autograd.grad(total, tensors, retain_graph=True, allow_unused=True))
        plain = _flat(_plain_gradient(trainer, micro, batch, row, tensors))
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
    vocabulary = int(getattr(model.config, "vocab_size", 0))
    trained = [one for one in model.parameters() if one.requires_grad]
    if any(map(is_sharded, trained)):
        return []  # other processes would have to compute along
    return [one for one in trained if one.shape[0] != vocabulary][-TENSORS:]


def _drops(model: Any) -> bool:
    return any(
        isinstance(one, torch.nn.Dropout) and one.training and one.p > 0 for one in model.modules()
    )


def _plain_gradient(
    trainer: Trainer, micro: MicroBatch, batch: LossBatch, row: int, tensors: list[Tensor]
) -> tuple[Tensor | None, ...]:
    """Return the gradient of a row's log-probs in a pass of this row alone."""
    prompt = int(micro.prompt_of_row_B[row])
    n, m = int(micro.prompt_len_S[prompt]), int(micro.completion_len_B[row])
    ids_L = torch.cat([micro.prompt_ids_SP[prompt, :n], micro.completion_ids_BT[row, :m]])
    autocast: Any = contextlib.nullcontext()
    if trainer.precision.autocast not in (None, torch.float32):
        autocast = torch.autocast(ids_L.device.type, dtype=trainer.precision.autocast)
    with torch.enable_grad(), autocast:
        logits_MV = trainer.model(input_ids=ids_L[None], use_cache=False).logits[0, n - 1 : -1]
        logp_MV = (logits_MV.float() / trainer.temperature).log_softmax(-1)
        logp_M = logp_MV.gather(-1, ids_L[n:, None])[:, 0]
        total = logp_M[batch.mask_BT[row, :m]].sum()
    return torch.autograd.grad(total, tensors, allow_unused=True)


def _flat(gradients: tuple[Tensor | None, ...]) -> Tensor | None:
    """Return gradients as one vector, in float64; None if one is missing."""
    known = [one.detach().double().flatten() for one in gradients if one is not None]
    return torch.cat(known) if known and len(known) == len(gradients) else None
