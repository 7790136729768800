"""Loads every data source of a run, checks the problems together, and leaves out over-long ones."""

from __future__ import annotations

import hashlib
import itertools
import json
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from rlvr_core.api import (
    Complaint,
    DataError,
    DatasetLoader,
    Message,
    PluginError,
    Problem,
    RlvrError,
    Source,
)
from rlvr_core.config.model import SplitSection
from rlvr_core.data.prompts import Renderer

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
    for problem in problems:
        if not isinstance(problem, Problem):
            what = f"{name}: its {call} gave a {type(problem).__name__}, not a Problem"
            raise PluginError(what, where=where, remedy=remedy)
    return problems


def check_problems(problems: Sequence[Problem], *checks: Callable[[Problem], None]) -> None:
    """Let verifiers, and what else has a ``check``, look at every problem.

    Args:
        problems: The problems.
        checks: Each raises for a problem that cannot be used, as ``RewardPlan.check`` does.

    Raises:
        DataError: With the first faults in full and the number of the others.
    """
    complaints: list[Complaint] = []
    for check, problem in itertools.product(checks, problems):
        try:
            check(problem)
        except RlvrError as error:
            complaints.extend(
                Complaint(complaint.what, complaint.where or problem.where, complaint.remedy)
                for complaint in error.complaints
            )
        except Exception as error:
            fault = f"its verifier's check failed: {type(error).__name__}: {error}"
            at = traceback.format_exception(error, limit=-1)[1].partition(", in")[0].strip()
            complaints.append(Complaint(f"{problem.id}: {fault}", problem.where, (at,)))
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


def is_heldout(problem_id: str, split: SplitSection) -> bool:
    """Whether a problem is held out: a hash of its id, a number in [0, 1), is below the share.

    Rows that are added, taken away or reordered change nothing for the others.
    """
    digest = hashlib.sha256(f"{split.seed}\0{problem_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") < split.heldout * 2**64


def train_part(problems: Iterable[Problem], split: SplitSection) -> tuple[Problem, ...]:
    """The problems to train on, in their order."""
    return tuple(one for one in problems if not is_heldout(one.id, split))


def heldout_part(problems: Iterable[Problem], split: SplitSection) -> tuple[Problem, ...]:
    """The others, in their order."""
    return tuple(one for one in problems if is_heldout(one.id, split))


@dataclass(frozen=True, slots=True)
class AuditReport:
    """Lengths of the prompts of a run, in tokens.

    Attributes:
        total: Problems looked at.
        overlong: Ids and lengths of those that were taken out.
        longest: Tokens of the longest prompt that is kept.
        median: Tokens of the median prompt of all.
        limit: Tokens a prompt may have.
    """

    total: int
    overlong: tuple[tuple[str, int], ...]
    longest: int
    median: int
    limit: int

    @property
    def lines(self) -> tuple[str, ...]:
        """For a person: how long prompts are, and what was taken out."""
        lengths = f"prompt lengths: median {self.median} tokens, longest {self.longest}"
        if not self.overlong:
            return (lengths,)
        some = ", ".join(f"{id_} ({length} tokens)" for id_, length in self.overlong[:3])
        return (
            lengths,
            f"left out: {len(self.overlong)} of {self.total} prompts "
            f"({len(self.overlong) / self.total:.1%}) are longer than {self.limit} tokens, "
            f"such as {some}",
        )


def audit(
    sources: Sequence[Source], renderer: Renderer, max_prompt_tokens: int, max_overlong_share: float
) -> tuple[list[Source], AuditReport]:
    """Take out problems whose prompts are too long, and say so (T25, T34).

    Args:
        sources: The data as loaded.
        renderer: Makes the prompts.
        max_prompt_tokens: Longest prompt that is kept.
        max_overlong_share: Share of all problems that may be taken out.

    Returns:
        The sources without those problems, and a report.

    Raises:
        DataError: If more are too long than may be, or a source loses all its problems.
    """
    lengths: list[int] = []
    overlong: list[tuple[str, int]] = []
    kept: list[Source] = []
    for source in sources:
        short, long = [], []
        for problem in source.problems:
            lengths.append(len(renderer.render(problem)))
            if lengths[-1] > max_prompt_tokens:
                overlong.append((problem.id, lengths[-1]))
                long.append(problem.id)
            else:
                short.append(problem)
        kept.append(replace(source, problems=tuple(short), left_out=tuple(long)))
    report = AuditReport(
        total=len(lengths),
        overlong=tuple(overlong),
        longest=max((length for length in lengths if length <= max_prompt_tokens), default=0),
        median=sorted(lengths)[len(lengths) // 2] if lengths else 0,
        limit=max_prompt_tokens,
    )
    bare = [source.name for source in kept if not source.problems]
    if bare or len(overlong) > max_overlong_share * len(lengths):
        nothing = f"; nothing would be left of {', '.join(bare)}" if bare else ""
        named = ", ".join(source.name for source in sources)
        raise DataError(
            f"{len(overlong)} of {len(lengths)} prompts of {named} are longer than "
            f"{max_prompt_tokens} tokens, up to {max(lengths, default=0)}; a share of "
            f"{max_overlong_share:g} may be left out" + nothing,
            where="data.max_prompt_tokens",
            remedy=(
                "raise data.max_prompt_tokens",
                "or accept the loss by raising data.max_overlong_share",
            ),
        )
    return kept, report
