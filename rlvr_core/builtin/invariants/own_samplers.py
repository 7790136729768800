"""What can be known of a sampler whose order is not: it goes on where it was, and leaves none out.

The order of a plugin's sampler is its own. But two copies that are told the same draw the same, a
copy with the state of another goes on as that one does, and where problems come in even rounds,
those that never come are left out.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rlvr_core.api import Source, config_class

if TYPE_CHECKING:
    from rlvr_core.api.services import RunConfig

MOST = 200_000
"""Problems of a run in which copies of a sampler are tried."""

ROUNDS = 2
"""Times that all others have come before a problem counts as left out."""

FEWEST = 8
"""Problems that have come, for their rounds to be no chance."""


def is_own(sampler: Any) -> bool:
    """Whether a sampler is a plugin's."""
    return not type(sampler).__module__.startswith("rlvr_core.")


def loses_its_place(sampler: Any, config: RunConfig, sources: Sequence[Source]) -> str:
    """Say how a copy with the state of another goes on elsewhere; empty if it goes on there.

    Empty too where it cannot be tried: the run's own sampler is not touched.
    """
    if sum(len(source.problems) for source in sources) > MOST:
        return ""
    try:
        first, other, third = (_started(sampler, config, sources) for _ in range(3))
        n = max(1, sampler.prompts_per_step)
        if _drawn(first, n, 0) != _drawn(other, n, 0):
            return ""  # no two runs of it are alike, and no resumption can be
        third.load_state_dict(json.loads(json.dumps(first.state_dict())))
        due, found = _drawn(first, n, 1), _drawn(third, n, 1)
    except Exception:  # what fails in a copy is for the run itself to show
        return ""
    if due == found:
        return ""
    return (
        f"the sampler does not go on where it was: a copy of it that has drawn {n} problems draws "
        f"{few(due)} next, and one that was given its state draws {few(found)}"
    )


def _started(sampler: Any, config: RunConfig, sources: Sequence[Source]) -> Any:
    kind: Any = type(sampler)
    made = kind(config_class(kind).model_validate(config.sampler.with_))
    made.start(
        sources,
        n=config.sampling.n,
        prompts_per_step=config.train.prompts_per_step,
        seed=config.run.seed,
    )
    return made


def _drawn(sampler: Any, n: int, step: int) -> list[str]:
    return [draw.problem.id for draw in sampler.draw(n, step=step)]


def few(ids: Sequence[str]) -> str:
    """Name the first three of some problems."""
    return ", ".join(ids[:3]) + (", ..." if len(ids) > 3 else "")


class Rounds:
    """Counts what comes, and knows what is left out of even rounds.

    Args:
        ids: Of all problems of the data.
    """

    def __init__(self, ids: Iterable[str]) -> None:
        self._ids = set(ids)
        self._came: Counter[str] = Counter()
        self._told = False

    def left_out(self, drawn: Iterable[str]) -> str:
        """Say, once, which problems never come though all others come in turns; else empty."""
        self._came.update(drawn)
        never = sorted(self._ids - self._came.keys())
        if self._told or not never or len(self._came) < FEWEST:
            return ""
        least, most = min(self._came.values()), max(self._came.values())
        if least < ROUNDS or most - least > 1:
            return ""
        self._told = True
        return (
            f"{len(never)} of {len(self._ids)} problems were never drawn, and each of the others "
            f"{least} or {most} times: {few(never)}"
        )
