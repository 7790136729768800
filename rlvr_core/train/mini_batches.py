"""The mini-batches of a step, one optimizer update each, and what is said of all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from rlvr_core.protocols import Normalizer
from rlvr_core.train.batch import Row
from rlvr_core.train.objective import Part
from rlvr_core.train.optim import Update
from rlvr_core.train.parallel import Work
from rlvr_core.train.totals import Totals

_OF_AN_ITERATION = ("ratio/", "clip_fraction/")
"""Metrics that say how far the policy has moved from where it sampled."""


@dataclass(frozen=True, slots=True)
class Told:
    """What other models than the policy say of a micro-batch.

    Attributes:
        taught: By term, the most likely tokens (N, K) of its teacher and their log-probs (B, T, K).
        ref_logp_BT: The reference's log-probs; None where no loss asks for them.
    """

    taught: dict[str, tuple[Tensor, Tensor]]
    ref_logp_BT: Tensor | None


@dataclass(slots=True)
class Job:
    """A part of a mini-batch, packed.

    Attributes:
        part: Rows and losses.
        normalizer: Denominators of the mini-batch.
        work: This process's micro-batches.
        old: By micro-batch, log-probs (B, T) at the time of sampling; empty where none is needed.
        told: By micro-batch, what other models say of it, where that holds for every iteration.
    """

    part: Part
    normalizer: Normalizer
    work: list[Work]
    old: list[Tensor] = field(default_factory=list)
    told: dict[int, Told] = field(default_factory=dict)


MiniBatch = list[Job]


def cut(
    parts: Sequence[Part],
    most: int,
    normalizer: Callable[[Part], Normalizer],
    pack: Callable[[Sequence[Row]], list[Work]],
) -> list[MiniBatch]:
    """What each update of an iteration is made of.

    Args:
        parts: Those of the step.
        most: Mini-batches that are asked for; there are never more than groups.
        normalizer: Denominators of a part.
        pack: A process's micro-batches of all rows.

    Returns:
        Group ``g`` is in mini-batch ``g % len(...)``. One without a loss token is empty.
    """
    parts = [part for part in parts if part.groups]
    count = min([most, *(len(part.groups) for part in parts)]) if parts else 0
    batches: list[MiniBatch] = [[] for _ in range(count)]
    for index, batch in enumerate(batches):
        for part in (whole.mini_batch(index, count) for whole in parts):
            step = normalizer(part)
            if step.rows:
                batch.append(Job(part, step, pack(part.rows)))
    return batches


def counts(parts: Sequence[Part], normalizer: Callable[[Part], Normalizer]) -> dict[str, float]:
    """Rows and loss tokens of a step, each counted once however often it is read."""
    metrics: dict[str, float] = {}
    for part in parts:
        step = normalizer(part)
        metrics[f"{part.prefix}rows"] = step.rows
        metrics[f"{part.prefix}tokens/loss"] = step.tokens
    return metrics


def summary(
    totals: Sequence[Totals], updates: Sequence[Update], iterations: int
) -> dict[str, float]:
    """Metrics over all updates of a step and, with several iterations, over those of each.

    Args:
        totals: What each update counted.
        updates: The optimizer's word on each.
        iterations: How many; each made the same number of updates.
    """
    metrics = Totals.over(totals)
    metrics["grad_norm"] = sum(update.grad_norm for update in updates) / len(updates)
    if iterations > 1:
        share = len(totals) // iterations
        for number in range(iterations):
            found = Totals.over(totals[number * share :][:share])
            metrics |= {
                f"iteration/{number + 1}/{name}": value
                for name, value in found.items()
                if name.startswith(_OF_AN_ITERATION)
            }
    return metrics


def reads(
    batches: Sequence[MiniBatch], updates: Sequence[Update], iterations: int
) -> dict[str, float]:
    """What a step of several updates did: how many of them, and how many rows they read."""
    norms = [update.grad_norm for update in updates]
    metrics: dict[str, float] = {
        "updates/applied": sum(update.applied for update in updates),
        "updates/skipped": sum(not update.applied for update in updates),
        "grad_norm/max": max(norms, key=lambda norm: (math.isnan(norm), norm)),
    }
    for job in (job for batch in batches for job in batch):
        name = f"{job.part.prefix}rows/read"
        metrics[name] = metrics.get(name, 0) + job.normalizer.rows * iterations
    return metrics
