"""The sampler ``core/curriculum``: the problems of an order file, in its order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from rlvr_core.api import Source
from rlvr_core.rollout.samplers.base import SamplerConfig
from rlvr_core.rollout.samplers.epochs import EpochSampler, Pool, all_problems
from rlvr_core.rollout.samplers.order import read_order


class Curriculum(EpochSampler):
    """Yields each problem of the file once per epoch, in the file's order; ignores all others."""

    class Config(SamplerConfig):
        """Options of ``core/curriculum``."""

        order: Annotated[str, Field(min_length=1)]
        """File of problem ids, one per line, as ``rlvr passk --curriculum`` writes, or its URI."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._file = config.order

    def pools(self, sources: Sequence[Source]) -> list[tuple[Pool, float]]:
        """Return one pool in the order of the file.

        Raises:
            DataError: If the file names problems that are not in the data.
        """
        problems = {problem.id: problem for problem in all_problems(sources)}
        left_out = [id_ for source in sources for id_ in source.left_out]
        order = read_order(self._file, problems, left_out)
        return [(Pool([problems[id_] for id_ in order], None), 1.0)]
