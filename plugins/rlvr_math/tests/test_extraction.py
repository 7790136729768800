"""Where answers are found outside of boxes, and what they are: class by class."""

import json
from collections import defaultdict
from pathlib import Path

import pytest

from rlvr_core.api import Completion, Problem
from rlvr_core.testing.clock import cpu_limit
from rlvr_math import formulas, number_words, prose, units
from rlvr_math.answer import Answer, Gsm8kFlexible, MathVerify, Minerva, QwenMath
from rlvr_math.final_number import Gsm8k
from rlvr_math.verifiers import AnswerFormat, BoxedFormat
from tests.support.tables import table


def judge(gold, text, cls=Answer, **options):
    problem = Problem("p", "q", "v", {"answer": gold}, "d")
    return cls(cls.Config(**options)).verify(problem, Completion.from_text(text))


ROWS = Path(__file__).with_name("extraction.jsonl").read_text("utf-8").splitlines()
CLASSES = defaultdict(list)
for row in map(json.loads, ROWS):
    CLASSES[row["class"]].append((row["gold"], row["response"], row["right"]))


@pytest.mark.parametrize("cls", [Answer, QwenMath, MathVerify])
@pytest.mark.parametrize("name", CLASSES)
def test_classes(name, cls):
    for gold, text, right in CLASSES[name]:
        verdict = judge(gold, text, cls)
        assert verdict.passed is right, (gold, text, verdict.detail)


def test_a_number_that_is_said_not_to_be_the_answer_is_none():
    for gold, text, right in CLASSES["what the answer is said not to be is no answer"]:
        assert judge(f"#### {gold}", text, Gsm8k).passed is right, text


@pytest.mark.parametrize("cls", [Gsm8k, Gsm8kFlexible])
@pytest.mark.parametrize(
    "text",
    ["not 6", "6 million", "x^6", r"\sqrt6", "6!", ">6", "-6", "6 or 7", "6x", "6^2", "(1,6)"],
)
def test_a_number_with_something_to_it_is_another(text, cls):
    for response in (f"\\boxed{{{text}}}", f"<answer>{text}</answer>", f"It is ${text}$."):
        if cls is Gsm8k or "boxed" not in response:
            assert not judge("6", response, cls).passed, response
    assert judge("720", r"\boxed{6!}", Gsm8k).passed
    assert judge("6000000", r"\boxed{6 million}", Gsm8k).passed


def test_a_whole_reference_is_exact_whatever_the_tolerance():
    assert not judge("70000", r"\boxed{70000.000001}", QwenMath).passed
    assert judge("0.70000", r"\boxed{0.70001}", QwenMath).passed
    assert judge("70000", r"\boxed{70000.0}", QwenMath).passed


def test_all_boxes_of_the_last_paragraph_are_one_list():
    text = "\\boxed{9}\n\nSo $x=\\boxed{1}$ or $x=\\boxed{2}$."
    assert judge("1,2", text, match="all").passed
    assert judge("2", text).passed
    assert not judge("2", text, match="all").passed
    assert judge("9", text, match="first").passed
    assert judge("3", "\\boxed{3}, so \\boxed{3}", match="all").passed


def test_minerva_looks_for_a_formula_only():
    assert judge(r"\frac12", r"It is $\frac12$ of 7", Minerva).passed
    assert judge("5", "It is 5", Minerva).extracted is None
    assert not judge("5", "It is $5$ or $6$", Minerva).passed


@pytest.mark.parametrize(("text", "good"), table(__file__, "answer format"))
def test_answer_format(text, good):
    verifier = AnswerFormat(AnswerFormat.Config())
    problem = Problem("p", "q", "v", {}, "d")
    verdict = verifier.verify(problem, Completion.from_text(text))
    assert verdict.score == verdict.parts["format"] == float(good)
    gold = Completion.from_text(verifier.gold(problem))
    assert verifier.verify(problem, gold).score == 1.0


def test_the_format_of_nested_boxes_takes_linear_time():
    verifier = BoxedFormat(BoxedFormat.Config())
    text = "\\boxed{" * 50_000 + "5" + "}" * 50_000
    with cpu_limit(2.0, "50,000 boxes"):
        verdict = verifier.verify(Problem("p", "q", "v", {}, "d"), Completion.from_text(text))
    assert verdict.score == 0.0


def test_expressions_of_a_text():
    said = [
        run.text for run in prose.runs("She had 3/4 of $x$. That is minus two. So 5 kg remain.")
    ]
    assert said == ["3/4", "x", "- 2", r"5 \text{ kg}"]
    assert [run.denied for run in prose.runs("It is 5, not 6.")] == [False, True]
    assert [run.partial for run in prose.runs("It is more than 6.")] == [True]


def test_formulas_end_where_they_end():
    assert [one.content for one in formulas.formulas("$ 5 $ costs $3 or $4")] == ["5"]
    assert formulas.flat(r"\begin{aligned} a &= b \\ &= c \end{aligned}") == "a  = b = c"


@pytest.mark.parametrize(
    ("words", "value"),
    [("twenty-one", 21), ("two thousand and six", 2006), ("five six", None), ("a dozen", 12)],
)
def test_numbers_in_words(words, value):
    assert number_words.value(words.split()) == value


def test_units_are_compared_by_factor():
    assert units.factor("mm", "cm") == pytest.approx(1 / 10)
    assert units.factor("min", "h") * 60 == 1
    assert units.factor("", "cm") == 1
    assert units.factor("cm2", "cm3") is None
    assert units.factor("apple", "orange") is None
    assert units.factor("dollar", "euro") is None
