"""The check ``data/held_out_short``: short eval problems that were trained on in other words.

Of a prompt such as "Please compute 12 + 7." too little is left without its frame to know it by, so
the contamination check compares it whole. Here what is left of all problems of a task is compared,
together with the answers: one sum in two data sets says nothing, a task whose sums are all there
with the same results says it all.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from rlvr_core.api import Problem
from rlvr_core.api.services import load_host
from rlvr_core.builtin.doctor.report import Answer, Check, share
from rlvr_core.builtin.doctor.subject import Subject, stated, text_of

FEWEST = 5
"""Problems of a task that must be there for it to be named."""
AGREE = 0.95
"""Share of the problems with the same rest whose answers are the same too; fewer ask otherwise."""
ONE = 0.5
"""Share of one answer among them above which equal answers say nothing."""
MANY = 0.05
"""Share of a task's problems from which on its figures are those of training data."""


def _short(problems: Iterable[Problem]) -> list[tuple[Problem, str, str]]:
    """Return the short problems with an answer: what is left without the frame, and the answer."""
    some = list(problems)
    bodies = load_host().service("core/short-bodies")([text_of(one) for one in some])
    return [
        (one, body, answer.strip())
        for one, body in zip(some, bodies, strict=True)
        if body and (answer := stated(one)) is not None
    ]


def _trained(subject: Subject) -> dict[str, dict[str, str]]:
    """Return the problem's id by answer, by rest; frames are those of each data set."""
    sets: dict[str, list[Problem]] = defaultdict(list)
    for problem in subject.problems:
        sets[problem.dataset].append(problem)
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for some in sets.values():
        for problem, body, answer in _short(some):
            found[body].setdefault(answer, problem.id)
    return found


def _held_out(subject: Subject) -> list[Answer] | None:
    tasks = {task: short for task, some in subject.held_out.items() if (short := _short(some))}
    if not tasks:
        return None
    known, found = _trained(subject), []
    for task, short in tasks.items():
        there = [(one, body, answer) for one, body, answer in short if body in known]
        same = [(one, known[body][answer]) for one, body, answer in there if answer in known[body]]
        answers = Counter(answer for _, body, answer in there if answer in known[body])
        if (
            len(same) < FEWEST
            or len(same) < AGREE * len(there)
            or answers.most_common(1)[0][1] > ONE * len(same)
        ):
            value = f"{task}: no short problems of it are in the training data in other words"
            found.append(Answer("ok", value))
            continue
        n, (one, twin) = len(subject.held_out[task]), same[0]
        found.append(
            Answer(
                "fail" if len(same) > MANY * n else "warn",
                f"{task}: {share(len(same), n)} problems are in the training data in another "
                f"frame, with the same answers, such as {one.id} as {twin}",
                "take them out of the training data, or evaluate on other problems: the task's "
                "figures are those of training data",
                weight=100,
            )
        )
    return found


SHORT = (
    Check("data/held_out_short", "Are short eval problems absent in other words, too?", _held_out),
)
