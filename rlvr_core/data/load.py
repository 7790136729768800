"""Loads every data source of a run, checks all problems together, and drops over-long prompts."""

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
from rlvr_core.api.progress import counting
from rlvr_core.config.model import SplitSection
from rlvr_core.data.prompts import Renderer

SHOWN = 5
"""Number of faulty problems reported individually; the others are only counted."""


@dataclass(frozen=True, slots=True)
class NamedLoader:
    """One entry of ``data.sources``, constructed.

    Attributes:
        name: Full name of the loader.
        loader: The loader.
        weight: See ``Source``.
        order: See ``Source``.
        count: See ``Source``.
        split: The held-out share; None if nothing is held out.
        where: Where the user wrote it, for messages.
    """

    name: str
    loader: DatasetLoader
    weight: float | None = None
    where: str = ""
    order: str | None = None
    count: int | None = None
    split: SplitSection | None = None


_OWN_ID = ("give each problem an id of its own, or take one of the two out",)
_REMEDY = ("correct the data there, or leave them out",)


def load_sources(loaders: Sequence[NamedLoader]) -> list[Source]:
    """Load the problems of every source.

    Raises:
        DataError: If a source is unusable or empty, an id occurs twice, or a problem is malformed.
        MachineError: If data cannot be reached.
        PluginError: If a loader yields something other than a problem.
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
    """Check that a plugin's component returned problems; None counts as no problems.

    Args:
        given: The returned value.
        name: Full name of the component.
        call: Name of the call that returned it.
        where: Where the user wrote the component.

    Raises:
        PluginError: If the value is anything else.
    """
    remedy = "have it yield rlvr_core.api.Problem(id=..., prompt=..., ...)"
    if given is None:
        return ()
    try:
        each = counting("problems", iter(given))
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
    """Run every check on every problem, such as those of the verifiers.

    Args:
        problems: The problems.
        checks: Functions that raise for an unusable problem, as ``RewardPlan.check`` does.

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
    """SHA-256 of the problems as canonical JSON, in order; equal hashes mean equal data."""
    digest = hashlib.sha256()
    for problem in problems:
        content = asdict(problem)
        del content["where"]
        if not problem.tools:
            del content["tools"]  # absent when the first fingerprints were recorded
        digest.update(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())
        digest.update(b"\n")
    return digest.hexdigest()


def fingerprints(sources: Sequence[Source]) -> dict[str, Mapping[str, object]]:
    """Return count and fingerprint of each source, for ``run.json``."""
    return {
        f"{index}:{source.name}": counted(source.problems) for index, source in enumerate(sources)
    }


def counted(problems: Sequence[Problem]) -> Mapping[str, object]:
    """Return the number of problems and their fingerprint."""
    return {"problems": len(problems), "sha256": fingerprint(problems)}


def _placed(error: DataError, named: NamedLoader) -> RlvrError:
    remedy = (*_REMEDY, f"they are named at {named.where}") if named.where else _REMEDY
    return DataError.collect(
        [Complaint(o.what, o.where or named.where, o.remedy or remedy) for o in error.complaints]
    )


def _repeated(sources: Sequence[Source]) -> list[Complaint]:
    owners: dict[str, str] = {}
    complaints = []
    for index, source in enumerate(sources):
        label = f"{source.name} (data.sources[{index}])"
        for problem in source.problems:
            id_: Any = problem.id
            if not isinstance(id_, str):
                continue  # malformed: its fields may not be safe to look up
            first = owners.get(problem.id)
            if first is None:
                owners[problem.id] = label
            else:
                places = f"twice in {label}" if first == label else f"in {first} and in {label}"
                complaints.append(
                    Complaint(f"problem id '{problem.id}' is {places}", problem.where, _OWN_ID)
                )
    return complaints


def _malformed(sources: Sequence[Source]) -> list[Complaint]:
    return [
        Complaint(f"{source.name}: problem {problem.id!r}: {fault}", problem.where, _REMEDY)
        for source in sources
        for problem in source.problems
        if (fault := _fault(problem))
    ]


def _fault(problem: Problem) -> str:
    given: Any = problem  # typed as a problem, but a plugin's loader may yield anything
    if not isinstance(given.id, str):
        return f"its id must be text, not {type(given.id).__name__}"
    stop, turns = given.stop, () if isinstance(given.prompt, str) else given.prompt
    if not isinstance(stop, tuple | list) or not all(
        text and isinstance(text, str) for text in stop
    ):
        return f"its stop must be a tuple of texts that are not empty, not {stop!r}"
    if not isinstance(turns, tuple | list) or not all(isinstance(turn, Message) for turn in turns):
        return f"its prompt must be text or a tuple of rlvr_core.api.Message, not {turns!r:.60}"
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
    """Whether a problem is held out: the hash of its id, mapped to [0, 1), is below the share.

    Adding, removing or reordering rows does not change the split of the others.
    """
    digest = hashlib.sha256(f"{split.seed}\0{problem_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") < split.heldout * 2**64


def train_part(problems: Iterable[Problem], split: SplitSection) -> tuple[Problem, ...]:
    """Return the problems to train on, in order."""
    return tuple(problem for problem in problems if not is_heldout(problem.id, split))


def heldout_part(problems: Iterable[Problem], split: SplitSection) -> tuple[Problem, ...]:
    """Return the held-out problems, in order."""
    return tuple(problem for problem in problems if is_heldout(problem.id, split))


@dataclass(frozen=True, slots=True)
class AuditReport:
    """Prompt lengths of a run, in tokens.

    Attributes:
        total: Number of problems checked.
        overlong: Id and length of each problem that was dropped.
        longest: Length of the longest prompt that is kept.
        median: Median length over all prompts.
        limit: Longest prompt allowed.
        sha256: Of the token ids of the prompts that are kept, in order.
    """

    total: int
    overlong: tuple[tuple[str, int], ...]
    longest: int
    median: int
    limit: int
    sha256: str

    @property
    def lines(self) -> tuple[str, ...]:
        """Return the report as text lines: prompt lengths, and the problems dropped."""
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
    """Drop problems whose prompts are too long, and report them.

    Args:
        sources: The data as loaded.
        renderer: Renders the prompts.
        max_prompt_tokens: Longest prompt that is kept.
        max_overlong_share: Share of all problems that may be dropped.

    Returns:
        The sources without the dropped problems, and a report.

    Raises:
        DataError: If too many prompts are too long, or a source loses all its problems.
    """
    lengths: list[int] = []
    overlong: list[tuple[str, int]] = []
    kept: list[Source] = []
    digest = hashlib.sha256()
    for source in sources:
        short, long = [], []
        for problem in source.problems:
            ids = renderer.render(problem)
            lengths.append(len(ids))
            if lengths[-1] > max_prompt_tokens:
                overlong.append((problem.id, lengths[-1]))
                long.append(problem.id)
            else:
                short.append(problem)
                digest.update(repr(ids).encode())
        kept.append(replace(source, problems=tuple(short), left_out=tuple(long)))
    report = AuditReport(
        total=len(lengths),
        overlong=tuple(overlong),
        longest=max((length for length in lengths if length <= max_prompt_tokens), default=0),
        median=sorted(lengths)[len(lengths) // 2] if lengths else 0,
        limit=max_prompt_tokens,
        sha256=digest.hexdigest(),
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
