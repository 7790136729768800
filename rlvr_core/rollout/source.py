"""How a run divides its time between generation and training, and the default ways.

Plain is: generation and training take turns, and a problem is answered in one turn.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlvr_core.api import (
    Engine,
    Json,
    Problem,
    Sampler,
    SamplingParams,
)
from rlvr_core.api.rollouts import Ages, Conversations, Rollouts, RolloutSource, Suffix
from rlvr_core.parallel.ranks import Ranks
from rlvr_core.record.metrics import reported
from rlvr_core.rollout.collect import Generator, collect
from rlvr_core.rollout.replay import ReplayBuffer

if TYPE_CHECKING:
    import torch

    from rlvr_core.config.model import EnvironmentSection, RunConfig
    from rlvr_core.plugins.host import Host


@dataclass(frozen=True, slots=True)
class SourceParts:
    """The parts that a ``RolloutSource`` is built from.

    Attributes:
        generator: Makes judged groups in this process.
        shared: Makes judged groups with all processes of the run, which call it together.
        sampler: Chooses problems, and which groups are kept.
        problems: The training problems by id.
        params: How to sample.
        check: Raises ``RunError`` when too many verdicts were errors.
        ranks: The processes of the run.
    """

    generator: Generator
    shared: Generator
    sampler: Sampler
    problems: Mapping[str, Problem]
    params: SamplingParams
    check: Callable[[], None]
    ranks: Ranks


class RolloutMode:
    """Decides how generation and training share a run's time; chosen once, before the start.

    This one has them take turns: every group is sampled under the newest weights.

    Attributes:
        background: Whether the engine has to generate while this process does something else.
    """

    background = False

    def check(self, *, learns: bool, max_reads: int) -> None:
        """Refuse a run that does not go with this mode.

        Args:
            learns: Whether any loss learns from completions.
            max_reads: In how many steps the sampler has a group trained on.

        Raises:
            ConfigError: If it does not.
        """

    def lines(self) -> list[str]:
        """Lines for the overview at the start of a run."""
        return []

    def engine(self, engine: Engine, name: str, device: torch.device) -> Engine:
        """Return the engine as this mode needs it; it is not started yet.

        Args:
            engine: As the configuration names it.
            name: Its name, for messages.
            device: Where the trainer computes.

        Raises:
            ConfigError: If this engine cannot be used so.
        """
        return engine

    def source(self, parts: SourceParts) -> RolloutSource:
        """Make the run's source, with an engine that has started."""
        return TurnSource(parts)


class TurnSource:
    """Samples a step's groups when the step asks for them.

    A step takes the groups that are to be read again first, and generates only what it lacks.
    """

    def __init__(self, parts: SourceParts) -> None:
        self._parts = parts
        self._replay = ReplayBuffer()
        self._drawn = 0

    @contextlib.contextmanager
    def running(self, step: int, version: int) -> Iterator[None]:
        """Do nothing: generation and training alternate."""
        yield

    def take(self, step: int, version: int) -> Rollouts:
        """Sample, judge and decide on the step's groups; see ``RolloutSource.take``."""
        parts = self._parts
        replayed = self._replay.waiting(parts.sampler.prompts_per_step)
        rollouts = collect(
            parts.shared,
            parts.sampler,
            parts.params,
            version=version,
            step=step,
            replayed=len(replayed),
        )
        rollouts.replayed = replayed
        self._drawn += sum(len(sampled.group.members) for sampled in rollouts.all)
        parts.check()
        return rollouts

    def before_training(self) -> None:
        """Put the engine to sleep."""
        self._parts.shared.engine.sleep()

    def after_training(
        self,
        rollouts: Rollouts,
        thrown_away: Sequence[bool],
        *,
        updated: bool,
        skipped: bool,
        version: int,
    ) -> dict[str, float]:
        """See ``RolloutSource.after_training``."""
        self._replay.after_training(rollouts, thrown_away, updated=updated, skipped=skipped)
        return self._expire(version)

    def _expire(self, version: int) -> dict[str, float]:
        """Drop groups that have become too old to be read again: in turns, none does."""
        return {}

    def sync(self, step: int, version: int, load: Callable[[], None] | None) -> None:
        """Wake the engine and load the weights, if they changed."""
        self._parts.shared.engine.wake()
        if load is not None:
            load()

    def pause(self) -> None:
        """Do nothing: no request is pending between two calls of ``take``."""

    def resume(self) -> None:
        """Do nothing."""

    def drawn(self) -> int:
        """See ``RolloutSource.drawn``."""
        drawn, self._drawn = self._drawn, 0
        return drawn

    def metrics(self, ages: Ages) -> dict[str, float]:
        """The sampler's numbers."""
        return sampler_metrics(self._parts.sampler)

    def state_dict(self) -> dict[str, Json]:
        """Return the groups that are to be trained on again."""
        return {"replay": self._replay.state_dict()}

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """See ``RolloutSource.load_state_dict``."""
        self._replay.load_state_dict(state["replay"], self._parts.problems)


def sampling_of(config: RunConfig) -> SamplingParams:
    """Return the run's sampling parameters for the engine."""
    section = config.sampling
    return SamplingParams(
        section.temperature, section.top_p, section.top_k, section.max_tokens, tuple(section.stop)
    )


class SingleTurn:
    """Answers every problem in one turn. See ``Conversations``."""

    def present(self, problem: Problem) -> Problem:
        """The problem itself."""
        return problem

    def check(self, problem: Problem) -> None:
        """Accept every problem."""

    def environment(self, problem: Problem) -> None:
        """Return None."""

    def play(self, engine: Engine, suffix: Suffix, *, background: bool) -> Engine:
        """The engine itself."""
        del suffix, background
        return engine

    def lines(self) -> list[str]:
        """Do nothing."""
        return []

    def record(self, problems: Iterable[Problem]) -> dict[str, Json] | None:
        """Do nothing."""
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
    return host.provide(
        "plan_conversations",
        Conversations,
        "conversations of several turns",
        "env",
        {"section": section, "problems": problems, "host": host},
    )


def sampler_metrics(sampler: Sampler) -> dict[str, float]:
    """The numbers of a sampler for the step's line, ``sampler/<name>``.

    Raises:
        PluginError: If it has not declared one.
    """
    return reported(sampler, sampler.metrics(), "sampler/")
