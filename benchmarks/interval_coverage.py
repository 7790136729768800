"""How often the 95% intervals of evaluations hold the truth, by simulation.

Problems have difficulties from a Beta distribution; each is answered once or several times; the
interval is asked whether it holds the mean over all problems there could be. The functions measured
are those that `rlvr eval` and `rlvr compare` call. Beside them, for comparison, the percentile
bootstrap over problems.

    python benchmarks/interval_coverage.py            # about five minutes on one core
    python benchmarks/interval_coverage.py --quick    # a minute or two
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rlvr_core.stats import intervals, significance

Array = NDArray[np.float64]
Method = Callable[[Array], tuple[Array, Array]]

PROBLEMS = (15, 30, 100, 1000)
COMPLETIONS = (1, 4, 16)
RATES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98)
CONCENTRATIONS = (0.3, 1.0, 3.0, 10.0, 100.0)
"""a + b of the Beta distribution: from problems that nearly all pass or fail to all alike."""
CHANGES = ("none", "small", "large", "mixed")
POPULATION = 100_000
RESAMPLES = 500


@dataclass
class Cell:
    """Coverage at several settings with the same number of problems.

    Attributes:
        covered: Share of intervals that hold the truth, of each setting.
        settings: What each setting is.
    """

    covered: list[float] = field(default_factory=list)
    settings: list[str] = field(default_factory=list)

    def add(self, setting: str, truth: float, low: Array, high: Array) -> None:
        """Count the intervals of one setting."""
        self.covered.append(float(((low <= truth) & (truth <= high)).mean()))
        self.settings.append(setting)

    def row(self) -> str:
        """The mean and the lowest coverage."""
        found = np.array(self.covered)
        lowest = self.settings[int(found.argmin())]
        return f"mean {found.mean():.3f}  lowest {found.min():.3f} ({lowest})"


def bootstrap(rng: np.random.Generator) -> Method:
    """The percentile bootstrap over problems."""

    def method(values: Array) -> tuple[Array, Array]:
        n = values.shape[-1]
        counts = rng.multinomial(n, np.full(n, 1 / n), RESAMPLES)
        low, high = np.quantile(values @ counts.T / n, [0.025, 0.975], axis=-1)
        return low, high

    return method


def rates(
    rng: np.random.Generator, problems: int, completions: int, repeats: int
) -> Iterator[tuple[str, float, Array]]:
    """Yield settings with the true pass rate and ``repeats`` evaluations (repeats, problems)."""
    for concentration in CONCENTRATIONS if completions > 1 else CONCENTRATIONS[:1]:
        for rate in RATES:
            difficulty = rng.beta(
                rate * concentration, (1 - rate) * concentration, (repeats, problems)
            )
            passed = rng.binomial(completions, difficulty) / completions
            yield f"rate {rate}, concentration {concentration:g}", rate, passed


def pairs(
    rng: np.random.Generator, problems: int, completions: int, repeats: int
) -> Iterator[tuple[str, float, Array]]:
    """Yield settings with the true change and ``repeats`` differences (repeats, problems).

    Changes are none, of the log-odds of every problem by .5 or 1.5, or other difficulties for
    three problems in ten.
    """
    for concentration in (0.3, 1.0, 5.0):
        for rate in (0.02, 0.1, 0.3, 0.5, 0.8, 0.95):
            a, b = rate * concentration, (1 - rate) * concentration
            before = rng.beta(a, b, POPULATION)
            for change in CHANGES:
                after = _changed(rng, change, before, rate, concentration)
                drawn = rng.integers(0, POPULATION, (repeats, problems))
                counts = [rng.binomial(completions, one[drawn]) for one in (after, before)]
                setting = f"rate {rate}, concentration {concentration:g}, change {change}"
                truth = float((after - before).mean())
                yield setting, truth, (counts[0] - counts[1]) / completions


def _changed(
    rng: np.random.Generator, change: str, before: Array, rate: float, concentration: float
) -> Array:
    if change == "none":
        return before
    if change == "mixed":
        a, b = concentration * (rate + 0.3) / 2, concentration * (1.3 - rate) / 2 + 0.1
        return np.where(rng.random(POPULATION) < 0.3, rng.beta(a, b, POPULATION), before)
    odds = math.exp(0.5 if change == "small" else 1.5)
    return odds * before / (1 - before + odds * before)


LENGTHS: dict[str, Callable[[np.random.Generator, tuple[int, int]], Array]] = {
    "normal": lambda rng, size: rng.normal(10, 1, size),
    "uniform": lambda rng, size: rng.uniform(1, 2, size),
    "gamma 2": lambda rng, size: rng.gamma(2, 1, size),
    "exponential": lambda rng, size: rng.exponential(1, size),
    "log-normal 0.5": lambda rng, size: rng.lognormal(0, 0.5, size),
    "log-normal 1": lambda rng, size: rng.lognormal(0, 1, size),
    "log-normal 0.8, capped": lambda rng, size: np.minimum(rng.lognormal(0, 0.8, size), 4),
}
"""Distributions of lengths of answers; not from 0 to 1."""


def lengths(
    rng: np.random.Generator, problems: int, repeats: int
) -> Iterator[tuple[str, float, Array]]:
    """Yield distributions with their mean and ``repeats`` evaluations (repeats, problems)."""
    for name, draw in LENGTHS.items():
        population = draw(rng, (1, 2_000_000))[0]
        yield name, float(population.mean()), draw(rng, (repeats, problems))


def measure(settings: Iterator[tuple[str, float, Array]], methods: dict[str, Method]) -> None:
    """Print the coverage of each method over the settings."""
    cells = {name: Cell() for name in methods}
    for setting, truth, values in settings:
        for name, method in methods.items():
            cells[name].add(setting, truth, *method(values))
    for name, cell in cells.items():
        print(f"    {name:14s} {cell.row()}")


def main() -> None:
    """Print what the table of benchmarks/README.md holds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    rng = np.random.default_rng(given.seed)
    before: dict[str, Method] = {"bootstrap": bootstrap(rng)}
    for problems in PROBLEMS:
        repeats = (400 if given.quick else 2000) // (1 if problems < 1000 else 4)
        for completions in COMPLETIONS:
            print(f"{problems} problems x {completions}, rate")
            methods = {"now": intervals.bounded_mean, **before}
            measure(rates(rng, problems, completions, repeats), methods)
            print(f"{problems} problems x {completions}, paired difference")
            methods = {"now": significance.difference, **before}
            measure(pairs(rng, problems, completions, repeats), methods)
        print(f"{problems} problems, mean of lengths")
        measure(lengths(rng, problems, repeats), {"now": intervals.mean, **before})


if __name__ == "__main__":
    main()
