"""Tokens of high entropy: those that a loss with ``top_entropy`` is of.

The choice is made in a pass before the update. Here it is compared with the entropies that the
training pass computes; those need not agree to the last digit (dropout, kernels), so it is only a
fault if most of the tokens that were chosen are not among those of highest entropy, or if their
number is not the share of the config.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

import torch

from rlvr_core.api import LossTraits, traits_of

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr_core.builtin.invariants.check import Seen

LEAST = 20
"""Chosen tokens of an update below which nothing is said."""
MISPLACED = 0.5
"""Share of the chosen tokens that may have a lower entropy than tokens that were left out."""
TIE = 1e-3
"""Entropies in nats that are no further apart are taken as equal."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Tokens that one process saw for a loss in an update.

    Attributes:
        share: Share of the tokens that the loss is to be of.
        tokens: Loss tokens.
        chosen: Those that were chosen.
        misplaced: Chosen tokens of a micro-batch that are not among as many of highest entropy.
        tied: Chosen tokens whose entropy is that of the least one chosen.
    """

    share: float
    tokens: int = 0
    chosen: int = 0
    misplaced: int = 0
    tied: int = 0

    def __add__(self, other: Choice) -> Choice:
        """Add the counts of another process or micro-batch."""
        counts = zip(astuple(self)[1:], astuple(other)[1:], strict=True)
        return Choice(self.share, *(one + more for one, more in counts))


def choices(seen: Sequence[Seen]) -> dict[str, Choice]:
    """Count the tokens that were chosen in an update, by loss."""
    found: dict[str, Choice] = {}
    for micro in seen:
        for number, (loss, batch, _) in enumerate(micro.losses):
            share = traits_of(loss, LossTraits).top_entropy
            entropy_BT, chosen_BT = batch.entropy_BT, batch.entropy_mask_BT
            if share >= 1 or entropy_BT is None or chosen_BT is None:
                continue
            mask_BT = batch.mask_BT
            name = f"{type(loss).__name__} {number}"
            one = _choice(share, entropy_BT.detach()[mask_BT], chosen_BT[mask_BT])
            found[name] = found.get(name, Choice(share)) + one
    return found


def _choice(share: float, entropy_N: Tensor, chosen_N: Tensor) -> Choice:
    k = int(chosen_N.sum())
    if not k:
        return Choice(share, len(chosen_N))
    least, own_K = entropy_N.topk(k).values[-1], entropy_N[chosen_N]
    counts = torch.stack([(own_K < least - TIE).sum(), (own_K <= own_K.amin() + TIE).sum()])
    return Choice(share, len(chosen_N), k, *counts.tolist())


def wrong_choice(of_processes: Iterable[dict[str, Choice]]) -> str:
    """Return what is wrong with the tokens that were chosen in an update; empty if nothing."""
    total: dict[str, Choice] = {}
    for choices_of_process in of_processes:
        for name, one in choices_of_process.items():
            total[name] = total.get(name, Choice(one.share)) + one
    for name, one in total.items():
        if one.chosen >= LEAST and one.misplaced > MISPLACED * one.chosen:
            return (
                f"{one.misplaced} of the {one.chosen} tokens that {name} trains on as those of "
                f"high entropy have a lower entropy than tokens that are left out (band: half)"
            )
        due = one.share * one.tokens
        if one.tokens >= LEAST and not due - 1 <= one.chosen <= due + 1 + one.tied:
            return (
                f"{name} trains on {one.chosen} of {one.tokens} tokens as those of high entropy, "
                f"and top_entropy: {one.share:g} makes them {due:.0f}"
            )
    return ""
