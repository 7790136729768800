"""Judged groups, the rollouts of one step, and their source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from rlvr_core.api.completions import Completion
from rlvr_core.api.engines import Engine
from rlvr_core.api.problems import Draw, Drop, Fate, Json, Message, Problem
from rlvr_core.api.verdicts import Span, Verdict

if TYPE_CHECKING:
    from rlvr_core.api.judging import Environment

REWARD_TOLERANCE = 1e-12
"""Rewards closer than this are equal."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A completion with every verdict on it and the reward made of them.

    Attributes:
        completion: The completion.
        verdicts: One per reward of the config, by reward name, in config order.
        reward: The shaped number training uses; None when it cannot be scored.
        passed: The outcome, apart from shaping; None when unknown.
        spans: Scores of stretches of the completion, in token positions, each multiplied by the
            weight of the reward that gave it. Spans of different rewards may overlap: the score
            of a token is their sum. Empty where no verifier scores parts.
    """

    completion: Completion
    verdicts: Mapping[str, Verdict]
    reward: float | None
    passed: bool | None
    spans: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """The judged completions of one problem drawn under one policy version."""

    problem: Problem
    members: tuple[Judged, ...]
    version: int


@dataclass(frozen=True, slots=True)
class EvalReport:
    """The results of an evaluation task.

    Attributes:
        metrics: Numbers by name; ``accuracy`` is the headline where there is one.
        n: Problems evaluated.
        basis: What the numbers rest on and the specification does not say, as a benchmark's hash
            and the versions of libraries; kept with the result.
    """

    metrics: Mapping[str, float]
    n: int
    basis: Mapping[str, Json] = field(default_factory=dict)


Ages = Counter[tuple[Fate | Literal["reread"], int]]
"""Completions by fate and by the updates between their sampling and the step; ``reread`` are those
of earlier steps that the step trained on again."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """A group, and the ledger column of each of its completions.

    Attributes:
        draw: The sampler's order it answers.
        prompt_text: The prompt as the model saw it, decoded.
        group: Its judged completions.
        drop: Why it is not trained on; None when it is, and in evaluation.
        reads: In how many steps it is trained on.
    """

    draw: Draw
    prompt_text: str
    group: Group
    drop: Drop | None = None
    reads: int = 1

    def fates(self) -> list[Fate]:
        """The ledger column of each completion, in order."""
        return [self._fate(member) for member in self.group.members]

    def _fate(self, member: Judged) -> Fate:
        if member.reward is None:
            statuses = {verdict.status for verdict in member.verdicts.values()}
            return "error" if statuses & {"error", "timeout", "busy"} else "unscorable"
        return self.drop.fate if self.drop else "trained"


@dataclass(slots=True)
class Rollouts:
    """The groups of one step.

    Attributes:
        kept: New groups to train on, in draw order.
        dropped: The other new groups, in draw order.
        replayed: Groups of earlier steps that are trained on again.
    """

    kept: list[Sampled] = field(default_factory=list)
    dropped: list[Sampled] = field(default_factory=list)
    replayed: list[Sampled] = field(default_factory=list)

    @property
    def all(self) -> list[Sampled]:
        """New groups, kept and dropped together, in draw order."""
        return sorted(self.kept + self.dropped, key=lambda sampled: sampled.draw.index)

    @property
    def drawn(self) -> int:
        """New groups."""
        return len(self.kept) + len(self.dropped)

    @property
    def trained(self) -> list[Group]:
        """The groups to train on: new ones first, then replayed ones."""
        return [sampled.group for sampled in [*self.kept, *self.replayed]]


class RolloutSource(Protocol):
    """Gives each step its judged groups: sampled when the step begins, or ahead of it.

    In a run of several processes each has one. All call the same methods in the same order, in
    their main threads, and get the same groups.
    """

    def running(self, step: int, version: int) -> AbstractContextManager[None]:
        """Generate while the block runs, if generation goes on beside training.

        Args:
            step: The first step of the block.
            version: The policy version the engine holds.
        """

    def take(self, step: int, version: int) -> Rollouts:
        """Return the groups of a step when all of them are judged.

        Raises:
            RunError: If that takes too long, generation failed, or too many verdicts were errors.
        """

    def before_training(self) -> None:
        """Make room for the trainer: an engine that shares its device gives memory back."""

    def after_training(
        self,
        rollouts: Rollouts,
        thrown_away: Sequence[bool],
        *,
        updated: bool,
        skipped: bool,
        version: int,
    ) -> dict[str, float]:
        """Note which groups were trained on, so that those to be read again come back.

        Args:
            rollouts: What ``take`` returned.
            thrown_away: For each group of ``rollouts.trained``, whether all its updates were
                skipped.
            updated: Whether any update of the step was applied.
            skipped: Whether the step had updates and none was applied.
            version: The policy version after the step.

        Returns:
            Numbers for the step's line.
        """

    def sync(self, step: int, version: int, load: Callable[[], None] | None) -> None:
        """Go on to the next step; new requests are held back until ``resume``.

        Args:
            step: The next step.
            version: The policy version from now on.
            load: Loads the weights into the engine; None when they did not change.
        """

    def pause(self) -> None:
        """Return once no completion is being generated or judged, and begin none."""

    def resume(self) -> None:
        """Let generation go on; called at the end of each step."""

    def drawn(self) -> int:
        """Return the number of completions judged since the last call, for the ledger."""

    def metrics(self, ages: Ages) -> dict[str, float]:
        """Return numbers for the step's line.

        Args:
            ages: The step's completions by fate and age.
        """

    def state_dict(self) -> dict[str, Json]:
        """Return what ``load_state_dict`` needs; the source is paused."""

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Go on from what ``state_dict`` returned; before ``running``."""


Suffix = Callable[[Problem, Sequence[int], Sequence[Message]], tuple[int, ...]]
"""Tokens of an environment's messages, with those of the chat template around them, given the
problem and the tokens of the reply that they answer."""


@runtime_checkable
class Conversations(Protocol):
    """Generates the answers to problems in one turn, or in conversations of several."""

    def present(self, problem: Problem) -> Problem:
        """Return the problem with the prompt, tools and stop strings for the model."""

    def check(self, problem: Problem) -> None:
        """Refuse a problem that cannot be played.

        Raises:
            DataError: If its environment lacks something in its spec.
        """

    def environment(self, problem: Problem) -> Environment | None:
        """Return an instance of the problem's environment; None if it takes a single answer."""

    def play(self, engine: Engine, suffix: Suffix, *, background: bool) -> Engine:
        """Return an engine that plays requests about these problems and passes others on.

        Args:
            engine: What generates a turn; a ``BackgroundEngine`` if ``background``.
            suffix: Tokens between two turns of the model.
            background: Whether generation goes on while training runs.
        """

    def lines(self) -> list[str]:
        """Return lines for the overview: the environments and their limits."""

    def record(self, problems: Iterable[Problem]) -> dict[str, Json] | None:
        """Return what decides the course of conversations, for the record; None without any."""
