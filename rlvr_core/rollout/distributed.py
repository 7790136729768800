"""Generation and verification spread over the processes of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

from rlvr_core.api import Draw, SamplingParams
from rlvr_core.api.rollouts import Sampled
from rlvr_core.parallel.ranks import Ranks
from rlvr_core.rollout.collect import Answered, Generator
from rlvr_core.verify.judge import ErrorRate


@dataclass(frozen=True)
class DistributedGenerator(Generator):
    """A generator in each process: every one samples and judges its share, and gets all groups.

    A completion's seed depends on its problem, version and draw and not on the process, so the
    groups are those of a single process.

    Attributes:
        ranks: The processes.
        errors: Counts the verdicts of all of them, in draw order; ``judge`` has one of its own.
    """

    ranks: Ranks
    errors: ErrorRate

    def generate(
        self,
        draws: Sequence[Draw],
        params: SamplingParams,
        *,
        version: int,
        step: int,
        each: Callable[[Answered], None] | None = None,
    ) -> list[Sampled]:
        """Return judged groups of these draws, in their order. A collective.

        ``each`` is called in the process that made the group. See ``Generator.generate``.
        """
        mine = self.ranks.share(draws)
        judged = Generator.generate(self, mine, params, version=version, step=step, each=each)
        groups = self.ranks.weave(judged)
        for sampled in groups:
            for member in sampled.group.members:
                self.errors.observe_all(member.completion, member.verdicts)
        return groups


def distributed(generator: Generator, ranks: Ranks) -> DistributedGenerator:
    """Return a generator that shares its work with those of the other processes."""
    total = generator.judge.errors
    alone = replace(generator, judge=replace(generator.judge, errors=ErrorRate(total.limit)))
    parts = {field.name: getattr(alone, field.name) for field in fields(alone)}
    return DistributedGenerator(**parts, ranks=ranks, errors=total)
