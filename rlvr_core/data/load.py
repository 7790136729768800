"""Loads every data source of a run and checks the problems together."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rlvr_core.api.errors import Complaint, DataError, PluginError, RlvrError
from rlvr_core.api.protocols import DatasetLoader, Source
from rlvr_core.api.types import Message, Problem
from rlvr_core.config.model import SplitSection
from rlvr_core.data.heldout import train_part

SHOWN = 5
"""Faulty problems that are reported one by one; of the others there is the number."""


@dataclass(frozen=True, slots=True)
class NamedLoader:
    """One entry of ``data.sources``, built.

    Attributes:
        name: Full name of the loader.
        loader: The loader.
        weight: See ``Source``.
        order: See ``Source``.
        count: See ``Source``.
        split: What is held out of it; None for nothing.
        where: Where the user wrote it, for messages.
    """

    name: str
    loader: DatasetLoader
    weight: float | None = None
    where: str = ""
    order: str | None = None
    count: int | None = None
    split: SplitSection | None = None


def load_sources(loaders: Sequence[NamedLoader]) -> list[Source]:
    """Load all problems.

    Raises:
        DataError: If a source is unusable or empty, an id is met twice, or a problem is malformed.
        MachineError: If data cannot be reached.
        PluginError: If a loader gives something that is no problem.
    """
    sources = []
    for named in loaders:
        try:
            problems = problems_given(named.loader.load(), named.name, "load()", named.where)
        except DataError as error:
            raise _placed(error, named) from error
        if not problems:
            raise DataError(f"{named.name} gave no problems", where=named.where)
        if named.split is not None:
            problems = _trained(problems, named.split, named)
        sources.append(Source(named.name, problems, named.weight, named.order, named.count))
    _collect([*_repeated(sources), *_malformed(sources)])
    return sources


def _trained(
    problems: tuple[Problem, ...], split: SplitSection, named: NamedLoader
) -> tuple[Problem, ...]:
    kept = train_part(problems, split)
    if not kept or len(kept) == len(problems):
        part = "all" if not kept else "none"
        raise DataError(
            f"{named.name}: split.heldout {split.heldout:g} holds out {part} of its "
            f"{len(problems)} problems",
            where=named.where,
            remedy="choose another share or seed, or take the split out",
        )
    return kept


def problems_given(given: Any, name: str, call: str, where: str) -> tuple[Problem, ...]:
    """The problems that a plugin's part gave; none for None.

    Args:
        given: What it gave.
        name: Full name of the part.
        call: What was called.
        where: Where the user asked for it.

    Raises:
        PluginError: If it is something else.
    """
    remedy = "have it yield rlvr_core.api.Problem(id=..., prompt=..., ...)"
    if given is None:
        return ()
    try:
        each = iter(given)
    except TypeError:
        what = f"{name}: its {call} gave a {type(given).__name__}, nothing to iterate over"
        raise PluginError(what, where=where, remedy=remedy) from None
    problems = tuple(each)
    for one in problems:
        if not isinstance(one, Problem):
            what = f"{name}: its {call} gave a {type(one).__name__}, not a Problem"
            raise PluginError(what, where=where, remedy=remedy)
    return problems


def check_problems(problems: Sequence[Problem], check: Callable[[Problem], None]) -> None:
    """Let the verifiers check the spec of every problem.

    Args:
        problems: The problems.
        check: Raises for a problem that cannot be judged, as ``RewardPlan.check`` does.

    Raises:
        DataError: With the first faults in full and the number of the others.
    """
    complaints: list[Complaint] = []
    for problem in problems:
        try:
            check(problem)
        except RlvrError as error:
            complaints.extend(
                Complaint(one.what, one.where or problem.where, one.remedy)
                for one in error.complaints
            )
        except Exception as error:
            fault = f"its verifier's check failed: {type(error).__name__}: {error}"
            complaints.append(Complaint(f"{problem.id}: {fault}", problem.where))
    _collect(complaints)


def fingerprint(problems: Sequence[Problem]) -> str:
    """SHA-256 of the problems as canonical JSON, in order: two runs with it saw the same data."""
    digest = hashlib.sha256()
    for problem in problems:
        content = asdict(problem)
        del content["where"]
        if not problem.tools:
            del content["tools"]  # problems had none when the first fingerprints were taken
        digest.update(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())
        digest.update(b"\n")
    return digest.hexdigest()


def fingerprints(sources: Sequence[Source]) -> dict[str, Mapping[str, object]]:
    """Count and fingerprint of each source, for ``run.json``."""
    return {
        f"{index}:{source.name}": counted(source.problems) for index, source in enumerate(sources)
    }


def counted(problems: Sequence[Problem]) -> Mapping[str, object]:
    """How many problems there are, and their fingerprint."""
    return {"problems": len(problems), "sha256": fingerprint(problems)}


def _placed(error: DataError, named: NamedLoader) -> RlvrError:
    return DataError.collect(
        [Complaint(one.what, one.where or named.where, one.remedy) for one in error.complaints]
    )


def _repeated(sources: Sequence[Source]) -> list[Complaint]:
    owners: dict[str, str] = {}
    complaints = []
    for index, source in enumerate(sources):
        label = f"{source.name} (data.sources[{index}])"
        for problem in source.problems:
            id_: Any = problem.id
            if not isinstance(id_, str):
                continue  # malformed, and perhaps nothing that can be looked up
            first = owners.get(problem.id)
            if first is None:
                owners[problem.id] = label
            else:
                places = f"twice in {label}" if first == label else f"in {first} and in {label}"
                complaints.append(
                    Complaint(f"problem id '{problem.id}' is {places}", problem.where)
                )
    return complaints


def _malformed(sources: Sequence[Source]) -> list[Complaint]:
    return [
        Complaint(f"{source.name}: problem {problem.id!r}: {fault}", problem.where)
        for source in sources
        for problem in source.problems
        if (fault := _fault(problem))
    ]


def _fault(problem: Problem) -> str:
    given: Any = problem  # what plugins' loaders give is of the right types as far as they say
    if not isinstance(given.id, str):
        return f"its id must be text, not {type(given.id).__name__}"
    stop, turns = given.stop, () if isinstance(given.prompt, str) else given.prompt
    if not isinstance(stop, tuple | list) or not all(one and isinstance(one, str) for one in stop):
        return f"its stop must be a tuple of texts that are not empty, not {stop!r}"
    if not isinstance(turns, tuple | list) or not all(isinstance(one, Message) for one in turns):
        return (
            "its prompt must be text or a tuple of rlvr_core.api.Message, not " + repr(turns)[:60]
        )
    if not problem.id.strip() or set(problem.id) & {"\r", "\n"}:
        return "its id is blank or holds a line break, which no file of ids can tell"
    prompt = problem.prompt
    texts = [prompt] if isinstance(prompt, str) else [turn.content for turn in prompt]
    if not any(text.strip() for text in texts):
        return "its prompt is empty"
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        return "its prompt holds half a surrogate pair, which no tokenizer takes"
    try:
        json.dumps([dict(problem.spec), dict(problem.tags)], allow_nan=False)
    except (TypeError, ValueError) as error:
        return f"spec and tags must be JSON: {error}"
    return ""


def _collect(complaints: Sequence[Complaint]) -> None:
    if not complaints:
        return
    shown = list(complaints[:SHOWN])
    if len(complaints) > SHOWN:
        shown.append(Complaint(f"and {len(complaints) - SHOWN} more problems like these"))
    raise DataError.collect(shown)
