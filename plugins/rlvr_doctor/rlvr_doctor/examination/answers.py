"""Checks of verifiers: right responses pass, wrong ones do not, and verdicts repeat."""

from __future__ import annotations

import time
from collections import Counter

from rlvr_core.api import Finding, Problem, RunError
from rlvr_core.toolkit import outcome
from rlvr_doctor.examination.report import Check, refused, share
from rlvr_doctor.examination.subject import Reference, Subject
from rlvr_guards.gold import gold_lines
from rlvr_guards.wrong_answers import wrong_responses

MOST = 0.5
"""Maximum share of problems that pass a kind of wrong response: some do by chance."""
SECONDS = 10.0
"""Seconds that wrong responses may take; the rest is left out."""
FEWEST = 4
"""Fewest problems to judge by."""


def _gold(subject: Subject) -> list[Finding]:
    everything = [*subject.problems, *(p for some in subject.held_out.values() for p in some)]
    try:
        lines = gold_lines(everything, subject.prepared.judge, subject.prepared.resolved)
    except RunError as error:
        return refused("verifier/gold", error)
    return [Finding("verifier/gold", "ok", line.removeprefix("gold: ")) for line in lines]


def _wrong_answers(subject: Subject) -> list[Finding]:
    """Try wrong responses, where a right one is known to pass."""
    by_verifier: dict[str, list[Reference]] = {}
    for reference in subject.references:
        if reference.passes:
            by_verifier.setdefault(subject.main(reference.problem), []).append(reference)
    begun, findings = time.monotonic(), []
    for name, references in by_verifier.items():
        passed: Counter[str] = Counter()
        tried: Counter[str] = Counter()
        options = subject.prepared.judge.plan.specs[name].config
        for reference in references:
            if time.monotonic() - begun > SECONDS:
                break
            responses = wrong_responses(
                reference.problem, reference.response, reference.answer, options
            )
            verdicts = subject.verdicts(reference.problem, list(responses.values()))
            for kind, row in zip(responses, verdicts.result(subject.patience), strict=True):
                tried[kind] += 1
                passed[kind] += bool(outcome(row[name]))
        loose = [k for k in tried if tried[k] >= FEWEST and passed[k] > MOST * tried[k]]
        if loose:
            words = "; ".join(f"{kind}: {share(passed[kind], tried[kind])}" for kind in loose)
            findings.append(
                Finding(
                    "verifier/wrong",
                    "fail",
                    f"{name} passes wrong answers: {words}",
                    "choose another or fix the verifier: the run would learn to give such answers "
                    "(rlvr verify)",
                )
            )
        else:
            what = (
                f"{name}: {len(tried)} kinds of wrong answers to {max(tried.values(), default=0)}"
            )
            findings.append(Finding("verifier/wrong", "ok", f"{what} problems get no reward"))
    return findings


def _repeatable(subject: Subject) -> Finding | None:
    """Check whether the same response gets the same verdict twice."""
    some: list[tuple[Problem, str]] = [
        (reference.problem, reference.response) for reference in subject.references
    ]
    if not some:
        return None
    rounds = []
    # in another order: otherwise a verifier that counts calls could reach the same count again
    for order in (some, [some[0], *reversed(some)]):
        waiting = [(problem, subject.verdicts(problem, [text])) for problem, text in order]
        rounds.append({p.id: future.result(subject.patience)[0] for p, future in waiting})
    differ = [
        id_
        for id_, row in rounds[0].items()
        if {n: v.score for n, v in row.items()} != {n: v.score for n, v in rounds[1][id_].items()}
    ]
    if not differ:
        return Finding("verifier/repeatable", "ok", f"{len(some)} responses get the same score")
    return Finding(
        "verifier/repeatable",
        "fail",
        f"{share(len(differ), len(some))} responses are judged otherwise the second time",
        "the verifier keeps state or draws random numbers: make it a pure function",
    )


ANSWERS: tuple[Check[Subject], ...] = (
    ("verifier/gold", _gold),
    ("verifier/wrong", _wrong_answers),
    ("verifier/repeatable", _repeatable),
)
