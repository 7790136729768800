"""The values of one parameter: a list of them, or a distribution to draw from."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from rlvr_core.api import ConfigError, Json

RANGES = ("uniform", "log_uniform", "integer")
EXAMPLE = (
    "one of: {uniform: [0.7, 1.2]}, {log_uniform: [1e-6, 1e-4]}, {integer: [2, 8]}, "
    "{choice: [grpo, dapo]}"
)


@dataclass(frozen=True, slots=True)
class Choice:
    """A list of values, each equally probable."""

    values: tuple[Json, ...]

    def draw(self, random: Random) -> Json:
        """Draw one of the values."""
        return random.choice(self.values)


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers between two bounds, both included.

    Attributes:
        kind: ``uniform``, ``log_uniform`` (the logarithm is uniform) or ``integer``.
        low: The lower bound.
        high: The upper bound.
    """

    kind: str
    low: float
    high: float

    def draw(self, random: Random) -> Json:
        """Draw one number."""
        if self.kind == "integer":
            return random.randint(int(self.low), int(self.high))
        if self.kind == "uniform":
            return random.uniform(self.low, self.high)
        drawn = math.exp(random.uniform(math.log(self.low), math.log(self.high)))
        # exp and log round, so the number may exceed a bound
        return min(max(drawn, self.low), self.high)


Axis = Choice | Range
Values = dict[str, Json]
"""The values of a trial, by key of the config."""


def grid(axes: Mapping[str, Choice]) -> Iterator[Values]:
    """Yield all combinations; the last parameter changes fastest."""
    for combination in itertools.product(*(axis.values for axis in axes.values())):
        yield dict(zip(axes, combination, strict=True))


def drawn(axes: Mapping[str, Axis], seed: int, trial: int) -> Values:
    """Return the values of one random trial.

    Each depends only on seed, number of the trial and name of the parameter: adding trials or
    parameters does not change existing values.
    """
    return {key: axis.draw(Random(f"{seed}/{trial}/{key}")) for key, axis in axes.items()}


def read_axis(key: str, written: Any, where: str, *, grid: bool) -> Axis:
    """Parse the values of a parameter.

    Args:
        key: Key of the parameter.
        written: A list for a grid, else a mapping with one distribution.
        where: File, line and key, for messages.
        grid: Whether the method is ``grid``.

    Raises:
        ConfigError: If it is malformed.
    """
    if grid:
        return _choice(written, where, f"for example: {key}: [first, second]")
    if not isinstance(written, dict) or len(written) != 1:
        raise ConfigError("a distribution belongs here", where=where, remedy=EXAMPLE)
    kind, bounds = next(iter(written.items()))
    if kind == "choice":
        return _choice(bounds, where, EXAMPLE)
    if kind not in RANGES:
        raise ConfigError(f"there is no distribution '{kind}'", where=where, remedy=EXAMPLE)
    return _range(kind, bounds, where)


def _choice(written: Any, where: str, remedy: str) -> Choice:
    if not isinstance(written, list) or not written:
        what = "the list of values is empty" if written == [] else "a list of values belongs here"
        raise ConfigError(what, where=where, remedy=remedy)
    texts = [json.dumps(value, sort_keys=True) for value in written]
    twice = next((text for text in texts if texts.count(text) > 1), None)
    if twice is not None:
        raise ConfigError(
            f"the value {twice} is listed twice",
            where=where,
            remedy="name each once; seeds repeats every trial",
        )
    return Choice(tuple(written))


def _range(kind: str, bounds: Any, where: str) -> Range:
    number_type = int if kind == "integer" else (int, float)
    numbers = isinstance(bounds, list) and all(
        isinstance(bound, number_type) and not isinstance(bound, bool) and math.isfinite(bound)
        for bound in bounds
    )
    if not numbers or len(bounds) != 2:
        what = "two whole numbers" if kind == "integer" else "two numbers"
        raise ConfigError(f"{kind} takes {what}: [low, high]", where=where, remedy=EXAMPLE)
    low, high = bounds
    if low >= high:
        raise ConfigError(
            f"{kind} goes from {low} to {high}: the first has to be the smaller one", where=where
        )
    if kind == "log_uniform" and low <= 0:
        raise ConfigError(
            f"log_uniform begins at {low}, which has no logarithm", where=where, remedy=EXAMPLE
        )
    return Range(kind, low, high)
