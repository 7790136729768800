"""The guards of verdicts and references that a run has, as the configuration says."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rlvr_core.builtin.canaries.references import References
from rlvr_core.builtin.canaries.watch import Canaries

if TYPE_CHECKING:
    from rlvr_core.api import Guard
    from rlvr_core.api.services import Judge, RunConfig


def guards_of(
    config: RunConfig, judge: Judge, rank: int, say: Callable[[str], None]
) -> dict[str, Guard]:
    """The service ``core/canaries``: make those that the configuration leaves on, by name.

    Args:
        config: The run's configuration.
        judge: Judges the run's completions.
        rank: Number of this process.
        say: Tells the user something.
    """
    made: dict[str, Guard] = {}
    if config.guards.references:
        made["references"] = References(judge.plan, say)
    if config.guards.canaries:
        made["canaries"] = Canaries(config, judge, rank, say)
    return made
