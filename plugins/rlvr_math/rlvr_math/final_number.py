"""The verifier of grade-school problems: the final number of a response, wherever it stands."""

from __future__ import annotations

from rlvr_core.api import Completion, DataError, NoConfig, Problem, Verdict
from rlvr_math import boxes, extract
from rlvr_math.boxes import Found
from rlvr_math.conclusion import amount, same_amount
from rlvr_math.verifiers import answer_part, reference, short, unscorable, verdict_on


class Gsm8k:
    """Right when the response's final number equals the one after ``####`` in ``spec.answer``.

    Text from the first stop string of the problem or a new ``Question:`` on is not read: it is
    another problem the model went on to invent. Numbers are compared exactly; currency,
    thousands separators, per cent and units do not count, the sign does.
    """

    Config = NoConfig

    def __init__(self, config: NoConfig) -> None:
        self.config = config

    def check(self, problem: Problem) -> None:
        """Raise ``DataError`` unless ``spec.answer`` has a number."""
        self._gold(problem)

    def gold(self, problem: Problem) -> str:
        """The reference solution."""
        return str(problem.spec["answer"])

    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        """Judge one response."""
        try:
            gold = self._gold(problem)
        except DataError as error:
            return unscorable(error)
        answer = self._find(answer_part(completion.text, problem.stop))
        if answer and answer.rule == "boxed" and amount(answer.text) is None:
            answer = extract.value_of(answer.text, answer.rule)
        return verdict_on(gold, answer, same_amount(gold, answer) if answer else None)

    def _find(self, text: str) -> Found | None:
        if box := boxes.last_box(text):
            return box
        if boxes.has_empty_box(text):
            return None
        text = boxes.without_open_box(text)
        if answer := extract.tagged(text) or extract.hash_number(text) or extract.stated(text):
            return answer
        return None if extract.denied(text) else extract.last_expression(text)

    def _gold(self, problem: Problem) -> str:
        answer = reference(problem)
        gold = answer.rpartition("####")[2].strip()
        if amount(gold) is None:
            raise DataError(
                f"the answer of problem {problem.id!r} is not a number: {short(gold)!r}",
                remedy="write it as '#### 42' after the solution, or as the bare number",
            )
        return gold
