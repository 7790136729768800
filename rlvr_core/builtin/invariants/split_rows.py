"""Whether processes that split rows find the log-probs and the gradient of rows that are not split.

With ``train.context_parallel`` no process can follow a gradient into the model by itself, as
``backward`` does: each has the part that comes through its own tokens. So all of them compute some
rows of the step twice, split and not, each time with the collectives of an update, and compare what
is left in the gradient. A sum that is a mean somewhere, a gradient of keys and values that does not
come home, and a token at another position or behind another text show.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.api.services import Row, micro_batches, predict
from rlvr_core.builtin.invariants.backward import ASIDE, BANDS, TENSORS, UNSURE
from rlvr_core.builtin.invariants.check import compute_dtype
from rlvr_core.builtin.invariants.fingerprints import local

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from rlvr_core.api import Group, MicroBatch
    from rlvr_core.builtin.invariants.check import Trainer

EVERY = 50
"""Steps from one comparison to the next; the first step of a process makes one, too."""

ROWS, PROMPT, ANSWER = 3, 256, 128
"""Most rows that are compared, and tokens of each: what is not split has to fit on one device."""

NATS = {torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""Nats by which log-probs may differ in the mean."""


def split_fault(trainer: Trainer, groups: Sequence[Group]) -> tuple[float, str]:
    """Compare rows that are split with the same rows whole. A collective.

    Args:
        trainer: The policy's trainer; it has no gradient, before and after.
        groups: The step's, the same in all processes.

    Returns:
        The distance of the gradients as a share of that of the whole rows, NaN where nothing can be
        compared, and what is wrong, empty if nothing is.
    """
    batch = _some_rows(trainer, groups)
    if batch is None:
        return math.nan, ""
    ASIDE.active = True
    try:
        logp_BT, split = _gradients(trainer, batch)
        with trainer.parallel.context.alone():
            plain_BT, plain = _gradients(trainer, batch)
    finally:
        ASIDE.active = False
    mask_BT, dtype = batch.mask_BT, compute_dtype(trainer)
    apart = float((logp_BT - plain_BT)[mask_BT].abs().mean())
    if apart > NATS[dtype]:
        return math.nan, (
            f"the log-probs of rows that processes split are {apart:.3g} nats in the mean from "
            f"those of the same rows whole (band {NATS[dtype]:g})"
        )
    if not float(-torch.expm1(plain_BT[mask_BT]).sum()) >= UNSURE:
        return math.nan, ""  # a gradient of rounding
    pairs = [*zip(split, plain, strict=True)]
    mine = [
        sum(float((one - due).square().sum()) for one, due in pairs),
        sum(float((one * due).sum()) for one, due in pairs),
        sum(float(due.square().sum()) for _, due in pairs),
    ]
    off, along, size = map(sum, zip(*trainer.ranks.gather(mine), strict=True))
    if not 0 < size < math.inf:
        return math.nan, ""
    error = math.sqrt(off / size)
    if error <= BANDS[dtype]:
        return error, ""
    return error, (
        "the gradient of rows that processes split is not that of the same rows whole: it is "
        f"{along / size:.3g} times that, and {error:.2g} of it apart (band {BANDS[dtype]:g})"
    )


def _some_rows(trainer: Trainer, groups: Sequence[Group]) -> MicroBatch | None:
    """The first rows of a step, cut to a few tokens."""
    answers = [member.completion for group in groups for member in group.members]
    rows = [
        Row(one.prompt_ids[-PROMPT:], ids, (True,) * len(ids), (0.0,) * len(ids), 0.0)
        for one in answers
        if (ids := one.token_ids[:ANSWER])
    ][:ROWS]
    if not rows:
        return None
    most = ROWS * (PROMPT + ANSWER)
    (batch,) = micro_batches(rows, tokens_per_micro_batch=most, device=trainer.model.device)
    return batch


def _gradients(trainer: Trainer, batch: MicroBatch) -> tuple[Tensor, list[Tensor]]:
    """The log-probs, and the gradient of their sum and that of the entropies; it is cleared."""
    parallel, optimizer = trainer.parallel, trainer.optimizer
    try:
        with torch.enable_grad(), parallel.accumulating(trainer.model, last=True):
            scores = parallel.compute(
                _scores, trainer.model, batch, temperature=trainer.temperature
            )
            # gradients become means over processes; a split row counts in the first of its group
            optimizer.backward(parallel.context.share() * sum(one.sum() for one in scores))
        found = [optimizer.parameters[place].grad for place in _places(optimizer.parameters)]
        kept = [local(one).double() if one is not None else torch.zeros(1) for one in found]
        return scores[0].detach().double(), kept
    finally:
        for one in optimizer.parameters:
            one.grad = None


def _places(parameters: Sequence[Tensor]) -> list[int]:
    """The tensors at each end of the model."""
    n = len(parameters)
    return sorted({*range(min(TENSORS, n)), *range(max(0, n - TENSORS), n)})


def _scores(model: Any, batch: MicroBatch, **options: Any) -> tuple[Tensor, Tensor]:
    predicted = predict(
        model, batch, options["temperature"], options["autocast_dtype"], options.get("compiled")
    )
    logp_N, entropy_N = predicted.logprobs_and_entropy()
    return predicted.unpack(logp_N), predicted.unpack(entropy_N)
