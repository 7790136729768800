"""The evaluations of finished runs: intervals of each, and paired tests between two of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from rlvr_core.api import Json
from rlvr_core.record.curves import HEADLINE, accuracy_of, answers
from rlvr_core.record.view import RunView
from rlvr_core.stats.estimates import estimate
from rlvr_core.stats.significance import holm, paired_difference, sign_flip_p

Line = Mapping[str, Any]


@dataclass(slots=True)
class _Outcomes:
    """The answers of one evaluation.

    Attributes:
        passed: Outcomes of each problem's answers, by problem; None for an answer without outcome.
        prompts: Digest of each problem's prompt.
    """

    passed: dict[str, list[bool | None]] = field(default_factory=dict)
    prompts: dict[str, bytes] = field(default_factory=dict)

    def rates(self) -> dict[str, float]:
        """Return the pass rate of each problem whose answers all have an outcome."""
        return {
            problem: fmean(map(bool, passed))
            for problem, passed in self.passed.items()
            if None not in passed
        }


def evaluation_points(view: RunView) -> list[dict[str, Json]]:
    """Return every evaluation of a run with the 95% interval of its accuracy.

    Returns:
        For each, ``task``, ``temperature``, ``step``, ``n``, ``metrics``, and ``low`` and ``high``,
        which are None where the accuracy is not a mean over the problems of the evaluation's file.
    """
    points: list[dict[str, Json]] = []
    for line in view.evaluations:
        point = {key: line.get(key) for key in ("task", "temperature", "step", "n", "metrics")}
        accuracy = accuracy_of(view.folder, line)
        low, high = (None, None) if accuracy is None else (accuracy.low, accuracy.high)
        points.append({**point, "low": low, "high": high})
    return points


def paired_evaluations(views: Sequence[RunView]) -> list[dict[str, Json]]:
    """Test whether accuracies differ, problem by problem.

    Of one run, each task's last evaluation is compared with its first; of several runs, the last
    one of each run with the last one of the first run. P-values are exact
    (see ``sign_flip_p``), and adjusted for the number of tests by Holm's method.

    Returns:
        One line per test: ``task``, ``temperature``, ``before`` and ``after`` (``run``, its place
        in ``views``, ``step``, ``estimate``), ``n`` and ``left_out`` problems, ``difference``,
        ``gained``, ``lost``, ``p``, ``p_holm``; or ``refused``, which says why there is no test.
    """
    tests = [_test(views, *pair) for pair in _pairs(views)]
    adjusted = holm([test.get("p") for test in tests])
    return [{**test, "p_holm": p} for test, p in zip(tests, adjusted, strict=True)]


def _pairs(views: Sequence[RunView]) -> Iterator[tuple[int, Line, int, Line]]:
    """Yield the evaluations to compare: place of the run and line of its index, twice."""
    first = _by_task(views[0])
    if len(views) == 1:
        for lines in first.values():
            if lines[0]["step"] != lines[-1]["step"]:
                yield 0, lines[0], 0, lines[-1]
    for other in range(1, len(views)):
        later = _by_task(views[other])
        for key in first:
            if key in later:
                yield 0, first[key][-1], other, later[key][-1]


def _by_task(view: RunView) -> dict[tuple[str, float], list[Line]]:
    lines: dict[tuple[str, float], list[Line]] = {}
    for line in view.evaluations:
        if HEADLINE in line["metrics"]:
            lines.setdefault((line["task"], float(line["temperature"])), []).append(line)
    return lines


def _test(
    views: Sequence[RunView], run: int, line: Line, other: int, later: Line
) -> dict[str, Json]:
    before, after = _outcomes(views[run], line), _outcomes(views[other], later)
    first, second = before.rates(), after.rates()
    # the signs of a problem's difference can be flipped only if it was answered as often in both
    both = [
        problem
        for problem in first
        if problem in second and len(before.passed[problem]) == len(after.passed[problem])
    ]
    result: dict[str, Json] = {
        "task": line["task"],
        "temperature": line["temperature"],
        "before": {"run": run, "step": line["step"]},
        "after": {"run": other, "step": later["step"]},
        "n": len(both),
        "left_out": len({**before.passed, **after.passed}) - len(both),
    }
    if not both:
        return {**result, "refused": "no problem was judged as often in both"}
    if any(before.prompts[problem] != after.prompts[problem] for problem in both):
        return {**result, "refused": "the problems were asked in other words"}
    ends = [first[problem] for problem in both], [second[problem] for problem in both]
    result["before"]["estimate"] = estimate(ends[0]).data()
    result["after"]["estimate"] = estimate(ends[1]).data()
    changes = [
        round((second[problem] - first[problem]) * len(before.passed[problem])) for problem in both
    ]
    return {
        **result,
        "difference": paired_difference(*ends).data(),
        "gained": sum(change > 0 for change in changes),
        "lost": sum(change < 0 for change in changes),
        "p": sign_flip_p(changes),
    }


def _outcomes(view: RunView, line: Line) -> _Outcomes:
    outcomes = _Outcomes()
    for row in answers(view.folder, line):
        problem, passed = str(row.get("problem_id")), row.get("passed")
        outcomes.passed.setdefault(problem, []).append(passed if isinstance(passed, bool) else None)
        if problem not in outcomes.prompts:
            prompt = str(row.get("prompt")).encode("utf-8", "surrogatepass")
            outcomes.prompts[problem] = hashlib.blake2b(prompt, digest_size=16).digest()
    return outcomes
