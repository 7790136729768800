"""One problem of a generator, made again wherever it is needed.

The same arguments give the same problem. A generator's own scoring needs the entry as the generator
made it, with tuples and sets that JSON does not keep; so a problem says how it was made, and a hash
by which a changed generator is found.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, cast

from rlvr_core.api import DataError, Json
from rlvr_gym.fences import FENCED, MIXTURE

Entry = dict[str, Any]


def names() -> list[str]:
    """Return the names of all generators."""
    from reasoning_gym.factory import DATASETS

    return sorted(DATASETS)


def category(task: str) -> str:
    """Return the family a generator belongs to, such as ``logic``."""
    from reasoning_gym.factory import DATASETS

    return str(DATASETS[task][0].__module__.split(".")[1])


def check_task(task: str, *, allow_fenced: bool, where: str) -> None:
    """Refuse a generator that does not exist or is fenced.

    Raises:
        DataError: With the reason, and what to do.
    """
    import difflib

    if task not in names():
        close = difflib.get_close_matches(task, names(), n=1)
        meant = f"did you mean: {close[0]}?" if close else "rlvr-gym's README lists all of them"
        raise DataError(f"reasoning-gym has no generator {task!r}", where=where, remedy=meant)
    if task == MIXTURE:
        raise DataError(f"{task}: {FENCED[task]}", where=where, remedy="name the tasks themselves")
    if task in FENCED and not allow_fenced:
        raise DataError(
            f"the generator {task!r} is fenced: {FENCED[task]}",
            where=where,
            remedy="take another one, or set allow_fenced: true",
        )


def settings(task: str, level: int | None, options: Mapping[str, Json]) -> dict[str, Json]:
    """Return the options of a generator at a level of its curriculum.

    Args:
        task: Name of the generator.
        level: Level of all parameters of its curriculum, 0 the easiest; the highest one where a
            parameter has fewer. None leaves the generator's defaults.
        options: Options that are set whatever the level.

    Raises:
        DataError: If it has no curriculum, or an option is wrong.
    """
    chosen: dict[str, Json] = {}
    if level is not None:
        chosen = _of_curriculum(task, level)
    return {**chosen, **options}


def _of_curriculum(task: str, level: int) -> dict[str, Json]:
    import dataclasses

    from reasoning_gym.factory import create_curriculum, has_curriculum

    if not has_curriculum(task):
        raise DataError(f"the generator {task!r} has no curriculum", remedy="leave out levels")
    curriculum = create_curriculum(task)
    for name, attribute in curriculum.attributes.items():
        curriculum.set_attr_level(name, min(level, len(attribute.levels) - 1))
    made = curriculum.generate_configuration()
    plain = {
        field.name: getattr(made, field.name)
        for field in dataclasses.fields(made)
        if field.name not in ("seed", "size")
    }
    return cast("dict[str, Json]", json.loads(json.dumps(plain)))


@lru_cache(maxsize=64)
def _generator(task: str, config: str, seed: int) -> Any:
    from reasoning_gym.factory import create_dataset

    try:
        return create_dataset(task, **json.loads(config), seed=seed, size=_SIZE)
    except (AssertionError, TypeError, ValueError) as error:
        raise DataError(f"gym/tasks: {task} refuses its options: {error}") from error


_SIZE = 10_000
"""The generators are asked by index, and this is none of their limits."""


@lru_cache(maxsize=256)
def _entry(task: str, config: str, seed: int, index: int) -> Entry:
    with contextlib.redirect_stdout(io.StringIO()):  # some of them print
        return cast("Entry", _generator(task, config, seed)[index])


def entry(task: str, config: Mapping[str, Json], seed: int, index: int) -> Entry:
    """Make a problem: ``question``, ``answer`` and ``metadata``.

    Raises:
        DataError: If the generator refuses its options.
    """
    return _entry(task, json.dumps(config, sort_keys=True), seed, index)


def score(task: str, config: Mapping[str, Json], seed: int, index: int, answer: str) -> float:
    """Return the generator's score of an answer, 0 to 1.

    Raises:
        Exception: Whatever the generator raises on an answer it cannot read.
    """
    made = entry(task, config, seed, index)
    generator = _generator(task, json.dumps(config, sort_keys=True), seed)
    with contextlib.redirect_stdout(io.StringIO()):
        return float(generator.score_answer(answer, made))


def digest(made: Entry) -> str:
    """Hash of what is asked and what is right."""
    text = f"{made['question']}\x1f{made['answer']}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]
