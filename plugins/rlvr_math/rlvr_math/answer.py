r"""``math/answer``: one verifier for final answers, and presets of it under well-known names."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Annotated, Literal

from pydantic import Field

from rlvr_core.api import Completion, ComponentConfig, DataError, Problem, Verdict
from rlvr_math import boxes, compare, extract, fallback, symbolic
from rlvr_math.boxes import Found
from rlvr_math.choice import same_choice
from rlvr_math.conclusion import amount, is_whole, readings, same_amount
from rlvr_math.symbolic import Comparison, Order
from rlvr_math.verifiers import KEPT, answer_part, reference, short, unscorable

Policy = Literal["boxed", "answer-tag", "answer-is", "hash", "last-math", "last-number", "any"]
ANY: tuple[Policy, ...] = ("boxed", "answer-tag", "hash", "answer-is", "last-number")
"""Formats that ``any`` looks for, in this order."""

Extract = Annotated[
    Policy | Annotated[tuple[Policy, ...], Field(min_length=1)],
    Field(
        description="Where the answer is looked for, or a list of places of which the first that "
        "has one decides: boxed, answer-tag (<answer>...</answer>), answer-is ('the answer is "
        "...'), hash (#### N), last-math (the last expression set as a formula), last-number (the "
        "last whole expression); any is boxed, answer-tag, hash, answer-is, last-number."
    ),
]
Match = Annotated[
    Literal["last", "first", "all"],
    Field(
        description="Which one counts where there are several of a kind; all joins the boxes of "
        "the last paragraph that has one to one list, and is last elsewhere."
    ),
]
Compare = Annotated[
    Literal["exact", "numeric", "symbolic"],
    Field(
        description="exact: text without layout; numeric: one number each; symbolic: also "
        "expressions, tuples, intervals, sets, matrices, equations and inequalities."
    ),
]
Tolerance = Annotated[
    float,
    Field(
        ge=0,
        le=0.1,
        description="Relative difference that is still equal when one of two constants is a "
        "decimal; whole numbers and fractions are always exact. A problem's spec.tolerance goes "
        "before it.",
    ),
]
Percent = Annotated[
    bool,
    Field(description="Whether 0.2 is accepted for 20%, and the reverse; 20 always is."),
]


_GROUPED = re.compile(r"\d{1,3}(?:,\d{3})+")
"""A number with thousands separators, or a list written without spaces."""


class Answer:
    r"""Right when the final answer of the response means the same as the reference answer.

    The reference is ``spec.gold_answer``, else ``spec.answer``; of a whole solution its last box,
    or what follows ``####``, counts. Text from a stop string or a new ``Question:`` or
    ``Problem:`` on is not read. Parts: ``extracted``; ``format``, whether the answer stood in
    the form that is looked for first; ``correct``.
    """

    class Config(ComponentConfig):
        """Options of the answer verifier."""

        extract: Extract = "any"
        match: Match = "last"
        compare: Compare = "symbolic"
        tolerance: Tolerance = 0.0
        order: Order = "as-written"
        """``as-written``: order counts in brackets only; ``strict``: in lists and sets too;
        ``any``: nowhere."""
        percent: Percent = True

    def __init__(self, config: Config) -> None:
        self.config = config
        places = (config.extract,) if isinstance(config.extract, str) else config.extract
        self._places = tuple(
            chosen for place in places for chosen in (ANY if place == "any" else (place,))
        )

    def check(self, problem: Problem) -> None:
        """Raise ``DataError`` unless there is a reference answer of the kind compared."""
        self._checked(problem)

    def _checked(self, problem: Problem) -> tuple[str, float]:
        gold, tolerance = self._gold(problem), self._tolerance(problem)
        if self.config.compare == "numeric" and amount(gold) is None:
            raise DataError(
                f"the answer of problem {problem.id!r} is not a number: {short(gold)!r}",
                remedy="use compare: symbolic, or another verifier for this data set",
            )
        return gold, tolerance

    def gold(self, problem: Problem) -> str:
        """The reference answer in the form that is looked for first."""
        gold = self._gold(problem)
        match self._places[0]:
            case "boxed":
                return f"\\boxed{{{gold}}}"
            case "answer-is":
                return f"The answer is {gold if self.config.compare == 'numeric' else f'${gold}$'}."
            case "answer-tag":
                return f"<answer>{gold}</answer>"
            case "hash":
                return f"#### {gold}"
            case "last-math":
                return f"${gold}$"
        return gold

    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        """Judge one response."""
        try:
            gold, tolerance = self._checked(problem)
        except DataError as error:
            return unscorable(error)
        text = answer_part(completion.text, (*problem.stop, "\nProblem:"))
        for rank, place in enumerate(self._places):
            if rank and place in ("last-math", "last-number") and extract.denied(text):
                break  # what is left to be found is what the answer is said not to be
            if answer := self._find(text, place):
                return self._judge(gold, tolerance, answer, in_form=rank == 0)
            if place == "boxed":
                if boxes.has_empty_box(text):
                    break
                text = boxes.without_open_box(text)
        parts = {"extracted": 0.0, "format": 0.0, "correct": 0.0}
        return Verdict(score=0.0, passed=False, parts=parts, detail="no answer found")

    def _find(self, text: str, place: Policy) -> Found | None:
        first = self.config.match == "first"
        match place:
            case "boxed":
                if self.config.match == "all":
                    return boxes.all_boxes(text)
                return boxes.first_box(text) if first else boxes.last_box(text)
            case "answer-tag":
                return extract.tagged(text, first)
            case "hash":
                return extract.hash_number(text, first)
            case "answer-is":
                answer = extract.stated(text, first)
                return answer if self.config.compare != "numeric" or _counts(answer) else None
            case "last-math":
                return extract.last_expression(text, first, formula=True)
        answer = extract.last_expression(text, first)
        if answer is None and self.config.compare != "numeric":
            return extract.last_words(text)
        return answer

    def _judge(self, gold: str, tolerance: float, answer: Found, in_form: bool) -> Verdict:
        rule = self._rule(gold, answer, tolerance)
        right = rule is not None
        finding = f"equal as {rule}" if right else f"not {short(gold)!r}"
        return Verdict(
            score=float(right),
            passed=right,
            parts={"extracted": 1.0, "format": float(in_form), "correct": float(right)},
            extracted=answer.text[:KEPT],
            detail=f"{answer.rule}: {short(answer.text)!r}, {finding}",
        )

    def _rule(self, gold: str, answer: Found, tolerance: float) -> str | None:
        """The name of the rule by which the answer is the reference, or None."""
        if self.config.compare == "numeric":
            return same_amount(gold, answer, tolerance)
        tolerance = 0.0 if is_whole(gold) else tolerance
        rules = (self._same(gold, text, tolerance) for text in readings(answer))
        rule = next((rule for rule in rules if rule), None)
        if rule is None and _GROUPED.fullmatch(gold) and not _GROUPED.fullmatch(answer.text):
            return self._same(gold.replace(",", ", "), answer.text, tolerance)  # 70 and 110
        return rule

    def _same(self, gold: str, answer: str, tolerance: float) -> str | None:
        """The name of the rule by which two answers are equal, or None."""
        config = self.config
        return _compared(gold, answer, tolerance, config.compare, config.order, config.percent)

    def _gold(self, problem: Problem) -> str:
        answer = reference(problem, "gold_answer" if "gold_answer" in problem.spec else "answer")
        gold = _stated(answer)
        if not compare.normalise(gold).text:
            raise DataError(f"the answer of problem {problem.id!r} is empty: {short(answer)!r}")
        return gold

    def _tolerance(self, problem: Problem) -> float:
        given = problem.spec.get("tolerance")
        if given is None:
            return self.config.tolerance
        if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= 0.1:
            raise DataError(f"the tolerance of problem {problem.id!r} must be 0 to 0.1: {given!r}")
        return float(given)


@lru_cache(maxsize=1024)  # completions of a problem often give the same answer
def _compared(
    gold: str, answer: str, tolerance: float, how: Compare, order: Order, percent: bool
) -> str | None:
    """The name of the rule by which two answers are equal, or None; cheap rules first."""
    left, right = compare.normalise(gold), compare.normalise(answer)
    if not right.text:
        return None
    if compare.same_text(left, right):
        return "text"
    if how == "exact":
        return None
    if compare.same_number(left, right):
        return "number"
    comparison = Comparison(order, tolerance)

    def same(first: str, other: str) -> bool:
        return symbolic.same_meaning(first, other, comparison) or False

    if percent and symbolic.as_percent(gold, answer, same):
        return "percentage"
    if _decided(left, right, tolerance):
        return None
    if same(gold, answer):
        return "value" if tolerance == 0 else f"value to {tolerance:g}"
    if same_choice(left.text, answer):
        return "choice"
    if fallback.unread(gold, answer) and fallback.same_by_sympy(gold, answer):
        return "sympy"
    return None


def _decided(left: compare.Normal, right: compare.Normal, tolerance: float) -> bool:
    """Whether both are numbers that no tolerance applies to, so different ones."""
    value, other = compare.number(left), compare.number(right)
    if value is None or other is None or left.unit or right.unit:
        return False
    return not tolerance or value.denominator == other.denominator == 1


@lru_cache(maxsize=1024)  # all completions of a problem are compared with it
def _stated(reference: str) -> str:
    """The answer that a reference gives, which may be a whole solution."""
    box = boxes.last_box(reference)
    return box.text if box else reference.rpartition("####")[2].strip()


def _counts(statement: Found | None) -> bool:
    """Whether a statement holds something to count with: text is not a number."""
    return statement is not None and statement.prose


class Gsm8kStrict(Answer):
    """The first ``#### N`` or "The answer is N", as an exact number."""

    class Config(Answer.Config):
        """Options of the strict grade-school preset."""

        extract: Extract = ("hash", "answer-is")
        match: Match = "first"
        compare: Compare = "numeric"


class Gsm8kFlexible(Answer):
    """The last number of the response, as an exact number."""

    class Config(Answer.Config):
        """Options of the flexible grade-school preset."""

        extract: Extract = "last-number"
        compare: Compare = "numeric"


class Minerva(Answer):
    """The box, else "The final answer is ...", else the last formula; exact values only."""

    class Config(Answer.Config):
        """Options of the Minerva preset."""

        extract: Extract = (
            "boxed",
            "answer-tag",
            "answer-is",
            "last-math",
        )
        percent: Percent = False


class QwenMath(Answer):
    """The box, else "the answer is ...", else the last number; decimals to one in 10,000."""

    class Config(Answer.Config):
        """Options of the Qwen preset."""

        extract: Extract = (
            "boxed",
            "answer-tag",
            "answer-is",
            "last-number",
        )
        tolerance: Tolerance = 1e-4


class MathVerify(Answer):
    """Any form, the box first; decimals to one in a million."""

    class Config(Answer.Config):
        """Options of the math-verify preset."""

        tolerance: Tolerance = 1e-6
