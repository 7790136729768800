"""Log-probs of trainer and engine by how far into its completion a token is.

What is wrong from some token on only, such as a cache, a window, a scaling of long contexts, or a
kernel that takes over, hardly counts in a mean over all tokens, most of which come before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

import torch

from rlvr_core.builtin.invariants.differences import DECIDING, Fit, Sums, fit

if TYPE_CHECKING:
    from torch import Tensor

ENDS = (8, 16, 32, 64, 256)
"""Tokens before which a part of a completion ends; the last part goes on."""

LAST = 1 << 40
"""Where no completion has a token."""

LEAST_TOKENS = 64
"""Tokens of a part that are judged, at least."""

K3 = 4.0
"""Widths of the band of k3 that a part may have: one of unlikely tokens has more than the mean."""

FEWEST, SHARE = 3, 1e-3
"""Tokens, and share of all, that may not differ by more than rounding ever does."""


@dataclass(frozen=True, slots=True)
class ByDepth:
    """Sums over tokens by their place in the completion.

    Attributes:
        parts: One for each of ``ENDS``, and one for what is behind.
        far: Tokens that differ by more than the largest rounding.
    """

    parts: tuple[Sums, ...] = (Sums(),) * (len(ENDS) + 1)
    far: float = 0.0

    @classmethod
    def of(
        cls, trainer_BT: Tensor, engine_BT: Tensor, chosen_BT: Tensor, largest: float
    ) -> ByDepth:
        """Sum up the chosen tokens of two (B, T) log-probs; column t has token t."""
        column_BT = torch.arange(chosen_BT.shape[1], device=chosen_BT.device).expand_as(chosen_BT)
        whole_3BT = torch.stack([trainer_BT, engine_BT, column_BT]).double()
        # one transfer from a GPU for all parts
        trainer_N, engine_N, column_N = whole_3BT[:, chosen_BT].cpu()
        parts, begin = [], 0
        for end in (*ENDS, LAST):
            there_N = (column_N >= begin) & (column_N < end)
            parts.append(Sums.of(trainer_N[there_N], engine_N[there_N]))
            begin = end
        far = int((~((trainer_N - engine_N).abs() <= largest)).sum())
        return cls(tuple(parts), float(far))

    def add(self, other: ByDepth) -> ByDepth:
        """Return the sums of both."""
        parts = (a.add(b) for a, b in zip(self.parts, other.parts, strict=True))
        return ByDepth(tuple(parts), self.far + other.far)

    def worst(self, slope: float, k3: float) -> tuple[str, Fit] | None:
        """Return the first part that is beyond its bands, in words, with its fit."""
        for place, sums in enumerate(self.parts):
            if sums.n < LEAST_TOKENS:
                continue
            found = fit(sums)
            if found.beyond(slope, K3 * k3):
                begin = ENDS[place - 1] + 1 if place else 1
                end = f"to {ENDS[place]}" if place < len(ENDS) else "on"
                return f"tokens {begin} {end} of completions", found
        return None

    @property
    def astray(self) -> bool:
        """Whether more tokens are far apart than rounding explains."""
        n = sum(part.n for part in self.parts)
        return self.far >= FEWEST and self.far > SHARE * n

    def without_known(self, slope: float) -> ByDepth:
        """Return the sums that wait for more tokens: those of parts that are known well go."""
        parts = tuple(Sums() if _known(one, slope) else one for one in self.parts)
        return ByDepth(parts, 0.0)

    def numbers(self) -> list[float]:
        """Return all numbers, for a checkpoint."""
        return [number for part in self.parts for number in astuple(part)]

    @classmethod
    def from_numbers(cls, numbers: Sequence[float]) -> ByDepth:
        """Return what ``numbers`` was called on; sums of another version are forgotten."""
        size = len(astuple(Sums()))
        if len(numbers) != size * (len(ENDS) + 1):
            return cls()
        whole = torch.tensor(numbers, dtype=torch.float64).view(-1, size).tolist()
        return cls(tuple(Sums(*row) for row in whole))


def _known(sums: Sums, slope: float) -> bool:
    if sums.n < LEAST_TOKENS:
        return False
    found = fit(sums)
    return found.deciding >= DECIDING and 8 * found.slope_error <= slope
