"""The sampler ``core/mixture``: several sources, each in its own order, by weight or in turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from rlvr_core.api import Complaint, ConfigError, Json, Source
from rlvr_core.rollout.samplers.base import SamplerConfig
from rlvr_core.rollout.samplers.epochs import EpochSampler, Pool, shares
from rlvr_core.rollout.samplers.order import read_order

Mode = Literal["weighted", "epoch", "sequential"]


class Mixture(EpochSampler):
    """Draws from one pool per source, by its ``order``, ``count`` and ``weight``."""

    source_keys = frozenset({"weight", "order", "count"})

    class Config(SamplerConfig):
        """Options of ``core/mixture``."""

        mode: Mode = "weighted"
        """``weighted``: draw by weight; an exhausted source starts again. ``epoch``: draw by
        weight, but an exhausted source waits until all are, so that each problem comes once per
        epoch. ``sequential``: one source after the other, then again from the first."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._mode = config.mode

    def pools(self, sources: Sequence[Source]) -> list[tuple[Pool, float]]:
        """Return one pool per source.

        Raises:
            ConfigError: If a weight has no effect, or a count exceeds the number of problems.
            DataError: If an order file does not match its source.
        """
        made = [self._pool(source, index) for index, source in enumerate(sources)]
        faults = [
            Complaint(
                f"count is {source.count}, and there are {len(pool)} problems to choose from",
                f"data.sources[{index}].count",
                ("lower it, or leave it out to use all",),
            )
            for index, (source, pool) in enumerate(zip(sources, made, strict=True))
            if source.count is not None and len(pool) < source.count
        ]
        if self._mode == "sequential":
            faults += [
                Complaint(
                    "weight has no effect in mode sequential, where sources do not mix",
                    f"data.sources[{index}].weight",
                    ("take it out, or choose mode weighted or epoch",),
                )
                for index, source in enumerate(sources)
                if source.weight is not None
            ]
        if faults:
            raise ConfigError.collect(faults)
        weights = shares(sources, [len(pool) for pool in made])
        return list(zip(made, weights, strict=True))

    def _pool(self, source: Source, index: int) -> Pool:
        if source.order in (None, "shuffle"):
            return Pool(source.problems, (self.seed, index), source.count)
        if source.order == "sequential":
            return Pool(source.problems, None, source.count)
        problems = {problem.id: problem for problem in source.problems}
        order = read_order(str(source.order), problems, source.left_out)
        return Pool([problems[id_] for id_ in order], None, source.count)

    def turn(self) -> int:
        """Return the index of the next source."""
        if self._mode == "weighted":
            return super().turn()
        epoch = min(pool.drawn // len(pool) for pool in self._pools)
        unfinished = [pool.drawn < (epoch + 1) * len(pool) for pool in self._pools]
        if self._mode == "sequential":
            return unfinished.index(True)
        if all(pool.drawn == epoch * len(pool) for pool in self._pools):
            self._turns.credits = [0] * len(self._pools)  # every epoch starts with equal credits
        return self._turns.next(unfinished)

    def identity(self) -> Json:
        """Return the mode, and the identity of the pools as in ``EpochSampler``."""
        return [self._mode, super().identity()]
