"""One problem of a generator, made again wherever it is needed.

The same arguments give the same problem. A generator's own scoring needs the entry as the generator
made it, with tuples and sets that JSON does not keep; so a problem says how it was made, and a hash
by which a changed generator is found.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

from rlvr_core.api import DataError, Json
from rlvr_gym.fences import FENCED, MENDED, MIXTURE, fenced_levels
from rlvr_gym.reading import make_safe

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
    if task not in names():
        meant = (*_did_you_mean(task, names()), "list them: rlvr gym list")
        raise DataError(f"reasoning-gym has no generator {task!r}", where=where, remedy=meant)
    if task == MIXTURE:
        raise DataError(f"{task}: {FENCED[task]}", where=where, remedy="name the tasks themselves")
    if task in FENCED and not allow_fenced:
        raise DataError(
            f"the generator {task!r} is fenced: {FENCED[task]}",
            where=where,
            remedy="take another one, or set allow_fenced: true",
        )


def check_level(task: str, level: int, *, where: str) -> None:
    """Refuse a level of a generator that does not pass the gate.

    Raises:
        DataError: With the reason, and which levels pass.
    """
    fenced = fenced_levels()
    if (task, level) not in fenced:
        return
    highest = max(map(len, curriculum(task).values()), default=0)
    passing = ", ".join(
        str(candidate) for candidate in range(highest) if (task, candidate) not in fenced
    )
    instead = f"levels that pass: {passing}" if passing else "leave levels out: defaults pass"
    what = f"level {level} of the generator {task!r} is fenced: {fenced[task, level]}"
    raise DataError(what, where=where, remedy=(instead, "or set allow_fenced: true"))


def _did_you_mean(name: str, known: Sequence[str]) -> tuple[str, ...]:
    close = difflib.get_close_matches(name, known, n=1)
    return (f"did you mean: {close[0]}?",) if close else ()


def defaults(task: str) -> dict[str, Json]:
    """Return the options of a generator and their defaults: its own, but for a few (``MENDED``)."""
    from reasoning_gym.factory import DATASETS

    made = DATASETS[task][1]()
    options = {
        field.name: getattr(made, field.name)
        for field in dataclasses.fields(made)
        if field.name not in _OURS
    }
    return {**options, **MENDED.get(task, {})}


def curriculum(task: str) -> dict[str, list[Json]]:
    """Return the parameters of a generator's curriculum with their levels, easiest first.

    A generator without a curriculum has none.
    """
    from reasoning_gym.factory import create_curriculum, has_curriculum

    if not has_curriculum(task):
        return {}
    attributes = create_curriculum(task).attributes
    return {name: list(attribute.levels) for name, attribute in attributes.items()}


def settings(task: str, level: int | None, options: Mapping[str, Json]) -> dict[str, Json]:
    """Return the options of a generator at a level of its curriculum.

    Args:
        task: Name of the generator.
        level: Level of all parameters of its curriculum, 0 the easiest; the highest one where a
            parameter has fewer. None leaves the defaults.
        options: Options that are set whatever the level.

    Raises:
        DataError: If it has no such level or option.
    """
    known = sorted(defaults(task))
    for name in options:
        if name not in known:
            remedy = (*_did_you_mean(name, known), f"its options: {', '.join(known)}")
            what = f"the generator {task!r} has no option {name!r}"
            raise DataError(what, where="gym/tasks: options", remedy=remedy)
    chosen = MENDED.get(task, {}) if level is None else _of_curriculum(task, level)
    return {**chosen, **options}


def _of_curriculum(task: str, level: int) -> dict[str, Json]:
    from reasoning_gym.factory import create_curriculum

    highest = max(map(len, curriculum(task).values()), default=0) - 1
    if level > highest:
        has = f"levels 0 to {highest}" if highest >= 0 else "no curriculum"
        raise DataError(
            f"the generator {task!r} has no level {level}",
            where="gym/tasks: levels",
            remedy=f"it has {has}",
        )
    made = create_curriculum(task)
    for name, attribute in made.attributes.items():
        made.set_attr_level(name, min(level, len(attribute.levels) - 1))
    chosen = made.generate_configuration()
    plain = {
        field.name: getattr(chosen, field.name)
        for field in dataclasses.fields(chosen)
        if field.name not in _OURS and _is_json(getattr(chosen, field.name))
    }
    return cast("dict[str, Json]", json.loads(json.dumps(plain)))


def _is_json(value: object) -> bool:
    """Whether an option can be written. An object, which no curriculum changes, cannot."""
    try:
        json.dumps(value)
    except TypeError:
        return False
    return True


_OURS = ("seed", "size")
"""Options of every generator that the data set sets."""


@lru_cache(maxsize=64)
def _generator(task: str, config: str, seed: int) -> Any:
    from reasoning_gym.factory import create_dataset

    try:
        return create_dataset(task, **json.loads(config), seed=seed, size=_SIZE)
    except (AssertionError, TypeError, ValueError) as error:
        what = f"the generator {task!r} refuses its options: {error}"
        raise DataError(what, where="gym/tasks: options") from error


_SIZE = 10_000
"""The generators are asked by index and have no such limit."""


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
    make_safe(task)
    generator = _generator(task, json.dumps(config, sort_keys=True), seed)
    with contextlib.redirect_stdout(io.StringIO()):
        return float(generator.score_answer(answer, made))


def digest(made: Entry) -> str:
    """Hash of what is asked and what is right."""
    text = f"{made['question']}\x1f{made['answer']}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]
