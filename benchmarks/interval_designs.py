"""How often 95% intervals hold the truth where problems are unlike: in completions, in lengths.

Unequal counts: some problems have one answer with an outcome and others several, because answers
are lost, by chance or where problems are hard. Measured are the strata that evaluations have and,
beside them, the interval that takes all problems for alike. Outliers: few problems have much longer
answers than all others. Measured is also what would come of a warning where one problem carries
more than half of the variance.

    python benchmarks/interval_designs.py    # four minutes on one core
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
from interval_coverage import Array, Cell
from numpy.typing import NDArray

from rlvr_core.builtin.evals import intervals

Counts = NDArray[np.int64]

PROBLEMS = (15, 30, 100, 1000)
RATES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 0.95)
CONCENTRATIONS = (0.3, 1.0, 3.0, 10.0, 1000.0)
OUTLIERS = ((0.1, 5.0), (0.1, 10.0), (0.05, 20.0), (0.2, 5.0))
"""Share of problems with longer answers, and how many times longer these are."""


def _share_single(share: float) -> Callable[[np.random.Generator, Array], Counts]:
    """The first problems have one completion, the others 16."""
    return lambda rng, difficulty: np.broadcast_to(
        np.where(np.arange(difficulty.shape[1]) < share * difficulty.shape[1], 1, 16),
        difficulty.shape,
    )


DESIGNS: dict[str, Callable[[np.random.Generator, Array], Counts]] = {
    "half have 1, half 16": _share_single(0.5),
    "four fifths have 1, a fifth 16": _share_single(0.8),
    "a fifth have 1, four fifths 16": _share_single(0.2),
    "1 to 16, drawn": lambda rng, difficulty: rng.integers(1, 17, difficulty.shape),
    "4, a third lost": lambda rng, difficulty: np.maximum(
        rng.binomial(4, 2 / 3, difficulty.shape), 1
    ),
    "16, half lost": lambda rng, difficulty: np.maximum(
        rng.binomial(16, 1 / 2, difficulty.shape), 1
    ),
    "4, lost where hard": lambda rng, difficulty: np.maximum(rng.binomial(4, difficulty), 1),
    "1 where hard, 16 elsewhere": lambda rng, difficulty: np.where(
        difficulty < difficulty.mean(), 1, 16
    ),
}
"""Completions of each problem, (repeats, problems), by their pass rates."""


def unequal(
    rng: np.random.Generator, design: str, problems: int, repeats: int
) -> Iterator[tuple[str, float, Array, Counts]]:
    """Yield settings with the true pass rate, means and completions of each problem."""
    for concentration in CONCENTRATIONS:
        for rate in RATES:
            size = (repeats, problems)
            difficulty = rng.beta(rate * concentration, (1 - rate) * concentration, size)
            counts = DESIGNS[design](rng, difficulty)
            passed = rng.binomial(counts, difficulty) / counts
            yield f"rate {rate}, concentration {concentration:g}", rate, passed, counts


def in_strata(values: Array, counts: Counts) -> tuple[Array, Array]:
    """The interval of each evaluation, (repeats,): of problems of two kinds."""
    if (counts == counts[0]).all():
        return intervals.bounded_mean(values, counts[0])
    pairs = zip(values, counts, strict=True)
    ends = np.array([intervals.bounded_mean(value, count) for value, count in pairs])
    return ends[:, 0], ends[:, 1]


def lengths(rng: np.random.Generator, share: float, times: float, size: tuple[int, int]) -> Array:
    """Return lengths with mean 10 and deviation 1, a share of them so many times as long."""
    long = rng.random(size) < share
    return np.asarray(rng.normal(10, 1, size) * np.where(long, times, 1.0))


def heaviest(values: Array) -> Array:
    """Return the share of the variance that one problem carries, of each evaluation."""
    squares = (values - values.mean(-1, keepdims=True)) ** 2
    return np.asarray(squares.max(-1) / squares.sum(-1))


def outliers(rng: np.random.Generator, problems: int, repeats: int) -> None:
    """Print coverage, of all and where one problem carries most of the variance."""
    size = (repeats, problems)
    tails = {
        f"{share:g} are {times:g} times as long": (
            lengths(rng, share, times, size),
            10 * (1 + share * (times - 1)),
        )
        for share, times in OUTLIERS
    }
    tails["log-normal 1"] = rng.lognormal(0, 1, size), math.exp(0.5)
    for name, (values, truth) in tails.items():
        low, high = intervals.mean(values)
        covered, flagged = (low <= truth) & (truth <= high), heaviest(values) > 0.5
        parts = [
            f"{covered[some].mean():.3f}" if some.any() else "-" for some in (flagged, ~flagged)
        ]
        print(
            f"    {name}: {covered.mean():.3f}; one problem has over half of the variance in "
            f"{flagged.mean():.3f}, covered there {parts[0]}, elsewhere {parts[1]}"
        )


def main() -> None:
    """Print what the tables of docs/benchmarks.md hold."""
    for problems in PROBLEMS:
        rng = np.random.default_rng(problems)
        for design in DESIGNS:
            cells = {"in strata": Cell(), "all alike": Cell()}
            repeats = 2000 if problems < 1000 else 500
            for setting, truth, values, counts in unequal(rng, design, problems, repeats):
                cells["in strata"].add(setting, truth, *in_strata(values, counts))
                cells["all alike"].add(setting, truth, *intervals.bounded_mean(values))
            print(f"{problems} problems, {design}")
            for name, cell in cells.items():
                print(f"    {name:10s} {cell.row()}", flush=True)
        print(f"{problems} problems, lengths")
        outliers(rng, problems, 20_000 if problems < 1000 else 2000)


if __name__ == "__main__":
    main()
