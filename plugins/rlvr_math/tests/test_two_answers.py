r"""One answer never passes for two different references, and constants are what they are."""

import pytest

from rlvr_core.api import Completion, Problem
from rlvr_core.testing.clock import cpu_limit
from rlvr_math import fallback
from rlvr_math.answer import Answer, MathVerify, Minerva, QwenMath

PRESETS = [one(one.Config()) for one in (Answer, Minerva, QwenMath, MathVerify)]


def passes(gold, answer, verifier=PRESETS[0]):
    problem = Problem("p", "q", "math/answer", {"answer": gold}, "d")
    verdict = verifier.verify(problem, Completion.from_text(f"\\boxed{{{answer}}}"))
    assert verdict.status == "ok"
    return verdict.passed


BETS = [
    # (answer, references of which it may be at most one)
    ("7=x=8", ("7", "8", "x=7", "x=8")),
    ("x=7=y=8", ("7", "8", "x=7", "x=8")),
    ("7=8x/x=8", ("7", "8")),
    ("x+1=y=x+2", ("x+1", "x+2")),
    (r"7=x\approx8", ("7", "8")),
    (r"7\approx7.2", ("7", "7.2")),
    (r"100\approx104", ("100", "104")),
    ("7=700", ("7", "700")),
    ("0.07=7", ("0.07", "7")),
    (r"7.2\approx7.3", ("7.2", "7.3")),
    (r"0\approx0.1", ("0", "0.1")),
    (r"100\pi\approx315", (r"100\pi", "315")),
    (r"e\approx3", ("e", "3")),
    (r"\frac12\approx\frac25", (r"\frac12", r"\frac25")),
    (r"\frac13\approx\frac25", (r"\frac13", r"\frac25")),
    (r"\frac13\approx0.4", (r"\frac13", "0.4")),
    (r"x=\frac37\approx\frac12", (r"\frac37", r"\frac12")),
    ("5!=120", ("5", "120")),
    ("5!=121", ("5", "5!", "120", "121")),
    ("0!=1", ("0", "1")),
    ("5!=6!", ("120", "720")),
    ("3!=6=7", ("6", "7")),
    ("(2+3)!=5", ("5", "120")),
    ("3!=x", ("3", "6", "x=6", "x=3")),
    (r"\pi\approx3.15", (r"\pi", "3.15")),
    (r"\pi\approx3", (r"\pi", "3")),
    (r"\pi\approx\frac{22}7", (r"\pi", r"\frac{22}7")),
    (r"e\approx2.71", ("e", "2.7")),
    (r"7\%=700", ("7", "700")),
    (r"700=7\%", ("7", "700")),
]


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


BOMBS = [
    r"\max( 9^{ 9^{ 9^{ 9}}},1)",
    r"\max(((99^{99} )^{99} )^{99},1)",
    r"\gcd(10^{ 999999999},3)",
    r"\max(\sin(10^{ 99999999}),1)",
    r"\max(10^{+999999999},1)",
    r"\max(10**999999999,1)",
    r"\operatorname{floor}(\pi 10^{ 99999999})",
    r"\max(1,{99999999 \choose 9999999})",
    r"7\bmod\exp(999999999)",
    r"\gcd((x+y+z+w)^{30},(x+y)^{30})",
    r"(x+y+z+w)^{30}\bmod(x+y)^{30}",
    r"\max(9^{9\,^{9^9}},1)",
    r"\max(x^{99n}y^{99n}(99999^{99n})^{99n},1)",
    r"\max(99^{99a^{99a}},1)",
    r"\max(9^{n-n+999999999},1)",
    r"\max(9^{-999999999},1)",
    r"\max(9^-999999999,1)",
    r"\max(9^{1/2+999999999},1)",
    r"\max((x^{9}+99999)^{18n},1)",
    r"\max((999999999999^{9n})^{9n},1)",
    r"\max((x+y+z+w)^{9n}^{9n},1)",
    r"\max(999999999999^{99n}\cdot y,\overline{x})",
    r"\max(((((9^{\frac91})^{\frac91})^{9/1})^{9/1})^{\frac91},1)",
]


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
