"""The forms in which an answer may be written, and the answer that a text has in one of them.

A verifier that offers no gold response, as a plain function, may want any form: canaries in
another one would fail for their form, whatever their answer.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from rlvr_core.builtin.canaries.agreement import STATED
from rlvr_core.builtin.canaries.making import LONG_PREFACE, SHORT_PREFACE
from rlvr_core.builtin.canaries.numbers import NUMBER

if TYPE_CHECKING:
    from rlvr_core.api import Group, Problem

PLACE = "ANSWER"
REFERENCE = "the reference"
"""Kind of the canary that is the stated reference, in the form in which others passed."""
TRIES = 2
"""Problems on which each form is tried in a run."""
GROUPS = 8
"""Groups without a completion that passed and is read to say that no form is known."""
FORMS = (
    PLACE,
    f"The answer is {PLACE}.",
    f"\\boxed{{{PLACE}}}",
    f"#### {PLACE}",
    f"<answer>{PLACE}</answer>",
    f"Answer: {PLACE}",
    f"The answer is: $\\boxed{{{PLACE}}}$",
    f"<think>\n{SHORT_PREFACE}</think>\n<answer>{PLACE}</answer>",
    f"<think>\n{SHORT_PREFACE}</think>\n\\boxed{{{PLACE}}}",
    f"Final answer: {PLACE}",
    f"**{PLACE}**",
    f'{{"answer": "{PLACE}"}}',
    # for functions that want a length, beside an answer or in its place
    *(
        LONG_PREFACE + form
        for form in (PLACE, f"\\boxed{{{PLACE}}}", f"<answer>{PLACE}</answer>", f"Answer: {PLACE}")
    ),
)
"""Ways to write an answer, the plainest first."""
_SOLUTION = re.compile(r"####[ \t]*([^\n]+?)\s*$|\\boxed\{([^{}]*)\}(?!.*\\boxed)", re.DOTALL)
_MARKED = {
    "\\boxed{}": re.compile(r"\\boxed\{([^{}]*)\}"),
    "<answer>": re.compile(r"<answer>(.*?)</answer>", re.DOTALL),
    "####": re.compile(r"####[ \t]*([^\n]+)"),
    "answer:": re.compile(r"\banswer(?: is)?:?[ \t]+\**([^\s\\<$]\S*)", re.IGNORECASE),
}
_TAG = re.compile(r"</?[A-Za-z_]+>|\\boxed|####|\*\*")


def forms_of(problem: Problem) -> dict[str, str]:
    """Return the stated reference of a problem in each form; empty if it states none.

    This is the service ``core/answer-forms``.
    """
    answer = reference_of(problem)
    return {form: form.replace(PLACE, answer) for form in FORMS} if answer else {}


def reference_of(problem: Problem) -> str:
    """Return the bare reference in a problem's spec, as it is written; empty if there is none.

    That is one of the usual fields, or else the only one; the end of it where it is a solution.
    """
    stated = [problem.spec[name] for name in (*STATED, "solution") if name in problem.spec]
    for value in stated or (list(problem.spec.values()) if len(problem.spec) == 1 else []):
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            found = _SOLUTION.search(str(value))
            return ((found[1] or found[2] or "") if found else str(value)).strip()
    return ""


def read(text: str, reference: str) -> tuple[str, str] | None:
    """Return form and answer of a text, for verifiers that do not report it; None if unclear.

    Clear is an answer that is marked in one way, and always the same; without marks, the only
    number of a text, or the last one where the reference is none of them: whichever a verifier
    reads, it is another answer.

    Args:
        text: The text of a completion.
        reference: The right answer.
    """
    marked = {form: found for form, one in _MARKED.items() if (found := one.findall(text))}
    if marked:
        every = [one for found in marked.values() for one in found]
        answers = {one.strip().strip("$").rstrip(".*").strip() for one in every}
        if len(answers) != 1:
            return None
        (answer,) = answers
        return (_shape(text), answer) if answer else None
    numbers = NUMBER.findall(text)
    if not numbers or (len(set(numbers)) > 1 and reference in numbers):
        return None
    return _shape(text), numbers[-1]


def _shape(text: str) -> str:
    """Return the mark-up of a text, in order: what a verifier that wants a form looks at."""
    marks = "".join(form for form in ("answer:",) if _MARKED[form].search(text))
    return " ".join([*dict.fromkeys(_TAG.findall(text)), marks])


class FormSearch:
    """Finds, over the problems of a run, the form in which stated references pass."""

    def __init__(self) -> None:
        self._asked: Counter[str] = Counter()
        self._passed: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._without = 0
        """Groups in which no completion showed a form either; none since one did."""

    @property
    def form(self) -> str:
        """The form in which most passed, the plainest of equal ones; empty so far."""
        form = max(FORMS, key=lambda one: self._passed[one])
        return form if self._passed[form] else ""

    @property
    def failed(self) -> bool:
        """Whether references pass in no form, and in no completion either."""
        tried = all(self._failed[one] >= TRIES for one in FORMS)
        return tried and not self.form and self._without >= GROUPS

    def next(self, problem: Problem, n: int) -> dict[str, str]:
        """Return a problem's reference in n forms to try; empty once enough were tried."""
        left = [one for one in FORMS if self._asked[one] < TRIES]
        forms = forms_of(problem)
        found = sorted(left, key=lambda one: self._asked[one])[:n] if forms else []
        self._asked.update(found)
        return {form: forms[form] for form in found}

    def count(self, form: str, *, passed: bool) -> None:
        """Count a verdict on a reference in a form."""
        (self._passed if passed else self._failed)[form] += form in FORMS

    def response(self, group: Group, answer: str) -> str:
        """Return the right answer to a group's problem, as it passes; empty if unknown.

        Where no form of ``FORMS`` passes, that is a completion that did.
        """
        if not answer:
            return ""
        if self.form:
            return self.form.replace(PLACE, answer)
        for member in group.members:
            text = member.completion.text
            if member.passed and read(text, answer) == (_shape(text), answer):
                self._without = -GROUPS
                return text
        self._without += 1
        return ""
