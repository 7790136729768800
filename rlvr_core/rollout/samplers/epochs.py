"""Samplers that go through the data in epochs, shuffled or in order."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import lcm

from rlvr_core.api import Json, Metric, Problem, Source
from rlvr_core.config.tree import numbered
from rlvr_core.rollout.samplers.base import SamplerBase, SamplerConfig, digest, seeded_hash


class Pool:
    """An endless sequence of problems, epoch after epoch.

    Args:
        problems: The problems.
        shuffle: Seed of the order, which differs from epoch to epoch; None keeps the given order.
        count: Use only this many problems, the first in the order of the first epoch; None for all.
    """

    def __init__(
        self,
        problems: Sequence[Problem],
        shuffle: tuple[int, ...] | None,
        count: int | None = None,
    ) -> None:
        self._key = shuffle
        self._ids = [problem.id for problem in problems]
        self._ids = self._order(0)[:count]
        self._problems = {problem.id: problem for problem in problems}
        self.digest = digest(self._ids if shuffle is None else ["shuffled", *sorted(self._ids)])
        self.seek(0, 0)

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def drawn(self) -> int:
        """Number of problems drawn from the pool so far."""
        return self.epoch * len(self) + self.position

    def seek(self, epoch: int, position: int) -> None:
        """Move to a position in an epoch."""
        self.epoch, self.position = epoch, position
        self._now = self._order(epoch)

    def next(self) -> Problem:
        """Return the next problem; a new epoch begins after the last one."""
        if self.position == len(self):
            self.seek(self.epoch + 1, 0)
        self.position += 1
        return self._problems[self._now[self.position - 1]]

    def _order(self, epoch: int) -> list[str]:
        key = self._key
        if key is None:
            return self._ids
        return sorted(self._ids, key=lambda id_: seeded_hash(*key, epoch, id_))


class Turns:
    """Chooses pools so that each has its share at every moment (smooth weighted round robin).

    At each turn, every pool's credit grows by its weight, and the pool with the most credit is
    chosen and pays the sum of the weights. After any number of turns a pool has had its share, up
    to an error of the number of pools. Credits are integers, so that long runs have no rounding
    errors.
    """

    def __init__(self, weights: Sequence[float]) -> None:
        exact = [Fraction(weight) for weight in weights]
        unit = lcm(*(weight.denominator for weight in exact))
        self._weights = [int(weight * unit) for weight in exact]
        self.credits = [0] * len(weights)

    def next(self, can: Sequence[bool]) -> int:
        """Return the pool whose turn it is, among the pools in ``can``."""
        able = [index for index, ready in enumerate(can) if ready]
        for index in able:
            self.credits[index] += self._weights[index]
        chosen = max(able, key=lambda index: (self.credits[index], -index))
        self.credits[chosen] -= sum(self._weights[index] for index in able)
        return chosen


class EpochSampler(SamplerBase):
    """Yields every problem of a pool once per epoch; several pools take turns."""

    reports = (
        Metric("sampler/epoch", "Passes over the data, the one that goes on in part.", "epochs"),
        Metric("sampler/epoch/<source>", "The same, for a source that has its own.", "epochs"),
    )

    def __init__(self, config: SamplerConfig) -> None:
        super().__init__(config)
        self._pools: list[Pool] = []
        self._names: list[str] = []
        self._turns = Turns([1.0])

    @abstractmethod
    def pools(self, sources: Sequence[Source]) -> list[tuple[Pool, float]]:
        """Return the pools and their weights."""

    def begin(self, sources: Sequence[Source]) -> None:
        """Create the pools."""
        made = self.pools(sources)
        self._pools = [pool for pool, _ in made]
        self._names = numbered(source.name for source in sources)
        self._turns = Turns([weight for _, weight in made])

    def choose(self, n_problems: int, step: int) -> Iterator[Problem]:
        """Yield the next problems of the pools whose turn it is."""
        for _ in range(n_problems):
            yield self._pools[self.turn()].next()

    def turn(self) -> int:
        """Return the index of the next pool."""
        return self._turns.next([True] * len(self._pools))

    def metrics(self) -> dict[str, float]:
        """Return the passes over the data, by source if sources have pools of their own."""
        passes = [pool.drawn / len(pool) for pool in self._pools]
        if len(passes) == 1:
            return {"epoch": passes[0]}
        return {f"epoch/{name}": done for name, done in zip(self._names, passes, strict=True)}

    def identity(self) -> Json:
        """Return the identity of each pool's problems, and of their order if it is given."""
        return [pool.digest for pool in self._pools]

    def position(self) -> Json:
        """Return epoch and position of each pool, and the state of the turns."""
        return {
            "pools": [[pool.epoch, pool.position] for pool in self._pools],
            "credits": list(self._turns.credits),
        }

    def seek(self, position: Json) -> None:
        """Restore a state from ``position``."""
        for pool, (epoch, place) in zip(self._pools, position["pools"], strict=True):
            pool.seek(epoch, place)
        self._turns.credits = list(position["credits"])


def shares(sources: Sequence[Source], sizes: Sequence[int]) -> list[float]:
    """Return the weight of each source: its own, or else its share of the problems."""
    total = sum(sizes)
    return [
        size / total if source.weight is None else source.weight
        for source, size in zip(sources, sizes, strict=True)
    ]


def all_problems(sources: Sequence[Source]) -> list[Problem]:
    """Return the problems of all sources, one source after the other."""
    return [problem for source in sources for problem in source.problems]


class Shuffle(EpochSampler):
    """Yields each problem once per epoch, in an order determined by the seed."""

    source_keys = frozenset({"weight"})

    class Config(SamplerConfig):
        """Options of ``core/shuffle``."""

    def pools(self, sources: Sequence[Source]) -> list[tuple[Pool, float]]:
        """Return one pool; if sources have weights, one per source."""
        if all(source.weight is None for source in sources):
            return [(Pool(all_problems(sources), (self.seed, 0)), 1.0)]
        weights = shares(sources, [len(source.problems) for source in sources])
        return [
            (Pool(source.problems, (self.seed, index)), weight)
            for index, (source, weight) in enumerate(zip(sources, weights, strict=True))
        ]


class Sequential(EpochSampler):
    """Yields each problem once per epoch, in the order of the data, source by source."""

    class Config(SamplerConfig):
        """Options of ``core/sequential``."""

    def pools(self, sources: Sequence[Source]) -> list[tuple[Pool, float]]:
        """Return one pool in the order of the data."""
        return [(Pool(all_problems(sources), None), 1.0)]
