"""Hand-decided pairs of answers, and hand-decided responses, under the symbolic verifier.

Each row of ``pairs.jsonl`` is a reference and other ways to write it, or answers that are wrong.
"""

import json
from collections import defaultdict
from pathlib import Path

import pytest

from rlvr_core.api import Completion, Problem
from rlvr_math.answer import Answer

SAME, DIFFERENT = defaultdict(list), defaultdict(list)
for line in Path(__file__).with_name("pairs.jsonl").read_text(encoding="utf-8").splitlines():
    row = json.loads(line)
    (SAME if row["same"] else DIFFERENT)[row["category"]].append(row["answers"])
VERIFIER = Answer(Answer.Config())


def judge(gold, text):
    problem = Problem("p", "q", "math/answer", {"answer": gold}, "d")
    return VERIFIER.verify(problem, Completion.from_text(text))


def both_ways(rows):
    for gold, *answers in rows:
        for answer in answers:
            yield gold, answer
            if answer:
                yield answer, gold


@pytest.mark.parametrize("category", SAME)
def test_same_answers_pass(category):
    for gold, answer in both_ways(SAME[category]):
        verdict = judge(gold, f"so $\\boxed{{{answer}}}$.")
        assert verdict.passed, (gold, answer, verdict.detail)


@pytest.mark.parametrize("category", DIFFERENT)
def test_different_answers_fail(category):
    for gold, answer in both_ways(DIFFERENT[category]):
        verdict = judge(gold, f"so $\\boxed{{{answer}}}$.")
        assert verdict.score == 0.0, (gold, answer, verdict.detail)


@pytest.mark.parametrize(
    "text",
    ["()", "[]", "(=5", "(x)=", r"\end{pmatrix}", r"-\begin{pmatrix}", r"\{|\}", r"\{x|\}", "!?"],
)
def test_half_an_answer_is_no_answer(text):
    for gold, answer in (("5", text), (text, "5"), (text, f"{text}1")):
        assert judge(gold, f"\\boxed{{{answer}}}").score in (0.0, None)


def test_a_factor_goes_to_every_cell_of_a_matrix():
    matrix = r"\begin{pmatrix}1&-2\\3&4\end{pmatrix}"
    assert judge(matrix, r"\boxed{-\begin{pmatrix}-1&2\\-3&-4\end{pmatrix}}").passed
    assert judge(matrix, r"\boxed{\frac12\begin{pmatrix}2&-4\\6&8\end{pmatrix}}").passed
    assert not judge(matrix, rf"\boxed{{-{matrix}}}").passed
    words = r"\begin{pmatrix}1&\text{many}\end{pmatrix}"
    assert not judge(r"\begin{pmatrix}-1\end{pmatrix}", rf"\boxed{{-{words}}}").passed


@pytest.mark.parametrize(
    ("response", "form", "correct"),
    [
        (r"so \boxed{5}", 1.0, 1.0),
        ("The answer is 5.", 0.0, 1.0),
        (r"so \boxed{6}", 1.0, 0.0),
        ("I think 6", 0.0, 0.0),
        ("no idea", 0.0, 0.0),
    ],
)
def test_t40_form_is_told_apart_from_correctness(response, form, correct):
    verdict = judge("5", response)
    assert verdict.parts["format"] == form
    assert verdict.parts["correct"] == verdict.score == correct
