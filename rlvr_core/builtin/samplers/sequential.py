"""The sampler ``core/sequential``: the problems as the data have them, again and again."""

from __future__ import annotations

from collections.abc import Sequence

from rlvr_core.api import SamplerConfig, Source
from rlvr_core.builtin.samplers.epochs import EpochSampler, Pool, all_problems


class Sequential(EpochSampler):
    """Each problem once per epoch, in the order of the data, one source after the other."""

    class Config(SamplerConfig):
        """Options of ``core/sequential``."""

    def pools(self, sources: Sequence[Source]) -> list[tuple[Pool, float]]:
        """One pool in the order of the data."""
        return [(Pool(all_problems(sources), None), 1.0)]
