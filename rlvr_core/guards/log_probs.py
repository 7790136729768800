"""Log-probs of two sides: the slope of one on the other, their mean difference and k3."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass

import torch
from torch import Tensor

DECIDING = 24
"""Tokens that decide a slope, at least; a policy that is nearly sure has few in a step."""


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
        powers = [x_N, x_N**2, x_N**3, x_N**4]
        with_y = [y_N, y_N * y_N, *(power * y_N for power in powers[:3])]
        columns = (*powers, *with_y, x_N * y_N**2, x_N**2 * y_N**2, k3_N, k3_N * k3_N)
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
        slope: Of the trainer's log-probs on the engine's; 1 where these do not vary.
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


def fit(sums: Sums) -> Fit:
    """Fit trainer = engine + bias + (slope - 1) * (engine - mean) by least squares.

    The standard error is White's (HC0, Econometrica 48, 1980): rounding errors are larger where a
    token is less likely, and these tokens decide the slope. Tokens that are there several times
    count once in it.
    """
    n, distinct = max(sums.n, 1.0), max(sums.distinct, 1.0)
    a, b = sums.x / n, sums.y / n
    var_x = max(0.0, sums.xx / n - a**2)
    slope, error, deciding = 1.0, math.inf, 0.0
    if var_x > 1e-4 and n > 2:
        tilt = (sums.xy / n - a * b) / var_x
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
    return Fit(slope, error, deciding, b, bias_error, k3, k3_error, int(sums.n))
