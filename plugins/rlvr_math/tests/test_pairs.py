"""Hand-decided pairs of answers, and hand-decided responses, under the symbolic verifier.

Each row of ``pairs.jsonl`` is a reference and other ways to write it, or answers that are wrong.
"""

import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

from rlvr_core.api import Completion, Problem
from rlvr_math.answer import Answer, QwenMath
from rlvr_math.final_number import Gsm8k

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


RESPONSES = [
    # (reference, response, right)
    ("5", r"<think>maybe \boxed{7}</think> So \boxed{5}.", True),
    ("7", r"<think>maybe \boxed{7}</think> So \boxed{5}.", False),
    ("5", r"<think>maybe \boxed{7}</think> The answer is 5.", True),
    ("7", r"<think>maybe \boxed{7}</think> The answer is 5.", False),
    ("5", r"maybe \boxed{7} </think> \boxed{5}", True),
    ("7", r"maybe \boxed{7} </think> I am done", False),
    ("5", r"<think>so it is \boxed{5}", False),  # it was cut off before it answered
    ("5", r"<think>a \boxed{1}</think> b <think>c \boxed{2}</think> \boxed{5}", True),
    ("5", "<think>Question: is it 7?</think> It is 5", True),
    ("5", r"\boxed{3} and then \boxed{5}", True),
    ("3", r"\boxed{3} and then \boxed{5}", False),
    ("5", r"\boxed{5} so \boxed{}", True),
    ("5", r"\boxed{x = \boxed{5}}", True),
    ("5", r"\boxed{\text{The answer is } 5}", True),
    ("5", r"\boxed{\text{The answer is not } 5}", False),
    ("5", r"\boxed{\text{The answer is more than } 5}", False),
    ("2", r"so it is \boxed{\frac{1}{2", False),
    ("12", r"so it is \boxed{12", False),
    ("12", "so it is \\boxed{12\nThe answer is 12.", True),
    ("5", r"The answer is 5. I box it: \boxed{5", True),
    ("5", r"The answer is 5, since \boxed{4}+1", False),
    ("5", r"The answer is $5$ because $2+3=5$ and $x=9$.", True),
    ("5", "The answer is 5 apples. Not 6.", True),
    ("18", "So she makes $18.", True),
    ("18", "So she makes 18$ - that is all.", True),
    ("40", "She pays 45$ - 5$ = 40", True),
    ("18", "#### 18\n", True),
    ("18", "#### $18.00", True),
    ("18", "#### 17", False),
    (r"\frac{1}{2}", r"Thus $x = \frac{1}{2}$.", True),
    (r"\frac{1}{2}", "Final Answer: The final answer is $1/2$. I hope it is correct.", True),
    ("(1,2)", r"\[ (x,y) = (1,2) \]", True),
    ("x+1", r"The answer is \(x + 1\).", True),
    ("27", r"\boxed{27, 28}", False),
    ("27", r"\boxed{26} or \boxed{27}", True),  # the last one counts
    ("5", "", False),
    ("5", "I do not know.", False),
    ("5", r"\boxed{5}" + "\n\nQuestion: next?\n" + r"\boxed{6}", True),
    ("B", r"\boxed{\textbf{(B)}}", True),
    ("B", "The answer is (B).", True),
    ("B", "The answer is B because A is wrong", False),  # says more than a letter
    ("1,234", "In total 1,234 coins", True),
    ("-3", "so x is -3.", True),
    ("-3", "so x is \N{MINUS SIGN}3.", True),
    ("3", "10-3", False),  # a whole expression counts, and this is 7
    ("7", "10-3", True),
    ("0.5", "so it is .5", True),
    ("50", r"\boxed{50\%}", True),
]


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


@pytest.mark.parametrize(("gold", "text", "right"), RESPONSES)
def test_responses(gold, text, right):
    assert judge(gold, text).passed == right, judge(gold, text)


CHOICES = [
    # (answer, whether it is choice C)
    ("C", True),
    ("(C)", True),
    (r"\textbf{(C)}", True),
    (r"\textbf{(C) } 12", True),
    ("C) 12", True),
    ("(C) x + 1", True),
    ("Option C", True),
    ("choice (C)", True),
    ("(B) 12", False),
    ("not (C)", False),
    ("(C) or (D)", False),
    ("(C) and (D)", False),
    ("(B), (C)", False),
    ("(A)(B)(C)", False),
    ("all but C", False),
    ("Option CD", False),
    ("C 12", False),
]


@pytest.mark.parametrize(("answer", "right"), CHOICES)
def test_a_choice_may_bring_its_text_but_no_other_choice(answer, right):
    assert judge("C", f"so $\\boxed{{{answer}}}$.").passed is right
    if right:
        assert not judge("D", f"so $\\boxed{{{answer}}}$.").passed


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


STATEMENTS = [
    # (response, whether it answers 1200)
    ("The answer is not 1300, it is 1200.", True),
    ("The answer is 1300. Wait, no: the answer is 1200.", True),
    ("The answer isn't 1300. It's 1200.", True),
    ("The answer is = 1200", True),
    ("The answer is not 1200, it is 1300.", False),
    ("The answer is 1200. Wait, no: the answer is 1300.", False),
    ("The answer is not 1200.", False),
    ("The answer isn't 1200.", False),
    ("The answer isn\N{RIGHT SINGLE QUOTATION MARK}t $1200$.", False),
    ("I had 1300. The answer cannot be 1200.", False),
]


@pytest.mark.parametrize("verifier", [Gsm8k(Gsm8k.Config()), QwenMath(QwenMath.Config())])
@pytest.mark.parametrize(("response", "right"), STATEMENTS)
def test_what_the_answer_is_said_not_to_be_is_no_answer(verifier, response, right):
    problem = Problem("p", "q", "math/gsm8k", {"answer": "#### 1200"}, "d")
    problem = problem if isinstance(verifier, Gsm8k) else replace(problem, spec={"answer": "1200"})
    verdict = verifier.verify(problem, Completion.from_text(response))
    assert verdict.status == "ok"
    assert verdict.passed is right, verdict.detail
