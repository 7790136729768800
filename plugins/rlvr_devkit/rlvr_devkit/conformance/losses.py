"""Promises of losses. B rows, T completion positions.

Each check uses a tiny batch and says what to fix.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rlvr_core.api import LossBatch, LossOutput, LossTraits, Normalizer
from rlvr_devkit.conformance.subject import Check, Subject, demand

if TYPE_CHECKING:
    import torch


def _loss_batch(traits: LossTraits) -> LossBatch:
    """Return a batch of 4 rows, 6 positions and 12 loss tokens, with NaN at masked positions."""
    import torch

    generator = torch.Generator().manual_seed(3)

    def logp(*shape: int) -> torch.Tensor:
        return -torch.rand(*shape, generator=generator) - 0.1

    mask_BT = torch.tensor(
        [[1, 1, 1, 0, 0, 0], [1, 0, 1, 1, 0, 0], [1, 1, 1, 1, 1, 0], [0, 0, 0, 1, 0, 0]]
    ).bool()
    logp_BT, advantage_B = logp(4, 6), torch.tensor([1.0, -1.0, 0.5, -0.25])

    def near(scale: float) -> torch.Tensor:
        return (logp_BT + scale * (logp(4, 6) + 0.6)).masked_fill(~mask_BT, math.nan)

    top = traits.teacher.top_k if traits.teacher is not None else 2
    return LossBatch(
        logp_BT=logp_BT.requires_grad_(),
        old_logp_BT=near(0.02),
        behaviour_logp_BT=near(0.02),
        ref_logp_BT=near(0.1),
        mask_BT=mask_BT,
        advantage_B=advantage_B,
        entropy_BT=(logp(4, 6) + 2).requires_grad_(),
        entropy_mask_BT=mask_BT if traits.top_entropy < 1 else None,
        teacher_logp_BTK=logp(4, 6, top).log_softmax(-1) - 0.1,
        student_logp_BTK=(logp(4, 6, top).log_softmax(-1) - 0.2).requires_grad_(),
        entropy_bonus=None if traits.entropy is None else 0.01,
        group_B=torch.tensor([0, 0, 1, 1]),
    )


_ALL_ROWS = Normalizer(rows=4, tokens=12, max_completion_tokens=6)


def _rows(batch: LossBatch, places: Sequence[int]) -> LossBatch:
    """Return the batch with only these rows."""
    import torch

    cut = {
        name: getattr(batch, name)[list(places)]
        for name in batch.__dataclass_fields__
        if isinstance(getattr(batch, name), torch.Tensor)
    }
    return replace(batch, **cut)


def _computed(subject: Subject, batch: LossBatch, normalizer: Normalizer) -> LossOutput:
    output: LossOutput = subject.build()(batch, normalizer)
    demand(isinstance(output, LossOutput), f"return a LossOutput, not {type(output).__name__}")
    demand(tuple(output.loss.shape) == (), f"the loss has shape {tuple(output.loss.shape)}, not ()")
    demand(
        bool(output.loss.isfinite()),
        f"the loss is {output.loss.item()}: masked positions may hold anything, NaN included; "
        "use torch.where with mask_BT",
    )
    return output


def loss_has_gradient(subject: Subject) -> None:
    """Check that the loss is a finite scalar with a finite gradient, 0 at masked positions."""
    import torch

    batch = _loss_batch(subject.build().traits)
    leaves = [batch.logp_BT, batch.entropy_BT, batch.student_logp_BTK]
    grads = torch.autograd.grad(
        _computed(subject, batch, _ALL_ROWS).loss,
        [leaf for leaf in leaves if leaf is not None],
        allow_unused=True,
    )
    known = [grad for grad in grads if grad is not None]
    demand(
        any(bool((grad != 0).any()) for grad in known),
        "no gradient reaches logp_BT or student_logp_BTK: nothing would be trained",
    )
    for grad in known:
        demand(bool(grad.isfinite().all()), "a gradient is not finite")
        outside = grad[~batch.mask_BT]
        demand(bool((outside == 0).all()), "a gradient reaches positions outside mask_BT")


def loss_adds_up(subject: Subject) -> None:
    """Check that parts of a batch add up, and the factor for several processes."""
    traits = subject.build().traits
    whole = _computed(subject, _loss_batch(traits), _ALL_ROWS).loss.item()
    parts = [
        _computed(subject, _rows(_loss_batch(traits), places), _ALL_ROWS).loss.item()
        for places in ([0, 1], [2, 3])
    ]
    demand(
        math.isclose(whole, sum(parts), rel_tol=1e-4, abs_tol=1e-6),
        f"one micro-batch has loss {whole:.6f}, the same rows in two have {sum(parts):.6f}: "
        "divide by the counts of the Normalizer, not by those of the batch",
    )
    two = _computed(subject, _loss_batch(traits), replace(_ALL_ROWS, world_size=2)).loss.item()
    demand(
        math.isclose(two, 2 * whole, rel_tol=1e-4, abs_tol=1e-6),
        f"with world_size 2 the loss is {two:.6f}, not twice {whole:.6f}: gradients are averaged "
        "over processes, so multiply by normalizer.world_size",
    )


def loss_is_pure(subject: Subject) -> None:
    """Check that a second call returns the same, and that the batch is not modified."""
    import torch

    batch = _loss_batch(subject.build().traits)
    names = [n for n in batch.__dataclass_fields__ if isinstance(getattr(batch, n), torch.Tensor)]
    before = {name: getattr(batch, name).detach().clone() for name in names}
    loss = subject.build()
    first, second = (loss(batch, _ALL_ROWS).loss.item() for _ in range(2))
    demand(first == second, f"two calls on one batch give {first} and {second}: keep no state")
    for name in names:
        same = torch.equal(getattr(batch, name).nan_to_num(7.0), before[name].nan_to_num(7.0))
        demand(same, f"{name} is changed in place: copy it first")


LOSS_CHECKS: tuple[Check, ...] = (
    Check("gradient", "a finite scalar, with a gradient inside mask_BT", loss_has_gradient),
    Check("adds-up", "micro-batches and processes add up to the loss of the step", loss_adds_up),
    Check("pure", "it keeps no state and changes no input", loss_is_pure),
)
