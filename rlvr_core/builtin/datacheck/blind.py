"""Answers without reading the question, and the best strategy for them.

Strategies are fitted (most common answers, form of an answer, selectors for fields) on one half of
a tag's problems and evaluated on the other, and so is the choice of the best one. Of a hundred
strategies one is always lucky on a few problems; only its rate on other problems is meaningful.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from rlvr_core.api import Json, Problem
from rlvr_core.builtin.datacheck import page
from rlvr_core.builtin.datacheck.cuts import CONSTANTS, cuts
from rlvr_core.builtin.datacheck.forms import Form, Path, cast, leaves, with_leaves

COMMON = 5
"""Number of most common answers to try."""
FORMS = 3
"""Number of forms of an answer to try, such as an answer and a refusal."""
FILLINGS = 4
"""Number of most common contents of a form's constant fields to try."""
_ALWAYS: dict[str, str] = {f"always {text!r}": text for text in CONSTANTS}
CONSTANT = 0.2
"""Minimum share of problems with the same value for a field to count as constant."""


@dataclass(frozen=True)
class Subject:
    """One problem under test.

    Attributes:
        problem: The problem.
        prompt: Its prompt as one text.
        gold: A right response; None if the verifier has none.
        form: The place of the answer in a response.
        half: The half of its tag that it belongs to, 0 or 1.
    """

    problem: Problem
    prompt: str
    gold: str | None
    form: Form
    half: int = 0

    @cached_property
    def found(self) -> Mapping[str, str]:
        """Constants, and excerpts of the prompt or the pages in it, by strategy."""
        html = page.pages(self.prompt)
        if not html:
            return _ALWAYS | dict(cuts(self.prompt))
        found = dict(page.selected(html[0]))
        for name, value in page.selected(html[-1]) if len(html) > 1 else ():
            found[f"{name} of the last page"] = value
        return _ALWAYS | found | dict(cuts("\n".join(map(page.visible_text, html))))

    @cached_property
    def lists(self) -> Mapping[str, list[str]]:
        """Lists extracted from the pages of the prompt, by name."""
        html = page.pages(self.prompt)
        return dict(page.lists(html[0])) if html else {}


@dataclass(frozen=True, slots=True)
class Fitted:
    """Statistics of the answers of one half of the problems.

    Attributes:
        common: The most common answers.
        forms: Answers with their constant fields filled in, with the fields to be filled in and
            for each of these the selectors that fill it best; none of them if any may do.
    """

    common: tuple[Json, ...] = ()
    forms: tuple[tuple[Json, Mapping[Path, tuple[str, ...]]], ...] = ()


def fit(subjects: Sequence[Subject]) -> Fitted:
    """Fit to the references of some problems, without their questions."""
    known = [one for one in subjects if one.gold is not None]
    common = Counter(json.dumps(one.form.answer, sort_keys=True) for one in known)
    by_shape: dict[tuple[Path, ...], list[Subject]] = {}
    for one in known:
        by_shape.setdefault(tuple(path for path, _ in leaves(one.form.answer)), []).append(one)
    forms = []
    for alike in sorted(by_shape.values(), key=len, reverse=True)[:FORMS]:
        forms += list(_forms(alike))
    return Fitted(tuple(json.loads(text) for text, _ in common.most_common(COMMON)), tuple(forms))


def _forms(alike: Sequence[Subject]) -> Iterator[tuple[Json, Mapping[Path, tuple[str, ...]]]]:
    rows = [dict(leaves(one.form.answer)) for one in alike]
    counts = {path: Counter(json.dumps(row[path]) for row in rows) for path in rows[0]}
    open_ = [p for p, found in counts.items() if max(found.values()) < CONSTANT * len(rows)]
    if not open_:
        open_ = [max(counts, key=lambda path: len(counts[path]))]
    fixed = [path for path in counts if path not in open_]
    fillings = Counter(json.dumps([row[path] for path in fixed]) for row in rows)
    best = {path: _best(alike, path) if len(open_) > 1 else () for path in open_}
    for filling, _ in fillings.most_common(FILLINGS):
        changes = dict(zip(fixed, json.loads(filling), strict=True))
        yield with_leaves(alike[0].form.answer, changes), best


def _best(alike: Sequence[Subject], path: Path) -> tuple[str, ...]:
    """Return the two selectors that most often find the value of one field."""
    hits: Counter[str] = Counter()
    for one in alike:
        value = dict(leaves(one.form.answer))[path]
        hits.update(name for name, found in _values(one, value) if found == value)
    return tuple(name for name, _ in hits.most_common(2))


def _values(subject: Subject, like: Json) -> Iterator[tuple[str, Json]]:
    if isinstance(like, list):
        first = like[0] if like else ""
        for name, texts in subject.lists.items():
            values = [cast(text, first) for text in texts]
            if None not in values:
                yield name, values
        return
    for name, text in subject.found.items():
        value = cast(text, like)
        if value is not None:
            yield name, value


@dataclass(frozen=True, slots=True)
class Guess:
    """A response that ignores the question, and the strategy that gives it."""

    strategy: str
    response: str


def guesses(subject: Subject, fitted: Fitted) -> Iterator[Guess]:
    """Yield one response per strategy; ``fitted`` is from other problems than this one."""
    form = subject.form
    yield Guess("an empty response", "")
    for index, answer in enumerate(fitted.common):
        yield Guess(f"most common answer {index + 1}", form.write(answer))
    if not fitted.forms:
        for name, text in subject.found.items():
            yield Guess(name, form.write(text))
    for index, (answer, best) in enumerate(fitted.forms):
        label = f" in form {index + 1}" if len(fitted.forms) > 1 else ""
        for name, changes in _changes(subject, answer, best):
            yield Guess(name + label, form.write(with_leaves(answer, changes)))


def _changes(
    subject: Subject, answer: Json, best: Mapping[Path, tuple[str, ...]]
) -> Iterator[tuple[str, dict[Path, Json]]]:
    values = dict(leaves(answer))
    if len(best) == 1:
        (path,) = best
        for name, value in _values(subject, values.get(path)):
            yield name, {path: value}
        return
    values_by_name = {path: dict(_values(subject, values.get(path))) for path in best}
    for names in itertools.islice(itertools.product(*best.values()), 16):
        pairs = list(zip(best, names, strict=True))
        if all(name in values_by_name[path] for path, name in pairs):
            yield ", ".join(names), {path: values_by_name[path][name] for path, name in pairs}


@dataclass(slots=True)
class Tried:
    """Outcomes by strategy and half."""

    passed: dict[str, list[int]] = field(default_factory=dict)
    n: list[int] = field(default_factory=lambda: [0, 0])

    def add(self, half: int, outcomes: Mapping[str, bool]) -> None:
        """Count the outcomes of one problem's strategies."""
        self.n[half] += 1
        for name, passed in outcomes.items():
            self.passed.setdefault(name, [0, 0])[half] += passed

    def best(self) -> tuple[str, int]:
        """Return the strategy that passes most often, and how often."""
        name = max(self.passed, key=lambda name: sum(self.passed[name]), default="")
        return name, sum(self.passed.get(name, (0,)))

    def cross_fitted(self) -> int:
        """Return the passes of each half's best strategy on the other half."""
        total = 0
        for half in (0, 1):
            rows = self.passed.values()
            chosen = max(rows, key=lambda row: row[1 - half], default=[0, 0])
            total += chosen[half] if chosen[1 - half] else 0
        return total
