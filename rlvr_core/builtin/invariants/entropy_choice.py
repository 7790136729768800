"""Tokens of high entropy: those that a loss with ``top_entropy`` is of.

The choice is made in a pass before the update, of all tokens of the update. Here it is compared
with the entropies that the training pass computes. Those need not agree to the last digit, and do
not where an adapter drops inputs, so it is only a fault if a good part of the tokens that were
chosen are not among those of highest entropy, or if their number is not the share of the config.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import add
from typing import TYPE_CHECKING

import torch

from rlvr_core.api import LossTraits, traits_of

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr_core.builtin.invariants.check import Seen

LEAST = 20
"""Chosen tokens of an update below which nothing is said."""
MISPLACED = 0.03
"""Share of the chosen tokens that may have a lower entropy than tokens that were left out. In 64
updates of healthy runs none had, in float32 and in bfloat16 on a CPU."""
DROPPED = 0.5
"""The same where an adapter drops inputs in the training pass."""
FEW = 3
"""Chosen tokens that may have a lower one, whatever their share."""
BINS, FIRST, STEP = 256, 1e-4, 1.05
"""Entropies are counted in bins, each ``STEP`` times as far up as the one before. The first ends at
``FIRST`` nats, and the last begins at 24."""
TIE = 1e-3
"""Entropies in nats that are no further apart are taken as equal."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Tokens that one process saw for a loss in an update.

    Attributes:
        share: Share of the tokens that the loss is to be of.
        tokens: Loss tokens.
        tied: Chosen tokens whose entropy is that of the least one chosen of a micro-batch.
        chosen: Tokens that were chosen, by the bin of their entropy.
        left: Those that were not, likewise.
    """

    share: float
    tokens: int = 0
    tied: int = 0
    chosen: tuple[int, ...] = (0,) * BINS
    left: tuple[int, ...] = (0,) * BINS

    def __add__(self, other: Choice) -> Choice:
        """Add the counts of another process or micro-batch."""
        pairs = ((self.chosen, other.chosen), (self.left, other.left))
        bins = (tuple(map(add, one, more)) for one, more in pairs)
        return Choice(self.share, self.tokens + other.tokens, self.tied + other.tied, *bins)

    @property
    def misplaced(self) -> int:
        """Chosen tokens that are not among as many of highest entropy, by more than a bin."""
        missing, place = sum(self.chosen), BINS
        while missing > 0:
            place -= 1
            missing -= self.chosen[place] + self.left[place]
        return sum(self.chosen[: max(0, place - 1)])


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
    if not len(entropy_N):
        return Choice(share)
    own_K = entropy_N[chosen_N]
    tied = int((own_K <= own_K.amin() + TIE).sum()) if len(own_K) else 0
    above_N = (entropy_N.double().clamp(min=FIRST / 2) / FIRST).log() / math.log(STEP)
    place_N = (above_N.floor().long() + 1).clamp(0, BINS - 1)
    of_both = torch.bincount(place_N + BINS * chosen_N, minlength=2 * BINS).tolist()
    return Choice(share, len(entropy_N), tied, tuple(of_both[BINS:]), tuple(of_both[:BINS]))


def wrong_choice(of_processes: Iterable[dict[str, Choice]], *, dropout: bool = False) -> str:
    """Return what is wrong with the tokens that were chosen in an update; empty if nothing.

    Args:
        of_processes: What each process saw.
        dropout: Whether the training pass drops inputs, and the pass that chose did not.
    """
    band = DROPPED if dropout else MISPLACED
    total: dict[str, Choice] = {}
    for choices_of_process in of_processes:
        for name, one in choices_of_process.items():
            total[name] = total.get(name, Choice(one.share)) + one
    for name, one in total.items():
        chosen = sum(one.chosen)
        if chosen >= LEAST and one.misplaced > max(FEW, band * chosen):
            return (
                f"{one.misplaced} of the {chosen} tokens that {name} trains on as those of high "
                f"entropy have a lower entropy than tokens of the update that are left out (band: "
                f"a share of {band:g})"
            )
        due = one.share * one.tokens
        if one.tokens >= LEAST and not due - 1 <= chosen <= due + 1 + one.tied:
            return (
                f"{name} trains on {chosen} of {one.tokens} tokens as those of high entropy, "
                f"and top_entropy: {one.share:g} makes them {due:.0f}"
            )
    return ""
