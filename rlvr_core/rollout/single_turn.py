"""Generation in one turn, and the choice of something else where an environment is named."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rlvr_core.api import Engine, Json, Problem
from rlvr_core.api.rollouts import Conversations, Suffix
from rlvr_core.config.model import EnvironmentSection
from rlvr_core.host.host import Host


class SingleTurn:
    """Every problem is answered in one turn. See ``Conversations``."""

    def present(self, problem: Problem) -> Problem:
        """The problem itself."""
        return problem

    def check(self, problem: Problem) -> None:
        """Accept every problem."""

    def play(self, engine: Engine, suffix: Suffix, *, background: bool) -> Engine:
        """The engine itself."""
        del suffix, background
        return engine

    def lines(self) -> list[str]:
        """Nothing."""
        return []

    def record(self, problems: Iterable[Problem]) -> dict[str, Json] | None:
        """Nothing."""
        del problems
        return None


def conversations_of(
    section: EnvironmentSection, problems: Sequence[Problem], host: Host
) -> Conversations:
    """How these problems are generated: in one turn unless one of them, or the config, names more.

    Code for several turns is not imported otherwise.

    Raises:
        ConfigError: If an environment is unknown.
        PluginError: If its plugin is missing or broken.
    """
    if section.use == "auto" and all(problem.environment is None for problem in problems):
        return SingleTurn()
    plan: Conversations = host.service("core/conversations")(section, problems, host)
    return plan
