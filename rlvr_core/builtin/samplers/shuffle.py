"""The sampler ``core/shuffle``: seeded epochs over one or several sources.

The order of an epoch is the order of hashes of (seed, pool, epoch, problem id): it does not depend
on how the file was sorted.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlvr_core.api import SamplerConfig, Source
from rlvr_core.builtin.samplers.epochs import EpochSampler, Pool, all_problems, shares


class Shuffle(EpochSampler):
    """Each problem once per epoch, in an order that the seed decides."""

    source_keys = frozenset({"weight"})

    class Config(SamplerConfig):
        """Options of ``core/shuffle``."""

    def pools(self, sources: Sequence[Source]) -> list[tuple[Pool, float]]:
        """One pool; with weights, one of each source."""
        if all(source.weight is None for source in sources):
            return [(Pool(all_problems(sources), (self.seed, 0)), 1.0)]
        weights = shares(sources, [len(source.problems) for source in sources])
        return [
            (Pool(source.problems, (self.seed, index)), weight)
            for index, (source, weight) in enumerate(zip(sources, weights, strict=True))
        ]
