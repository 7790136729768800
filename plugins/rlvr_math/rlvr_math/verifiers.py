"""Verifiers of boxed answers, and of boxes and answer tags as formats."""

from __future__ import annotations

import re

from rlvr_core.api import (
    Completion,
    DataError,
    NoConfig,
    Problem,
    Verdict,
    VerifierTraits,
)
from rlvr_math import boxes, compare
from rlvr_math.boxes import Found

_SHOWN = 80
KEPT = 1000


class Boxed:
    r"""Right when the last ``\boxed{...}`` says the same as ``spec.answer``.

    The same means: equal text after taking out layout, or the same exact number.
    """

    Config = NoConfig

    def __init__(self, config: NoConfig) -> None:
        self.config = config

    def check(self, problem: Problem) -> None:
        """Raise ``DataError`` unless ``spec.answer`` is there."""
        self._gold(problem)

    def gold(self, problem: Problem) -> str:
        """The reference answer in a box."""
        return f"\\boxed{{{self._gold(problem)}}}"

    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        """Judge one response."""
        try:
            gold = self._gold(problem)
        except DataError as error:
            return unscorable(error)
        answer = boxes.last_box(answer_part(completion.text, problem.stop))
        return verdict_on(gold, answer, compare.agree(gold, answer.text) if answer else None)

    def _gold(self, problem: Problem) -> str:
        answer = reference(problem)
        box = boxes.last_box(answer)  # `answer` may hold the whole solution
        gold = box.text if box else answer
        if not compare.normalise(gold).text:
            raise DataError(f"the answer of problem {problem.id!r} is empty: {short(answer)!r}")
        return gold


class BoxedFormat:
    r"""Whether the response is properly boxed, right or wrong.

    Score 1 when there is exactly one balanced, non-empty ``\boxed{...}`` and nothing follows it
    but punctuation and closing delimiters of mathematics.
    """

    Config = NoConfig
    traits = VerifierTraits(decides=False)
    CLOSERS = " \t\r\n.!$*)]\\"

    def __init__(self, config: NoConfig) -> None:
        self.config = config

    def gold(self, problem: Problem) -> str:
        """Any box will do."""
        return "\\boxed{0}"

    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        """Judge one response."""
        text = answer_part(completion.text, problem.stop)
        all_boxes = list(boxes.boxes(text))
        if len(all_boxes) != 1:
            return _format_verdict(False, f"{len(all_boxes)} boxes instead of one")
        after = text[all_boxes[0].end :].strip(self.CLOSERS)
        if after:
            return _format_verdict(False, f"text after the box: {short(after)!r}")
        return _format_verdict(True, "one box at the end")


class AnswerFormat:
    r"""Whether the response ends in one ``<answer>...</answer>``, right or wrong.

    Score 1 when there is exactly one, it is not empty, its tags are in order, and nothing but space
    follows it. What stands in ``<think>`` tags is not part of the response.
    """

    Config = NoConfig
    traits = VerifierTraits(decides=False)
    _TAG = re.compile(r"<(/?)answer>")

    def __init__(self, config: NoConfig) -> None:
        self.config = config

    def gold(self, problem: Problem) -> str:
        """Any answer will do."""
        return "<answer>0</answer>"

    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        """Judge one response."""
        text = answer_part(completion.text, problem.stop)
        tags = list(self._TAG.finditer(text))
        if [tag[1] for tag in tags] != ["", "/"]:
            return _format_verdict(False, "not one <answer> followed by one </answer>")
        opened, closed = tags
        if not text[opened.end() : closed.start()].strip():
            return _format_verdict(False, "nothing between <answer> and </answer>")
        after = text[closed.end() :].strip()
        if after:
            return _format_verdict(False, f"text after </answer>: {short(after)!r}")
        return _format_verdict(True, "one <answer> at the end")


def answer_part(text: str, stop: tuple[str, ...]) -> str:
    """The response up to the first stop string or the next ``Question:`` the model made up.

    What stands in ``<think>`` tags is not part of it.
    """
    text = _said(text)
    start = len(text) - len(text.lstrip())
    ends = [text.find(marker, start + 1) for marker in (*stop, QUESTION)]
    return text[: min((end for end in ends if end >= 0), default=len(text))]


def _said(text: str) -> str:
    """The text outside of ``<think>``, whose first opening tag may stand in the prompt."""
    if "think>" not in text:
        return text
    head, closed, tail = text.partition(_THOUGHT)
    if closed and _THINK not in head:
        text = tail
    outside, *thoughts = text.split(_THINK)
    return "\n".join([outside, *(thought.partition(_THOUGHT)[2] for thought in thoughts)])


_THINK, _THOUGHT = "<think>", "</think>"
QUESTION = "Question:"
"""Opens a problem in the prompts of this plugin, so in a response it opens another problem."""


def reference(problem: Problem, field: str = "answer") -> str:
    """A field of ``problem.spec`` as text.

    Raises:
        DataError: If it is missing, or neither text nor a number.
    """
    if field not in problem.spec:
        there = ", ".join(sorted(problem.spec)) or "none"
        raise DataError(
            f"problem {problem.id!r} has no field {field!r} in its spec",
            remedy=f"fields it has: {there}",
        )
    answer = problem.spec[field]
    if isinstance(answer, bool) or not isinstance(answer, str | int | float):
        raise DataError(
            f"the {field.replace('_', ' ')} of problem {problem.id!r} is a "
            f"{type(answer).__name__}, not text or a number"
        )
    return str(answer)


def verdict_on(gold: str, answer: Found | None, rule: str | None) -> Verdict:
    """The verdict on the answer found in a response; ``rule`` says by what it equals ``gold``."""
    if answer is None:
        return Verdict(
            score=0.0,
            passed=False,
            parts={"extracted": 0.0, "correct": 0.0},
            detail="no answer found",
        )
    right = rule is not None
    finding = f"equal as {rule}" if right else f"not {short(gold)!r}"
    return Verdict(
        score=float(right),
        passed=right,
        parts={"extracted": 1.0, "correct": float(right)},
        extracted=answer.text[:KEPT],
        detail=f"{answer.rule}: {short(answer.text)!r}, {finding}",
    )


def _format_verdict(good: bool, detail: str) -> Verdict:
    return Verdict(score=float(good), passed=good, parts={"format": float(good)}, detail=detail)


def unscorable(error: DataError) -> Verdict:
    """The verdict on any completion of a problem that cannot be judged."""
    return Verdict(score=None, status="unscorable", detail=error.complaints[0].what)


def short(text: str) -> str:
    """The text cut to fit a line of a message."""
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
