"""Where problems come from, and which of them a step takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from rlvr_core.api.types import (
    Draw,
    Drop,
    Extend,
    Group,
    Json,
    Keep,
    Outcome,
    Problem,
)


@runtime_checkable
class DatasetLoader(Protocol):
    """Gives the problems of a data set, the same ones in the same order at each call."""

    def load(self) -> Iterable[Problem]:
        """Yield the problems.

        Raises:
            DataError: If a row is unusable; names the file and row.
            MachineError: If the data cannot be reached.
        """


@runtime_checkable
class Demonstrator(Protocol):
    """A dataset loader that can also show worked answers, for the tiny model's warm start."""

    def demonstrations(self, n: int, seed: int) -> Iterable[tuple[Problem, str]]:
        """Yield ``n`` training problems, each with one demonstrated completion."""


@runtime_checkable
class Sampler(Protocol):
    """Chooses which problems, how many completions of each, and which groups are kept.

    ``rlvr_core.api.SamplerBase`` has all of it but the choice of problems.

    What it does must follow from its arguments alone: where several processes train together, each
    holds a copy that is asked and told the same, takes its share of the draws, and decides on its
    own groups with ``observe``, which changes nothing.

    Its traits are ``SamplerTraits``.
    """

    prompts_per_step: int

    def start(self, sources: Sequence[Source], *, n: int, seed: int) -> None:
        """Begin a run over these sources.

        Args:
            sources: The loaded data, in config order.
            n: Completions per problem, from ``sampling.n``.
            seed: The run's seed.
        """

    def draw(self, n_problems: int, *, step: int) -> list[Draw]:
        """The next problems of this step, never more than asked for."""

    def observe(self, group: Group) -> Keep | Drop | Extend:
        """Decide what happens to a group; of an extended one, when the new completions are in."""

    def update(self, outcomes: Sequence[Outcome]) -> None:
        """Learn what became of the groups of one ``draw``, in the order they were drawn.

        With ``train.max_staleness`` above 0, of those groups that have been decided on.
        """

    def refill(self, kept: int, drawn: int) -> int:
        """How many more problems to draw in this step, given what it has kept and drawn."""

    def metrics(self) -> dict[str, float]:
        """Numbers for the step's line, under ``sampler/``."""

    def state_dict(self) -> dict[str, Json]:
        """Everything ``load_state_dict`` needs to continue exactly."""

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Continue where ``state_dict`` was taken; called after ``start``."""


@dataclass(frozen=True, slots=True)
class Source:
    """Problems of one entry of ``data.sources``.

    Attributes:
        name: Full name of its dataset loader.
        problems: Its problems, over-long ones already taken out.
        weight: Share of draws, relative to the other sources; None for its share of problems.
        order: ``shuffle``, ``sequential``, or where a file of ids lies; None when not said.
        count: How many of its problems to use; None for all.
        left_out: Ids of the over-long problems.
    """

    name: str
    problems: tuple[Problem, ...]
    weight: float | None = None
    order: str | None = None
    count: int | None = None
    left_out: tuple[str, ...] = ()
