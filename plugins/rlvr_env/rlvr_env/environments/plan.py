"""Decides which environment plays which problem, and how each is constructed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rlvr_core.api import (
    BackgroundEngine,
    ChecksProblems,
    ConfigError,
    Engine,
    Json,
    PluginError,
    PresentsProblems,
    Problem,
)
from rlvr_core.api.rollouts import Suffix
from rlvr_core.toolkit import ComponentRef, EnvironmentSection, Host, build
from rlvr_core.workers.process import ComponentSpec

AUTO = "auto"
"""Value of ``environment.use`` for each problem's own environment."""


@dataclass(frozen=True, slots=True)
class EnvironmentPlan:
    """The environments of a run.

    Attributes:
        section: The config's ``environment``.
        specs: How to construct each environment, by full name.
        full_names: Full name of each environment that problems name, by the name they use.
        instances: One instance of each, for ``present`` and ``check``.
        every: The environment that plays every problem; None if each problem has its own, or none.
    """

    section: EnvironmentSection
    specs: Mapping[str, ComponentSpec]
    full_names: Mapping[str, str]
    instances: Mapping[str, Any]
    every: str | None = None

    @classmethod
    def build(
        cls, section: EnvironmentSection, problems: Iterable[Problem], host: Host
    ) -> EnvironmentPlan:
        """Look up all environments and build the plan.

        Args:
            section: The config's ``environment``.
            problems: All problems of the run.
            host: The host that resolves environments.

        Raises:
            ConfigError: If an environment is unknown.
            PluginError: If its plugin is missing or broken.
        """
        if section.use != AUTO:
            entry = host.entry("environment", section.use, "environment.use")
            instance = build(host, "environment", section, "environment")
            spec = ComponentSpec(entry.target, section.with_)
            return cls(section, {entry.name: spec}, {}, {entry.name: instance}, entry.name)
        specs, full_names, instances = {}, {}, {}
        where = "data: problems ask for it"
        for name in sorted({p.environment for p in problems if p.environment is not None}):
            entry = host.entry("environment", name, where)
            full_names[name] = entry.name
            specs[entry.name] = ComponentSpec(entry.target, {})
            instances[entry.name] = build(host, "environment", ComponentRef(use=name), where)
        return cls(section, specs, full_names, instances)

    def name(self, problem: Problem) -> str | None:
        """Return the full name of a problem's environment; None for a single answer.

        Raises:
            ConfigError: If the problem names one that the plan was not built with.
        """
        if self.every is not None or problem.environment is None:
            return self.every
        try:
            return self.full_names[problem.environment]
        except KeyError:
            raise ConfigError(
                f"problem {problem.id} asks for environment '{problem.environment}', which no "
                f"problem had at the start"
            ) from None

    def environment(self, problem: Problem) -> Any:
        """See ``Conversations.environment``."""
        name = self.name(problem)
        return None if name is None else self.instances[name]

    def present(self, problem: Problem) -> Problem:
        """Return the problem as its environment presents it: prompt, tools and stop strings."""
        environment = self.environment(problem)
        if not isinstance(environment, PresentsProblems):
            return problem
        shown: Any = environment.present(problem)
        if not isinstance(shown, Problem):
            cls = type(environment)
            raise PluginError(
                f"environment '{self.name(problem)}': its present gave a "
                f"{type(shown).__name__}, not a Problem",
                where=f"{cls.__module__}:{cls.__qualname__}",
            )
        return replace(problem, prompt=shown.prompt, tools=shown.tools, stop=shown.stop)

    def play(self, engine: Engine, suffix: Suffix, *, background: bool) -> Engine:
        """See ``Conversations.play``."""
        if background:
            from rlvr_env.environments.background_turns import BackgroundTurns

            assert isinstance(engine, BackgroundEngine), type(engine).__name__
            return BackgroundTurns(engine, self, suffix)
        from rlvr_env.environments.turns import TurnTaking

        return TurnTaking(engine, self, suffix)

    def check(self, problem: Problem) -> None:
        """Have the problem's environment check its spec.

        Raises:
            DataError: If the environment cannot play the problem.
        """
        environment = self.environment(problem)
        if isinstance(environment, ChecksProblems):
            environment.check(problem)

    def lines(self) -> list[str]:
        """Describe which environments play, and the limits."""
        section = self.section
        cap = section.max_turn_tokens
        turn = "" if cap is None else f" of at most {cap} tokens"
        return [
            f"environment: {', '.join(sorted(self.specs))}, at most {section.max_turns} turns"
            f"{turn}; {section.workers} processes, {section.timeout:g} s a step"
        ]

    def record(self, problems: Iterable[Problem]) -> dict[str, Json] | None:
        """Return the settings that affect conversations about these problems, if there are any."""
        names = {self.name(problem) for problem in problems}
        use = {name: dict(self.specs[name].config) for name in sorted(filter(None, names))}
        if not use:
            return None
        return {
            "use": use,
            "max_turns": self.section.max_turns,
            "max_turn_tokens": self.section.max_turn_tokens,
            "timeout": self.section.timeout,
        }
