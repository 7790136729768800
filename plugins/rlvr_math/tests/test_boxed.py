"""``math/boxed`` and ``math/boxed-format``."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr_core.api import Completion, DataError, NoConfig, Problem
from rlvr_core.testing.clock import cpu_limit
from rlvr_math import compare
from rlvr_math.final_number import Gsm8k
from rlvr_math.verifiers import Boxed, BoxedFormat
from tests.support.tables import table

BOXED = Boxed(NoConfig())
FORMAT = BoxedFormat(NoConfig())


def problem(answer, stop=()):
    return Problem("p", "q", "math/boxed", {"answer": answer}, "d", stop=stop)


def judge(answer, text):
    return BOXED.verify(problem(answer), Completion.from_text(text))


ROWS = Path(__file__).with_name("answers.jsonl").read_text("utf-8").splitlines()
SAME: list[tuple[str, str]] = []
DIFFERENT: list[tuple[str, str]] = []
for row in map(json.loads, ROWS):
    if row["verifier"] == "boxed":
        (SAME if row["same"] else DIFFERENT).append((row["gold"], row["answer"]))
SAME.append(("9" * 5000, "9" * 5000))
DIFFERENT.append(("9" * 5000, "9" * 4999 + "8"))


@pytest.mark.parametrize(("gold", "answer"), SAME)
def test_same_answers_pass(gold, answer):
    verdict = judge(gold, f"so it is $\\boxed{{{answer}}}$.")
    assert verdict.score == 1.0
    assert verdict.passed
    assert verdict.parts == {"extracted": 1.0, "correct": 1.0}


@pytest.mark.parametrize(("gold", "answer"), DIFFERENT)
def test_different_answers_fail(gold, answer):
    verdict = judge(gold, f"so it is $\\boxed{{{answer}}}$.")
    assert (verdict.score, verdict.passed, verdict.status) == (0.0, False, "ok")
    assert verdict.parts["correct"] == 0.0


@given(st.integers(-(10**6), 10**6), st.integers(-(10**6), 10**6))
@settings(deadline=None)
def test_t59_integers_agree_only_with_themselves_and_the_sign_counts(a, b):
    assert (compare.agree(str(a), str(b)) is not None) == (a == b)
    assert compare.agree(str(a), f"{a:,}.0")
    assert a == 0 or not compare.agree(str(a), str(-a))


@given(st.fractions(max_denominator=1000))
def test_fractions_agree_in_every_notation(value):
    top, bottom = value.numerator, value.denominator
    for text in (f"{top}/{bottom}", rf"\frac{{{top}}}{{{bottom}}}"):
        assert compare.agree(str(value), text)
    assert not compare.agree(str(value), f"{top + 1}/{bottom}")


@given(st.text(alphabet="\\boxedfra{}()[]$%,./-+=0123 ^_x", max_size=200))
def test_any_text_gets_a_verdict_and_normalising_is_stable(text):
    assert judge("5", text).status == "ok"
    assert FORMAT.verify(problem("5"), Completion.from_text(text)).status == "ok"
    once = compare.normalise(text)
    if not (once.name or once.unit or " " in once.text):
        assert compare.agree(text, text) or not once.text


def test_the_last_balanced_box_counts():
    assert judge("7", r"\boxed{5} no, \boxed{7}").passed
    assert judge("5", r"\boxed{5} and then \boxed{7").passed
    assert judge("5", r"{ \boxed{5}").passed
    assert judge("5", r"\boxed{\boxed{5}}").passed
    assert judge("5", r"\fbox{5}").passed
    assert judge("5", r"\boxed {5} and an empty \boxed{}").passed
    assert judge(r"\{1,2\}", r"\boxed{\{1,2\}}").passed
    assert judge("5", "the answer is 5").extracted is None


def test_t51_hostile_input_takes_linear_time():
    n = 100_000
    texts = [
        r"\boxed{" * 2000 + "5" + "}" * 2000,
        r"\boxed{" + "{" * 2000 + "5" + "}" * 2000 + "}",
        r"\boxed{" * (n // 7),
        r"\boxed{" + r"\frac{" * (n // 6) + "}" * (n // 6) + "}",
        r"\boxed{" + r"5\text{a}" * (n // 8) + "}",
        r"\boxed{5 " + "a" * n + "!}",
        r"\boxed{5 " + "ab " * (n // 3) + "}",
        r"\boxed{" + "1 1/1 " * (n // 6) + "}",
        r"\boxed{" + "9" * n + "}",
        r"\boxed{" + "x=" * (n // 2) + "}",
        r"\boxed{9^{9^{9^9}}}",
        r"\boxed{1e999999999}",
        "1,111" + ",111" * (n // 4) + "1",
        "1/" * (n // 2),
        "1 " * (n // 2),
        "7" * n,
        "#" * n,
        "-" * n,
        "#### " * (n // 5),
        "####\n" * (n // 5),
        "answer is " * (n // 10),
        "answer:" + "*" * n,
        "{" * n,
        "Question:" * (n // 9),
    ]
    verifiers = [BOXED, FORMAT, Gsm8k(Gsm8k.Config())]
    for text in texts:
        for verifier in verifiers:
            for gold in ("5", "9" * n):
                with cpu_limit(2, (text[:20], verifier)):
                    verifier.verify(problem(gold), Completion.from_text(text))


def test_t60_a_whole_solution_as_answer_is_read_by_its_box():
    assert judge(r"We get $6\cdot 7=\boxed{42}$.", r"\boxed{42}").passed
    assert not judge(r"We get $6\cdot 7=\boxed{42}$.", r"\boxed{41}").passed


@pytest.mark.parametrize("spec", [{}, {"solution": "5"}, {"answer": ""}, {"answer": [5]}])
def test_check_refuses_a_spec_without_an_answer(spec):
    bad = Problem("row_7", "q", "math/boxed", spec, "d")
    with pytest.raises(DataError, match="row_7"):
        BOXED.check(bad)
    assert BOXED.verify(bad, Completion.from_text(r"\boxed{5}")).status == "unscorable"


def test_numbers_are_accepted_as_answers():
    assert judge(27.0, r"\boxed{27}").passed
    assert judge(42, r"\boxed{42}").passed


@pytest.mark.parametrize(("text", "good"), table(__file__, "format"))
def test_boxed_format(text, good):
    verdict = FORMAT.verify(problem("85"), Completion.from_text(text))
    assert verdict.score == float(good)
    assert verdict.parts == {"format": float(good)}


def test_t63_a_stop_string_kept_in_the_text_is_not_part_of_the_answer():
    text = "\\boxed{85}\n\nQuestion:"
    assert FORMAT.verify(problem("85", ("Question:",)), Completion.from_text(text)).passed
    assert FORMAT.verify(problem("85", ("###",)), Completion.from_text(r"\boxed{85}###")).passed
