r"""One answer never passes for two different references, and constants are what they are."""

import pytest

from rlvr_core.api import Completion, Problem
from rlvr_core.testing.clock import cpu_limit
from rlvr_math import fallback
from rlvr_math.answer import Answer, MathVerify, Minerva, QwenMath
from tests.support.tables import table

PRESETS = [one(one.Config()) for one in (Answer, Minerva, QwenMath, MathVerify)]


def passes(gold, answer, verifier=PRESETS[0]):
    problem = Problem("p", "q", "math/answer", {"answer": gold}, "d")
    verdict = verifier.verify(problem, Completion.from_text(f"\\boxed{{{answer}}}"))
    assert verdict.status == "ok"
    return verdict.passed


BETS = table(__file__, "bets")


@pytest.mark.parametrize("verifier", PRESETS, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize(("answer", "golds"), BETS)
def test_a_chain_of_equations_is_no_bet_on_two_answers(answer, golds, verifier):
    assert sum(passes(gold, answer, verifier) for gold in golds if "=" not in gold) <= 1
    assert sum(passes(gold, answer, verifier) for gold in golds if "=" in gold) <= 1


def test_very_small_decimals_have_their_tolerance():
    verifier = QwenMath(QwenMath.Config())
    for gold, right, wrong in (
        (r"\sqrt2\cdot10^{-34}", r"1.41421\cdot10^{-34}", r"1.42\cdot10^{-34}"),
        ("e^{-100}", r"3.72\cdot10^{-44}", r"3.73\cdot10^{-44}"),
    ):
        assert passes(gold, right, verifier)
        assert not passes(gold, wrong, verifier)
        assert not passes(gold, right)


@pytest.mark.parametrize("verifier", PRESETS, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("gold", ["y=2x+1", "y=8", "x^2+y^2=4", "2x<y", "a>b"])
def test_an_infinite_side_makes_no_equation_equal_to_every_other(gold, verifier):
    for answer in (
        r"\infty=7",
        r"7=\infty",
        r"x=\infty",
        r"x+\infty=y",
        r"\infty>x",
        r"x-\infty<y",
    ):
        assert not passes(gold, answer, verifier)
        assert not passes(answer, gold, verifier)


BOMBS = table(__file__, "bombs")


@pytest.mark.parametrize("text", BOMBS)
def test_t51_spaces_and_brackets_hide_no_power_from_the_guard_before_sympy(text):
    with cpu_limit(1.0, text):
        assert not fallback.same_by_sympy("7", text)


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (r"\max(2^{10},4)", "1024"),
        (r"\max(x^{2n}+y^{2n},1)", r"\max(1,y^{2n}+x^{2n})"),
        (r"\max(2^{n+1},1)", r"\max(1,2\cdot2^{n})"),
        (r"\max(x^2+y^2,1)", r"\max(1,y^2+x^2)"),
        (r"\mathbb{R}\setminus\{1\}", r"(-\infty,1)\cup(1,\infty)"),
    ],
)
def test_small_powers_still_go_to_sympy(gold, answer):
    assert fallback.same_by_sympy(gold, answer)
