"""Builds the configured guards of verdicts and references."""

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
    """The service ``core/canaries``: build the guards that the configuration enables, by name.

    Args:
        config: The run's configuration.
        judge: Judges the run's completions.
        rank: Number of this process.
        say: Prints a message for the user.
    """
    guards: dict[str, Guard] = {}
    if config.guards.references:
        guards["references"] = References(judge.plan, say)
    if config.guards.canaries:
        guards["canaries"] = Canaries(config, judge, rank, say)
    return guards
