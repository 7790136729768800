"""The data set ``bs4/pages``, and what its problems look like."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, get_args

from pydantic import Field

from rlvr_bs4 import catalog, modes, prompt
from rlvr_bs4.generate import Split, generate
from rlvr_bs4.modes import Mode
from rlvr_bs4.task import Row, SizeName, Task
from rlvr_bs4.world import stream
from rlvr_core.api import ComponentConfig, DataError, Problem

DATASET = "bs4/pages"
VERIFIER = "bs4/answer"
SIZES: tuple[SizeName, ...] = get_args(SizeName)
Count = Annotated[int, Field(gt=0)]


class Options(ComponentConfig):
    """Which tasks."""

    split: Split = "train"
    """Seeds and wordings: nothing that is asked in one split is asked in another."""
    mode: Mode = "all"
    """``all``; by phase ``mvp``, ``phase2``; by difficulty ``primer``, ``bootstrap`` (primer and
    easy), ``hard_only``, ``tiered`` (easy 20%, medium and hard 40% each)."""
    weights: Mapping[str, Annotated[float, Field(ge=0)]] = {}
    """Weights by archetype, category or difficulty in place of the mode's; 0 leaves out."""
    archetypes: tuple[str, ...] = ()
    """Only these, in equal shares, whatever the mode."""
    exclude: tuple[str, ...] = ()
    """Not these: keep them for an evaluation on kinds of tasks that were never trained on."""
    size: Literal["bare", "small", "medium", "large", "mixed"] = "small"
    """How much page there is around the content: none, 3 to 6, 12 to 24 or 50 to 90 kB."""
    n: Count | None = 1000
    """How many problems, exactly; null for 1,000 of each archetype in ``train``, 100 in ``eval``,
    20 in ``bench``."""
    seed: Annotated[int, Field(ge=0)] = 42
    """Chooses seeds and order."""


def rows_of(config: Options) -> list[Row]:
    """The tasks that a config asks for, made when used.

    Raises:
        DataError: If an archetype is unknown, or nothing is left.
    """
    if config.archetypes:
        weighted = {catalog.get(id).id: 1.0 for id in config.archetypes}
    else:
        weighted = modes.weights(config.mode, config.weights)
    for id in map(catalog.get, config.exclude):
        weighted.pop(id.id, None)
    if not weighted:
        raise DataError("archetypes and exclude leave no archetype")
    n = config.n or modes.PER_ARCHETYPE[config.split] * len(weighted)
    chosen = modes.rows(weighted, config.split, n, config.seed)
    return [_sized(id, seed, config.size) for id, seed in chosen]


def _sized(id: str, seed: int, size: str) -> Row:
    if size != "mixed":
        return id, seed, size  # type: ignore[return-value]
    return id, seed, SIZES[stream("size", id, seed).randrange(len(SIZES))]


class Pages:
    """Questions about generated web pages, with the pages in the prompt."""

    class Config(Options):
        """Options of ``bs4/pages``."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def load(self) -> Iterator[Problem]:
        """Yield the problems, each made when it is asked for.

        Raises:
            DataError: If the options leave nothing, or name an unknown archetype.
        """
        return (self._problem(generate(*row)) for row in rows_of(self.config))

    def _problem(self, task: Task) -> Problem:
        return problem(task)


def problem(task: Task) -> Problem:
    """A task as a problem; neither its id nor its prompt reveals archetype or truth."""
    kind = catalog.get(task.archetype)
    return Problem(
        id=problem_id(task),
        prompt=prompt.single(task),
        verifier=VERIFIER,
        spec=reference(task),
        dataset=DATASET,
        tags={
            "archetype": kind.id,
            "subject": kind.category,
            "level": kind.difficulty,
            "size": task.size,
        },
    )


def problem_id(task: Task) -> str:
    """A stable id that reveals nothing: ``bs4_5f0c...``."""
    return row_id((task.archetype, task.seed, task.size))


def row_id(row: Row) -> str:
    """The id of a task that has not been made."""
    archetype, seed, size = row
    name = f"{archetype} {seed} {size}"
    return f"bs4_{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def reference(task: Task) -> dict[str, str | int]:
    """The data from which a verifier or environment rebuilds the task and checks it."""
    return {
        "archetype": task.archetype,
        "seed": task.seed,
        "size": task.size,
        "sha256": task.sha256,
    }
