"""How found values differ from those expected: how far beyond rounding, and in what way.

Also log-probs of two sides: their slope and k3, and where in a row they differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


DECIDING = 24
"""Tokens that decide a slope, at least; a policy that is nearly sure has few in a step."""


def larger(one: float, other: float) -> float:
    """Return the larger of two errors; NaN stands for one that is not known."""
    return other if math.isnan(one) else one if math.isnan(other) else max(one, other)


@dataclass(frozen=True, slots=True)
class Difference:
    """A comparison.

    Attributes:
        bad: Values outside the band; 0 where they are too few to count.
        n: Values compared.
        worst: Largest difference, in widths of the band.
        factor: What the expected values must be multiplied by to come nearest.
        cosine: Of the two, 1 for the same direction.
    """

    bad: int
    n: int
    worst: float
    factor: float
    cosine: float


def compare(found: Tensor, expected: Tensor, band: Tensor, *, share: float = 0.02) -> Difference:
    """Compare values one by one.

    One value of many may be off, by a rounding that no band foresees; two that are more than the
    given share may not. A NaN is off.
    """
    if not len(found):
        return Difference(0, 0, 0.0, 1.0, 1.0)
    apart = ((found - expected).abs() / band).nan_to_num(nan=1e30)
    bad = int((apart > 1.0).sum())
    counts = bad > share * len(found) and bad >= min(2, len(found))
    both = float(found @ expected)
    squares = float(expected @ expected), float(found @ found)
    factor = both / squares[0] if squares[0] else float("nan")
    product = (squares[0] * squares[1]) ** 0.5
    cosine = both / product if product else float("nan")
    return Difference(bad if counts else 0, len(found), float(apart.max()), factor, cosine)


def described(difference: Difference, what: str) -> str:
    """Say how values differ from something."""
    where = f"{difference.bad} of {difference.n} elements differ"
    if difference.cosine > 0.999:
        return f"{where}, and are {difference.factor:.4g} times {what}"
    if difference.cosine < -0.999:
        return f"{where}, and are of the opposite sign ({difference.factor:.4g} times {what})"
    return f"{where}, with a cosine of {difference.cosine:.3f} to {what} (1 is the same direction)"


@dataclass(slots=True)
class Sums:
    """Sums over tokens, x being the engine's log-prob and y the trainer's minus the engine's.

    Attributes:
        n: Tokens.
        distinct: Different values of x among them: completions that begin alike share x and y, and
            are no new evidence.
    """

    n: float = 0.0
    distinct: float = 0.0
    x: float = 0.0
    xx: float = 0.0
    xxx: float = 0.0
    xxxx: float = 0.0
    y: float = 0.0
    yy: float = 0.0
    xy: float = 0.0
    xxy: float = 0.0
    xxxy: float = 0.0
    xyy: float = 0.0
    xxyy: float = 0.0
    k3: float = 0.0
    k3_square: float = 0.0

    @classmethod
    def of(cls, trainer_N: Tensor, engine_N: Tensor) -> Sums:
        """Return the sums over two log-prob vectors of shape (N,)."""
        x_N = engine_N.double()
        y_N = trainer_N.double() - x_N
        y_N = torch.nan_to_num(y_N, nan=30.0, posinf=30.0, neginf=-30.0).clamp(-30.0, 30.0)
        x_N = torch.nan_to_num(x_N, nan=0.0, neginf=-30.0)
        k3_N = torch.expm1(y_N) - y_N
        of_x = [x_N]
        while len(of_x) < 4:
            of_x.append(of_x[-1] * x_N)
        of_y = [y_N, y_N * y_N, *(power * y_N for power in of_x[:3])]
        columns = (*of_x, *of_y, x_N * of_y[1], of_x[1] * of_y[1], k3_N, k3_N * k3_N)
        sums = torch.stack(columns).sum(dim=1)
        distinct = len(x_N.unique()) if len(x_N) else 0  # type: ignore[no-untyped-call]
        return cls(float(len(x_N)), float(distinct), *sums.tolist())

    def add(self, other: Sums) -> Sums:
        """Return the sums over both."""
        return Sums(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True, slots=True)
class Fit:
    """How far trainer and engine differ systematically.

    Attributes:
        slope: Of the trainer's log-probs on the engine's; NaN where these do not vary.
        slope_error: Standard error of it, whose size may differ from token to token.
        deciding: How many tokens the slope is in effect computed from: where most are nearly sure,
            few are far from the mean.
        bias: Mean of trainer - engine, in nats.
        bias_error: Standard error of it.
        k3: Mean of exp(d) - d - 1, d being trainer - engine.
        k3_error: Standard error of it.
        tokens: Tokens compared.
    """

    slope: float
    slope_error: float
    deciding: float
    bias: float
    bias_error: float
    k3: float
    k3_error: float
    tokens: int

    def beyond(self, slope: float, k3: float) -> bool:
        """Whether slope or k3 are beyond their bands by five standard errors.

        Args:
            slope: Largest |slope - 1| of rounding; a slope counts if ``DECIDING`` tokens decide it.
            k3: Largest k3 of rounding.
        """
        tilted = abs(self.slope - 1) > slope + 5 * self.slope_error
        return (tilted and self.deciding >= DECIDING) or self.k3 - 5 * self.k3_error > k3


def fit(sums: Sums) -> Fit:
    """Fit trainer = engine + bias + (slope - 1) * (engine - mean) by least squares.

    The standard error is White's (HC0, Econometrica 48, 1980): rounding errors are larger where a
    token is less likely, and these tokens decide the slope. Tokens that are there several times
    count once in it.
    """
    n, distinct = sums.n, max(sums.distinct, 1.0)
    a, b = sums.x / n, sums.y / n
    var_x = max(0.0, sums.xx / n - a**2)
    covariance = sums.xy / n - a * b
    slope = error = math.nan
    deciding = 0.0
    if var_x > 1e-4 and n > 2:
        tilt = covariance / var_x
        fourth = sums.xxxx - 4 * a * sums.xxx + 6 * a**2 * sums.xx - 3 * n * a**4
        # sums of dx^2 dy^2 and dx^3 dy, dx and dy being the distances from the means
        squares = (
            sums.xxyy
            - 2 * b * sums.xxy
            + b**2 * sums.xx
            - 2 * a * (sums.xyy - 2 * b * sums.xy + b**2 * sums.x)
            + a**2 * (sums.yy - n * b**2)
        )
        cubes = (
            sums.xxxy
            - 3 * a * sums.xxy
            + 3 * a**2 * sums.xy
            - a**3 * sums.y
            - b * (sums.xxx - 3 * a * sums.xx + 2 * n * a**3)
        )
        spread = max(0.0, squares - 2 * tilt * cubes + tilt**2 * fourth)
        slope, error = 1 + tilt, math.sqrt(spread * n / distinct) / (n * var_x)
        deciding = (n * var_x) ** 2 / fourth * distinct / n if fourth > 0 else 0.0
    k3 = sums.k3 / n
    k3_error = math.sqrt(max(0.0, sums.k3_square / n - k3**2) / distinct)
    bias_error = math.sqrt(max(0.0, sums.yy / n - b**2) / distinct)
    return Fit(slope, error, deciding, b, bias_error, k3, k3_error, int(n))


POSITIONS = ("first", "last", "other")
"""Where tokens stand in their rows."""

SIDES = (
    (
        "the loss used",
        "compute the log-softmax of the training pass in float32, whatever the model computes in, "
        "and keep what comes of it in float32",
    ),
    (
        "the engine reported",
        "compute the log-softmax of the engine in float32, and do not round its log-probs on their "
        "way to the trainer: importance weights are made of them",
    ),
)
"""Whose log-probs are looked at one by one, and what to do about those that are rounded."""

LEAST = 32
"""Tokens at one position that are judged, at least. In a healthy run a twentieth of them at most is
astray, so that half of them are in one of 10^11 steps."""


@dataclass(frozen=True, slots=True)
class Positions:
    """How many log-probs of two sides differ by more than half, by the position in the row.

    Attributes:
        counts: For each of ``POSITIONS`` tokens, and those astray; then for trainer and engine all
            tokens that it is not sure of, and those of them whose log-prob half precision can hold.
    """

    counts: Sequence[float] = (0.0,) * (2 * len(POSITIONS) + 2 * len(SIDES))

    @classmethod
    def of(
        cls,
        trainer_BT: Tensor,
        engine_BT: Tensor,
        mask_BT: Tensor,
        chosen_BT: Tensor,
        floor: float,
    ) -> Positions:
        """Count tokens.

        Args:
            trainer_BT: Log-probs of the one side.
            engine_BT: Those of the other.
            mask_BT: Tokens of the rows.
            chosen_BT: Those to count.
            floor: Tokens that both sides are surer of, in nats, do not count: it is rounding.
        """
        number_BT = mask_BT.cumsum(1)
        first_BT, last_BT = number_BT == 1, number_BT == number_BT[:, -1:]
        places = (first_BT, last_BT & ~first_BT, ~(first_BT | last_BT))
        size_BT = torch.maximum(trainer_BT.abs(), engine_BT.abs())
        counts_BT = chosen_BT & (size_BT > floor)
        # not a number is astray
        astray_BT = counts_BT & ~((trainer_BT - engine_BT).abs() <= size_BT / 2)
        found = [one & place for place in places for one in (counts_BT, astray_BT)]
        for side_BT in (trainer_BT, engine_BT):
            short_BT = (side_BT == side_BT.bfloat16()) | (side_BT == side_BT.half())
            unsure_BT = chosen_BT & (side_BT.abs() > floor)
            found += [unsure_BT, unsure_BT & short_BT]
        return cls(torch.stack([one.sum() for one in found]).tolist())

    def add(self, other: Positions) -> Positions:
        """Return the counts of both."""
        return Positions([a + b for a, b in zip(self.counts, other.counts, strict=True)])

    def judged(self, *, strict: bool) -> tuple[float, tuple[str, ...], Positions]:
        """Return the largest share astray, what is wrong with its remedy, and what is left over.

        The share is NaN, and nothing wrong, where no position has tokens enough; these wait. Unless
        ``strict``, nothing is wrong with a position, whatever the share.
        """
        left, worst, wrong = list(self.counts), math.nan, tuple[str, ...]()
        for place, name in enumerate(POSITIONS):
            n, astray = self.counts[2 * place : 2 * place + 2]
            if n < LEAST:
                continue
            left[2 * place : 2 * place + 2] = 0.0, 0.0
            worst = astray / n if math.isnan(worst) else max(worst, astray / n)
            if strict and astray > n / 2 and not wrong:
                wrong = (
                    f"of {n:.0f} tokens at the position {name!r} of their rows {astray:.0f} have "
                    "log-probs in the loss that differ from the engine's by more than half (band: "
                    "half of the tokens)",
                    "the engine does not report the log-prob of the tokens at this position, or "
                    "that of others, or the training pass reads other tokens there; another "
                    "temperature, or coarser numbers, show first at tokens that are nearly sure",
                )
        for place, (side, remedy) in enumerate(SIDES, start=len(POSITIONS)):
            unsure, short = self.counts[2 * place : 2 * place + 2]
            if unsure < 2 * LEAST:
                continue
            left[2 * place : 2 * place + 2] = 0.0, 0.0
            if short == unsure and not wrong:
                wrong = (
                    f"all {unsure:.0f} log-probs that {side} are numbers of half precision "
                    "(bfloat16 or float16), whose dtype has no room for a loss",
                    remedy,
                )
        return worst, wrong, Positions(left)
