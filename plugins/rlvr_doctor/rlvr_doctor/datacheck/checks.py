"""The checks of a task set, and their report."""

from __future__ import annotations

import hashlib
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rlvr_core.api import Finding, Json, Problem
from rlvr_core.api.progress import counting
from rlvr_core.stats.intervals import wilson
from rlvr_core.toolkit import outcome
from rlvr_doctor.datacheck.blind import Case, Tried, common_answers, guesses
from rlvr_doctor.datacheck.corrupt import corruptions
from rlvr_doctor.datacheck.forms import Form, form_of
from rlvr_doctor.datacheck.judging import Judge
from rlvr_doctor.examination.subject import by_prompt, text_of

CHECKS: Mapping[str, str] = {
    "references": "the responses that the verifier calls right pass",
    "corrupted": "references that were made wrong do not pass",
    "blind": "no strategy that ignores the question passes a fifth of a tag's problems",
    "shuffled": "answers of other problems with the tag do not pass",
    "copies": "problems do not repeat the prompts of others",
    "verdicts": "each response gets a verdict",
    "stable": "ids and contents are the same in every process",
}
"""The checks, and the property that each one ensures."""

LIMIT = 0.2
"""Rate above which a strategy that ignores the question is too good."""
RARE = 0.05
"""Maximum share of passing corrupted references, and of copies among
problems: some occur by chance."""
FEW = 20
"""With fewer problems, a rate above the limit fails only if its whole interval is above."""
PER_TAG = 100
OTHERS = 5
"""Number of other problems' answers to try on each problem."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A share with its 95 % interval (Wilson)."""

    passed: int
    n: int
    what: str = ""

    @property
    def value(self) -> float:
        """The share; 0 if ``n`` is 0."""
        return self.passed / self.n if self.n else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the share."""
        return wilson(self.passed, self.n) if self.n else (0.0, 1.0)

    def exceeds(self, limit: float) -> bool:
        """Return whether the rate is above a limit, for certain or on enough problems."""
        return self.n > 0 and (self.interval[0] >= limit or (self.n >= FEW and self.value >= limit))

    def data(self) -> dict[str, Any]:
        """Return it as JSON."""
        low, high = self.interval
        return {**asdict(self), "rate": round(self.value, 4), "low": low, "high": high}


@dataclass(slots=True)
class TagReport:
    """The results on the problems with one tag.

    Attributes:
        tag: The tag, as ``archetype=table size=small``.
        n: Number of problems tried.
        references: Rate of references that pass.
        corrupted: Rate of the kind of corrupted reference that passes most often.
        blind: Rate of the best strategy that ignores the question, on problems not used to
            choose it.
        shuffled: Rate of other problems' answers that pass.
        chance: Rate of a random option in multiple choice, else 0.
        faults: The faults found.
    """

    tag: str
    n: int
    references: Rate
    corrupted: Rate
    blind: Rate
    shuffled: Rate
    chance: float = 0.0
    faults: list[Finding] = field(default_factory=list)

    @property
    def limit(self) -> float:
        """Rate above which a strategy is too good; the rate of a random guess is acceptable."""
        return max(LIMIT, self.chance)

    def too_good(self, rate: Rate) -> bool:
        """Return whether a rate is too good; near the rate of a random guess, only if certain."""
        if self.chance >= LIMIT:
            return rate.n > 0 and rate.interval[0] >= self.limit
        return rate.exceeds(LIMIT)

    def data(self) -> dict[str, Any]:
        """Return it as JSON."""
        rates = {
            name: getattr(self, name).data()
            for name in ("references", "corrupted", "blind", "shuffled")
        }
        return {
            "tag": self.tag,
            "n": self.n,
            **rates,
            "chance": round(self.chance, 4),
            "limit": round(self.limit, 4),
            "faults": [asdict(fault) for fault in self.faults],
        }


@dataclass(slots=True)
class Report:
    """The results on a task set."""

    source: str
    problems: int
    tags: list[TagReport]
    duplicates: int
    faults: list[Finding]

    @property
    def ok(self) -> bool:
        """Whether there are no faults."""
        return not self.faults and not any(tag.faults for tag in self.tags)

    def data(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "source": self.source,
            "ok": self.ok,
            "problems": self.problems,
            "duplicates": self.duplicates,
            "faults": [asdict(fault) for fault in self.faults],
            "tags": [tag.data() for tag in self.tags],
        }


def check_problems(
    source: str,
    problems: Sequence[Problem],
    judge: Judge,
    *,
    by: Sequence[str] = (),
    per_tag: int = PER_TAG,
) -> Report:
    """Check the problems of a source.

    Args:
        source: Name of the task set, for the report.
        problems: The problems.
        judge: Judges responses to them; it is opened here.
        by: Tags to report by; if empty, those with few values, all in combination.
        per_tag: Maximum problems to try of each tag.
    """
    groups = {name: _sample(group, per_tag) for name, group in sorted(by_tag(problems, by).items())}
    judge.open(problem for group in groups.values() for problem in group)
    copies, faults = _copies(problems)
    tags = [_check_tag(name, group, judge) for name, group in groups.items()]
    if judge.failed:
        counts = ", ".join(f"{status} {n}" for status, n in sorted(judge.failed.items()))
        what = f"verdicts could not be given: {counts}; first: {judge.example}"
        faults.append(Finding("verdicts", "fail", what))
    return Report(source, len(problems), tags, copies, faults)


def by_tag(problems: Sequence[Problem], by: Sequence[str] = ()) -> dict[str, list[Problem]]:
    """Group problems by data set and tags."""
    keys = tuple(by) or _telling(problems)
    groups: dict[str, list[Problem]] = defaultdict(list)
    for problem in problems:
        tags = [f"{key}={problem.tags[key]}" for key in keys if key in problem.tags]
        groups[" ".join(tags) or problem.dataset].append(problem)
    return dict(groups)


def _telling(problems: Sequence[Problem]) -> tuple[str, ...]:
    """Return the tags whose values have enough problems each, alone and together."""
    keys = dict.fromkeys(key for problem in problems for key in problem.tags)
    chosen: tuple[str, ...] = ()
    for key in keys:
        combined = {tuple(str(problem.tags.get(k)) for k in (*chosen, key)) for problem in problems}
        if len(combined) * FEW <= len(problems) or len(combined) == 1:
            chosen = (*chosen, key)
    return chosen


def _sample(problems: Sequence[Problem], n: int) -> list[Problem]:
    def order(problem: Problem) -> bytes:
        return hashlib.sha256(problem.id.encode()).digest()

    return sorted(problems, key=order)[:n]


def _copies(problems: Sequence[Problem]) -> tuple[int, list[Finding]]:
    """Count problems with the same prompt as another, and return the faults."""
    repeated = by_prompt(problems)
    copies = sum(len(group) - 1 for group in repeated)
    faults = []
    if Rate(copies, len(problems)).exceeds(RARE):
        first = repeated[0]
        what = (
            f"{copies} of {len(problems)} problems repeat the prompt of another, such as "
            f"{first[1].id} that of {first[0].id}"
        )
        faults.append(Finding("copies", "fail", what))
    return copies, faults


def _check_tag(name: str, problems: Sequence[Problem], judge: Judge) -> TagReport:
    cases, references = _cases(problems, judge)
    halves = [[case for case in cases if case.half == half] for half in (0, 1)]
    common = [common_answers(halves[1]), common_answers(halves[0])]
    rng = random.Random(name)
    tried, shuffled, wrong = Tried(), Counter[bool](), defaultdict[str, list[bool]](list)
    answers = {id(case): case.form.answer for case in cases if case.gold is not None}
    for batch in _batches(cases, 32):
        pending = []
        for tried_case in batch:
            others = [answer for key, answer in answers.items() if key != id(tried_case)]
            shown = rng.sample(others, min(len(others), OTHERS))
            pending.append(_Attempt.make(tried_case, common[tried_case.half], shown))
        results = [
            (attempt, judge.outcomes(attempt.case.problem, attempt.responses))
            for attempt in pending
        ]
        for attempt, future in results:
            passed = future.result()
            tried.add(
                attempt.case.half,
                {name: passed[text] for name, text in attempt.blind.items()},
            )
            shuffled.update(passed[text] for text in attempt.others)
            for how, text in attempt.wrong.items():
                wrong[how].append(passed[text])
    best, most = tried.best()
    rates = [Rate(sum(passes), len(passes), how) for how, passes in wrong.items()]
    report = TagReport(
        tag=name,
        n=len(cases),
        references=references,
        corrupted=max(rates, key=lambda rate: (rate.value, rate.n), default=Rate(0, 0)),
        blind=Rate(tried.cross_fitted(), len(cases), f"{best} ({most} of {len(cases)})"),
        shuffled=Rate(shuffled[True], shuffled.total()),
        chance=sum(map(_chance, problems)) / len(problems),
    )
    report.faults = _faults(report, rates)
    return report


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The responses to try on one problem."""

    case: Case
    blind: Mapping[str, str]
    others: Sequence[str]
    wrong: Mapping[str, str]

    @classmethod
    def make(cls, case: Case, common: Sequence[Json], others: Sequence[Json]) -> _Attempt:
        form = case.form
        wrong = dict(corruptions(form)) if case.gold is not None else {}
        return cls(case, guesses(case, common), [form.write(other) for other in others], wrong)

    @property
    def responses(self) -> list[str]:
        return [*self.blind.values(), *self.others, *self.wrong.values()]


def _cases(problems: Sequence[Problem], judge: Judge) -> tuple[list[Case], Rate]:
    """Split references into parts, and count those that pass."""
    golds = [judge.gold(problem) for problem in problems]
    futures = [
        None if gold is None else judge.verdicts(problem, [gold])
        for problem, gold in zip(problems, golds, strict=True)
    ]
    cases, passed, failed = [], 0, ""
    each = counting("references", zip(problems, golds, futures, strict=True), len(problems))
    for index, (judged, gold, future) in enumerate(each):
        form = Form("", "", "")
        if gold is not None and future is not None:
            verdict = future.result()[0]
            passed += bool(outcome(verdict))
            if not outcome(verdict):
                failed = (
                    failed or f"{judged.id}: {gold[-60:]!r}: {verdict.detail or verdict.status}"
                )
            form = form_of(gold, verdict.extracted)
        cases.append(Case(judged, text_of(judged), gold, form, index % 2))
    known = sum(gold is not None for gold in golds)
    return cases, Rate(passed, known, failed)


def _chance(problem: Problem) -> float:
    """Return the chance that a random option is right; 0 for verifiers but ``checks/choice``."""
    options = problem.spec.get("options") if problem.verifier == "checks/choice" else None
    return 1 / len(options) if isinstance(options, Sequence) and options else 0.0


def _faults(tag: TagReport, corrupted: Iterable[Rate]) -> list[Finding]:
    checks: list[tuple[str, bool, str]] = [
        (
            "references",
            tag.references.passed < tag.references.n,
            f"{tag.references.n - tag.references.passed} of {tag.references.n} references do not "
            f"pass: {tag.references.what}",
        ),
        *(
            (
                "corrupted",
                rate.passed > 1 and rate.value > RARE,
                f"{rate.passed} of {rate.n} corrupted references pass ({rate.what})",
            )
            for rate in corrupted
        ),
        ("blind", tag.too_good(tag.blind), f"answered without the question: {tag.blind.what}"),
        (
            "shuffled",
            tag.too_good(tag.shuffled),
            f"{tag.shuffled.passed} of {tag.shuffled.n} answers of other problems pass",
        ),
    ]
    return [Finding(check, "fail", what) for check, wrong, what in checks if wrong]


def _batches(items: Sequence[Case], n: int) -> Iterable[Sequence[Case]]:
    return (items[at : at + n] for at in range(0, len(items), n))
