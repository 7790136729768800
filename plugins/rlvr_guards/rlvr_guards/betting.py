"""Sequential tests that may look after every step: bets against a hypothesis.

A test starts with a stake of 1 and bets on each observation at odds that are fair, or worse, if
the hypothesis holds. Its wealth is then a nonnegative supermartingale, and by Ville's inequality
the odds that it ever reaches 1/a are at most a, however often one looks. The stake is not placed
at once: ``1 / HORIZON`` of it begins to bet with each step, so that a fault that begins late is
not outweighed by a long healthy past. In ``HORIZON`` steps the whole stake is placed, so a test
that rejects at wealth 1/a does so wrongly in at most a of the runs of that length; the odds grow
in proportion to the length.

The means may drift, and completions of a group may depend on each other in any way: the tests of
means take one observation per group, and need nothing but its mean and its range [0, 1].
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rlvr_core.api import Json

HORIZON = 1000
"""Steps for which odds of a false alarm are stated."""

NOTHING = -1e9
"""Log wealth before the first bet; finite, so that a checkpoint holds it as JSON."""


class _Wealth:
    """Log wealth of several bets (L) against each of several hypotheses (K).

    Leading axes (``...``) are independent tests side by side, as simulations need.
    """

    def __init__(self, hypotheses: int, bets: int) -> None:
        self.log_KL: NDArray[np.float64] = np.full((hypotheses, bets), NOTHING)

    def gain(self, gain_KL: NDArray[np.float64]) -> None:
        """Place the stake of a step and multiply wealth by the step's gains."""
        staked_KL = np.logaddexp(self.log_KL, -math.log(HORIZON))
        self.log_KL = np.maximum(staked_KL + gain_KL, NOTHING)

    def evidence(self) -> NDArray[np.float64]:
        """Return the natural log of the mean wealth of the bets, of shape (..., K)."""
        top_K1 = self.log_KL.max(axis=-1, keepdims=True)
        mean_K: NDArray[np.float64] = top_K1[..., 0] + np.log(
            np.exp(self.log_KL - top_K1).mean(axis=-1)
        )
        return mean_K

    def state_dict(self) -> list[Any]:
        """Return the wealth as JSON."""
        state: list[Any] = self.log_KL.tolist()
        return state

    def load_state_dict(self, state: Any) -> None:
        """Restore the wealth."""
        self.log_KL = np.array(state, dtype=np.float64)


class MeanTest(_Wealth):
    """Tests hypotheses "the mean is at most b", or "at least b", of observations in [0, 1].

    Args:
        bounds: The bounds b, each strictly between 0 and 1.
        above: Whether to look for means above the bounds, against "at most b"; otherwise below.
    """

    SHARES = (0.03, 0.1, 0.3, 0.6, 0.95)
    """Bets, as shares of the largest one that cannot lose more than the wealth."""

    def __init__(self, bounds: Sequence[float] | NDArray[np.float64], *, above: bool) -> None:
        self._bounds_K = np.asarray(bounds, dtype=np.float64)
        super().__init__(len(self._bounds_K), len(self.SHARES))
        sign = 1.0 if above else -1.0
        largest_K = 1 / self._bounds_K if above else 1 / (1 - self._bounds_K)
        self._bet_KL = sign * np.array(self.SHARES) * largest_K[:, None]

    def add(
        self,
        values_V: NDArray[np.float64],
        counts_V: NDArray[np.float64],
        active_K: NDArray[np.bool_] | None = None,
    ) -> None:
        """Bet on a step's observations.

        Args:
            values_V: Distinct observations, in [0, 1].
            counts_V: Groups of each, of shape (..., V).
            active_K: The hypotheses to bet against, of shape (..., K); all if omitted.
        """
        excess_VK1 = values_V[:, None, None] - self._bounds_K[None, :, None]
        gain_VKL = np.log1p(self._bet_KL[None] * excess_VK1)
        before_KL = self.log_KL
        self.gain(np.tensordot(counts_V, gain_VKL, axes=1))
        if active_K is not None:
            self.log_KL = np.where(active_K[..., None], self.log_KL, before_KL)


class RepeatTest(_Wealth):
    """Tests "an event happens with at most its computed probability", event after event."""

    ODDS = (2.0, 5.0, 30.0, 1000.0)
    """Bets, as factors on the odds of an event."""

    def __init__(self) -> None:
        super().__init__(1, len(self.ODDS))
        self._factor_L = np.array(self.ODDS)

    def add(self, happened_N: Sequence[bool], probability_N: Sequence[float]) -> None:
        """Bet on a step's events.

        Args:
            happened_N: Whether each event happened.
            probability_N: An upper bound on the probability of each, given those before it.
        """
        self.gain(self.gains(happened_N, probability_N).sum(axis=0)[None, :])

    def gains(
        self, happened_N: Sequence[bool], probability_N: Sequence[float]
    ) -> NDArray[np.float64]:
        """Return what each bet gains by each event, of shape (N, L)."""
        happened_N1 = np.asarray(happened_N, dtype=np.float64)[:, None]
        probability_N1 = np.asarray(probability_N, dtype=np.float64)[:, None]
        fair_NL = np.log1p(probability_N1 * (self._factor_L - 1))
        gains_NL: NDArray[np.float64] = happened_N1 * np.log(self._factor_L) - fair_NL
        return gains_NL


class _WithParts:
    """A test that is made of others, and of what they have shown so far."""

    def parts(self) -> dict[str, NDArray[np.bool_] | MeanTest]:
        """Return what a checkpoint holds, by name."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, Json]:
        """Return what was shown, and the wealth of the bets."""
        parts = self.parts().items()
        return {n: p.state_dict() if isinstance(p, MeanTest) else p.tolist() for n, p in parts}

    def load_state_dict(self, state: Any) -> None:
        """Restore the state."""
        for name, part in self.parts().items():
            if isinstance(part, MeanTest):
                part.load_state_dict(state[name])
            else:
                part[:] = state[name]


class FallTest(_WithParts):
    """Tests that a mean never falls by more than a share of any level it has had.

    Two sets of bets over a grid of levels c: a level is *reached* once "the mean has been at most
    c in every step" is rejected; from the next step on, "the mean is at least (1 - share) c" is
    tested. Nothing is estimated, so noise cannot make a level: a healthy run is one whose means
    stay above ``1 - share`` of every earlier one, and it is stopped with odds of at most ``odds``.

    Half of the odds go to levels that the mean never had: the wealth against a higher level is
    never larger than that against a lower one, so all of them together cost no more than the
    lowest. The other half is shared by the tests of the levels below.

    Args:
        share: Share of a level that may be lost.
        odds: Odds of a false alarm in ``HORIZON`` steps.
    """

    RATIO, LOWEST = 0.9, 2e-3

    def __init__(self, share: float, odds: float) -> None:
        n = math.ceil(math.log(self.LOWEST) / math.log(self.RATIO))
        self.share = share
        self.level_K: NDArray[np.float64] = 0.995 * self.RATIO ** np.arange(n, dtype=np.float64)
        self.reached_K = np.zeros(n, dtype=bool)
        self._reach, self._limit = math.log(2 / odds), math.log(2 * n / odds)
        self._up = MeanTest(self.level_K, above=True)
        self._down = MeanTest((1 - share) * self.level_K, above=False)

    @property
    def level(self) -> float | None:
        """The highest level reached; None before the first."""
        return float(self.level_K[self.reached_K].max()) if self.reached_K.any() else None

    def add(
        self, values_V: NDArray[np.float64], counts_V: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Add a step's observations, as ``MeanTest.add``.

        Returns:
            The evidence of a fall as a share of what rejects (1 or more), of shape (...).
        """
        self._down.add(values_V, counts_V, self.reached_K)
        self._up.add(values_V, counts_V)
        evidence_K = np.where(self.reached_K, self._down.evidence(), 0.0)
        self.reached_K = self.reached_K | (self._up.evidence() >= self._reach)
        share: NDArray[np.float64] = np.maximum(evidence_K.max(axis=-1) / self._limit, 0.0)
        return share

    def parts(self) -> dict[str, NDArray[np.bool_] | MeanTest]:
        """See ``_WithParts``."""
        return {"reached": self.reached_K, "up": self._up, "down": self._down}


class RiseTest(_WithParts):
    """Tests that a share does not exceed a bound, once it has kept it.

    The bound is tested from when "the mean is at least the bound less ``MARGIN``" is rejected: a
    share that has been about the bound from the start is not stopped by its noise.

    Args:
        bound: The bound; between ``MARGIN`` and 1.
        odds: Odds of a false alarm in ``HORIZON`` steps.
    """

    MARGIN = 0.1

    def __init__(self, bound: float, odds: float) -> None:
        self.bound = min(max(bound, self.MARGIN + 0.01), 0.999)
        self.kept = np.zeros(1, dtype=bool)
        self._limit = math.log(2 / odds)
        self._below = MeanTest([self.bound - self.MARGIN], above=False)
        self._later = MeanTest([self.bound], above=True)

    def add(
        self, values_V: NDArray[np.float64], counts_V: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Add a step's observations, as ``MeanTest.add``; return the evidence as ``FallTest``."""
        self._later.add(values_V, counts_V, self.kept)
        self._below.add(values_V, counts_V)
        later_K = np.where(self.kept, self._later.evidence(), 0.0)
        self.kept = self.kept | (self._below.evidence() >= self._limit)
        most: NDArray[np.float64] = later_K[..., 0]
        return np.maximum(most / self._limit, 0.0)

    def parts(self) -> dict[str, NDArray[np.bool_] | MeanTest]:
        """See ``_WithParts``."""
        return {"kept": self.kept, "below": self._below, "later": self._later}
