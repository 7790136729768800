"""What every loss has promised, whatever its formula: micro-batches and processes add up.

A loss of a plugin has no formula here. But it gives a micro-batch's share of the loss of an update,
so the same rows have the same loss in one micro-batch or in two, and with twice the processes, over
which gradients are averaged, it is twice as large (``Normalizer``). What divides by the counts of
its micro-batch, or forgets the processes, trains rows by where they were packed.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from rlvr_core.api import LossBatch, Normalizer
    from rlvr_core.builtin.invariants.check import Seen

SHARE = 1e-3
"""Share of the losses of the parts that is rounding."""

TINY = 1e-30
"""What float32 may flush to 0."""


def broken_contract(name: str, loss: Any, seen: Sequence[Seen], place: int) -> str:
    """Say which promise a loss does not keep; empty if it keeps them, or none can be tried.

    Args:
        name: Its name.
        loss: The loss; a copy of it is called, which keeps no numbers and no graph.
        seen: The micro-batches of the update.
        place: Its place in each of them.
    """
    one = max(seen, key=lambda micro: len(micro.batch.mask_BT))
    batch, normalizer = one.losses[place][1], one.normalizer
    sides = _sides(batch)
    if not all(sides):
        return ""
    loss = copy.copy(loss)
    whole, again = (_value(loss, batch, normalizer) for _ in range(2))
    if whole != again or not math.isfinite(whole):
        return ""  # it keeps state or draws random numbers: nothing can be compared
    parts = [_value(loss, *_only(batch, normalizer, rows)) for rows in sides]
    size = sum(map(abs, parts))
    if len(seen) > 1 or normalizer.world_size > 1:
        apart = abs(whole - sum(parts))
        if apart > SHARE * size + TINY:
            return (
                f"loss {name} of the same rows is {whole:.6g} in one micro-batch and "
                f"{sum(parts):.6g} in two (band: {SHARE:g} of their parts): it divides by counts "
                "of its micro-batch, where Normalizer has the denominators of the update"
            )
    if normalizer.world_size > 1:
        alone = replace(normalizer, world_size=1)
        for rows, part in zip(sides, parts, strict=True):
            due = normalizer.world_size * _value(loss, *_only(batch, alone, rows))
            if abs(part - due) > SHARE * size + TINY:
                return (
                    f"loss {name} is {part:.6g} in a run of {normalizer.world_size} processes, and "
                    f"{due:.6g} would be right (band: {SHARE:g} of it): gradients are averaged "
                    "over processes, so it has to be multiplied by normalizer.world_size"
                )
    return ""


def _sides(batch: LossBatch) -> tuple[list[int], list[int]]:
    """Return the rows that did better and the others; every other row where that parts nothing."""
    better_B = (batch.advantage_B > 0).tolist()
    sides = (
        [row for row, better in enumerate(better_B) if better],
        [row for row, better in enumerate(better_B) if not better],
    )
    if all(sides):
        return sides
    rows = list(range(len(better_B)))
    return rows[::2], rows[1::2]


def _only(
    batch: LossBatch, normalizer: Normalizer, rows: list[int]
) -> tuple[LossBatch, Normalizer]:
    """Return batch and denominators as they are for some of the rows."""
    given: dict[str, Any] = {field.name: getattr(batch, field.name) for field in fields(batch)}
    cut: dict[str, Any] = {
        name: value[rows] for name, value in given.items() if isinstance(value, Tensor)
    }
    share_B = normalizer.share_B
    return replace(batch, **cut), replace(
        normalizer, share_B=None if share_B is None else share_B[rows]
    )


def _value(loss: Any, batch: LossBatch, normalizer: Normalizer) -> float:
    with torch.no_grad():
        return float(loss(batch, normalizer).loss)
