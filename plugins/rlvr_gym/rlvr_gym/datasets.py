"""The data set ``gym/tasks``: problems of one or several generators, level by level."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import Field

from rlvr_core.api import ComponentConfig, DataError, Json, Problem
from rlvr_gym.entries import Entry, category, check_level, check_task, digest, entry, settings
from rlvr_gym.rules import is_sound

DATASET = "gym/tasks"
VERIFIER = "gym/answer"
HINT = "\n\nGive the final answer between <answer> and </answer>."
SEEDS_APART = 1_000_000
"""A generator makes its problem i from seed + i, so seeds next to each other would give the same
problems."""

Count = Annotated[int, Field(gt=0)]


class Choice(ComponentConfig):
    """Which generators make the problems, and how hard."""

    tasks: Annotated[tuple[str, ...], Field(min_length=1)]
    """Names of generators, as in ``[spell_backward, maze]``; ``rlvr gym list`` lists them."""
    levels: tuple[Annotated[int, Field(ge=0)], ...] = ()
    """Levels of each generator's curriculum, easiest first; the problems come level by level.
    Empty for the generators' defaults."""
    options: Mapping[str, Json] = {}
    """Options of the generators themselves, such as ``{max_word_len: 6}``."""
    place: Literal["tags", "response"] = "tags"
    """Where the answer is looked for: in ``<answer>`` tags, which the prompt asks for, or in the
    whole response."""
    allow_fenced: bool = False
    """Also take generators and levels that do not pass ``rlvr data check``."""


class Tasks:
    """Problems of reasoning-gym's generators."""

    class Config(Choice):
        """Options of ``gym/tasks``."""

        n: Count = 500
        """How many problems in all, shared among tasks and levels."""
        split: Literal["train", "heldout"] = "train"
        """A tenth of the questions, by their hash, is held out, whatever the seed."""
        seed: Annotated[int, Field(ge=0, lt=4_000)] = 42
        """Which problems."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def load(self) -> Iterator[Problem]:
        """Yield the problems, easiest level first; one that repeats another's question is left out.

        Raises:
            DataError: If a generator or level is unknown or fenced, if it refuses its options, or
                if it cannot make so many different problems.
        """
        config = self.config
        for task in config.tasks:
            check_task(task, allow_fenced=config.allow_fenced, where=DATASET)
        parts = [(level, task) for level in config.levels or (None,) for task in config.tasks]
        for level, task in parts:
            if level is not None and not config.allow_fenced:
                check_level(task, level, where=f"{DATASET}: levels")
        seen: set[str] = set()
        for at, (level, task) in enumerate(parts):
            n = config.n // len(parts) + (at < config.n % len(parts))
            yield from self._part(task, level, n, seen)

    def _part(self, task: str, level: int | None, n: int, seen: set[str]) -> Iterator[Problem]:
        chosen = settings(task, level, self.config.options)
        seed, count = self.config.seed * SEEDS_APART, 0
        for index in range(_TRIES * n):
            if count == n:
                return
            made = entry(task, chosen, seed, index)
            question = str(made["question"])
            if question in seen or is_held_out(question) != (self.config.split == "heldout"):
                continue
            if not is_sound(task, made):
                continue
            seen.add(question)
            count += 1
            spec = self._spec(task, chosen, seed, index, made)
            yield self._problem(task, level, spec, question)
        if count < n:
            at = "" if level is None else f" at level {level}"
            raise DataError(
                f"the generator {task!r} makes only {count} different problems{at}, not {n}",
                where="gym/tasks",
                remedy="ask for fewer (n), or make them harder (levels, options)",
            )

    def _spec(
        self, task: str, options: Mapping[str, Json], seed: int, index: int, made: Entry
    ) -> dict[str, Json]:
        """How a problem was made, so that the verifier can make it again."""
        return {
            "task": task,
            "config": dict(options),
            "seed": seed,
            "index": index,
            "digest": digest(made),
            "place": self.config.place,
        }

    def _problem(
        self, task: str, level: int | None, spec: dict[str, Json], question: str
    ) -> Problem:
        name = hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:16]
        tags: dict[str, Json] = {"task": task, "category": category(task)}
        if level is not None:
            tags["level"] = level
        hint = HINT if self.config.place == "tags" else ""
        return Problem(f"gym_{name}", question + hint, VERIFIER, spec, DATASET, tags=tags)


def is_held_out(question: str) -> bool:
    """Whether a question belongs to the split ``heldout``."""
    return int(hashlib.sha256(question.encode()).hexdigest()[:8], 16) % 10 == 0


_TRIES = 40
"""Problems that are made at most for each one that is kept; a tenth of them is held out."""
