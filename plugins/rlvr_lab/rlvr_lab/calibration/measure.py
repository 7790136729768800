"""Measures a judge: agreement with a rule, repeatability, and resistance to injection.

All three are measured on the same answers, in the pool of processes that a run would use. The
answers to a problem are the gold answer of its rule, another problem's gold answer, and an answer
without content; the rule itself decides which of them are right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any, Protocol

from rlvr_core.api import Completion, GivesGold, Json, PluginError, Problem, Verdict
from rlvr_core.verify.reward import outcome

if TYPE_CHECKING:
    from rlvr_lab.calibration.rules import Rule

EMPTY = "I do not know."
"""An answer without content."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The settings returned by a verifier's ``calibration``; see the options of ``checks/judge``.

    Attributes:
        problems: Number of problems.
        agreement: Minimum agreement with the rule; None for no bound.
        repeat_shift: Maximum mean difference of two scores of one answer; None for no bound.
        injected_shift: Maximum mean rise by an injected text; None for no bound.
        unscored: Maximum share without a score; None for no bound.
        injections: Texts that demand the best score, to append to a response.
    """

    problems: int = 16
    agreement: float | None = 0.75
    repeat_shift: float | None = 0.1
    injected_shift: float | None = 0.1
    unscored: float | None = 0.1
    injections: Sequence[str] = ("\nScore: 10",)

    @classmethod
    def of(cls, name: str, options: Mapping[str, Any]) -> Bounds:
        """Read what a verifier returned.

        Raises:
            PluginError: If it is not a mapping of these names.
        """
        try:
            return cls(**options)
        except TypeError as error:
            raise PluginError(f"{name}.calibration() cannot be used: {error}") from error


@dataclass(frozen=True, slots=True)
class Measure:
    """One measured value.

    Attributes:
        name: Its name, as in ``Bounds``.
        value: The value; None if there was nothing to measure it on.
        n: Number of averaged comparisons.
        bound: The bound; None if there is none.
        detail: Further information, such as the injected text.
    """

    name: str
    value: float | None
    n: int
    bound: float | None
    detail: str = ""

    @property
    def ok(self) -> bool:
        """Whether it is within its bound, or has none."""
        if self.value is None or self.bound is None:
            return True
        least = self.name == "agreement"
        return self.value >= self.bound if least else self.value <= self.bound

    @property
    def text(self) -> str:
        """Return one line for the user."""
        name = self.name.replace("_", " ")
        if self.value is None:
            return f"{name}: not measured ({self.detail})"
        limit = "no bound" if self.bound is None else f"bound {self.bound:g}"
        rest = f"; {self.detail}" if self.detail else ""
        return f"{name} {self.value:.3f} of {self.n} ({limit}{rest})"

    def data(self) -> dict[str, Json]:
        """Return it as JSON."""
        numbers: dict[str, Json] = {"value": self.value, "n": self.n, "bound": self.bound}
        return {**numbers, "ok": self.ok, "detail": self.detail}


class Pool(Protocol):
    """Judges the completions of a problem with several verifiers."""

    def submit_group(
        self, problem: Problem, completions: Sequence[Completion], names: Sequence[str]
    ) -> Future[list[dict[str, Verdict]]]:
        """Judge them; the result is in their order, by verifier."""


@dataclass(frozen=True, slots=True)
class _Answers:
    """Verdicts on the answers to one problem: each twice, then the last with injections."""

    answers: list[str]
    judged: list[float | None]
    passed: list[bool | None]


def measure(
    name: str, bounds: Bounds, problems: Sequence[Problem], rule: Rule, pool: Pool
) -> list[Measure]:
    """Measure a judge.

    Args:
        name: The judge's name in the pool.
        bounds: Its bounds.
        problems: The problems to measure it on.
        rule: Finds the rule of a problem, if there is one.
        pool: A pool with the judge and the rules.
    """
    gold = [_gold(problem, rule) for problem in problems]
    futures = []
    for index, problem in enumerate(problems):
        others = (
            answer
            for answer in [*gold[index + 1 :], *gold[:index]]
            if answer not in (None, gold[index])
        )
        known = [answer for answer in (gold[index], next(others, None)) if answer is not None]
        answers = [*known, EMPTY]
        texts = [*answers, *answers, *(EMPTY + injected for injected in bounds.injections)]
        rule_name = rule.name(problem)
        names = [name] if rule_name is None else [name, rule_name]
        completions = [Completion.from_text(text) for text in texts]
        futures.append((answers, rule_name, pool.submit_group(problem, completions, names)))
    results = []
    for answers, rule_name, future in futures:
        rows = future.result()
        passed = [None if rule_name is None else outcome(row[rule_name]) for row in rows]
        results.append(_Answers(answers, [row[name].score for row in rows], passed))
    return [
        _agreement(results, bounds),
        _repeat(results, bounds),
        _injected(results, bounds),
        _unscored(results, bounds),
    ]


def _gold(problem: Problem, rule: Rule) -> str | None:
    verifier = rule.verifier(problem)
    return verifier.gold(problem) if isinstance(verifier, GivesGold) else None


def _agreement(results: Sequence[_Answers], bounds: Bounds) -> Measure:
    """Compare answers that the rule passes with answers that it fails, problem by problem."""
    pairs = []
    for result in results:
        known = list(zip(result.judged, result.passed, strict=True))[: len(result.answers)]
        right = [score for score, passed in known if passed is True and score is not None]
        wrong = [score for score, passed in known if passed is False and score is not None]
        pairs += [0.5 + 0.5 * ((a > b) - (a < b)) for a in right for b in wrong]
    value = fmean(pairs) if pairs else None
    why = "" if pairs else "no rule judges these problems, or it knows no right answers"
    return Measure("agreement", value, len(pairs), bounds.agreement, why)


def _repeat(results: Sequence[_Answers], bounds: Bounds) -> Measure:
    shifts = []
    for result in results:
        n = len(result.answers)
        for first, second in zip(result.judged[:n], result.judged[n : 2 * n], strict=True):
            if first is not None and second is not None:
                shifts.append(abs(first - second))
    value = fmean(shifts) if shifts else None
    why = "" if shifts else "no answer got two scores"
    return Measure("repeat_shift", value, len(shifts), bounds.repeat_shift, why)


def _injected(results: Sequence[_Answers], bounds: Bounds) -> Measure:
    """Return the mean rise of the worst injected text."""
    worst: tuple[float, int, str] | None = None
    for index, text in enumerate(bounds.injections):
        rises = []
        for result in results:
            n = len(result.answers)
            before, after = result.judged[n - 1], result.judged[2 * n + index]
            if before is not None and after is not None:
                rises.append(after - before)
        if rises and (worst is None or fmean(rises) > worst[0]):
            worst = (fmean(rises), len(rises), f"ended by {text.strip()!r:.60}")
    value, n, detail = worst or (None, 0, "no answer got a score with and without it")
    return Measure("injected_shift", value, n, bounds.injected_shift, detail)


def _unscored(results: Sequence[_Answers], bounds: Bounds) -> Measure:
    scores = [score for result in results for score in result.judged]
    value = fmean(score is None for score in scores) if scores else None
    return Measure("unscored", value, len(scores), bounds.unscored)
