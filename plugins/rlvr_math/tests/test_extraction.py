"""Where answers are found outside of boxes, and what they are: class by class."""

import pytest

from rlvr_core.api import Completion, Problem
from rlvr_core.testing.clock import cpu_limit
from rlvr_math import formulas, number_words, prose, units
from rlvr_math.answer import Answer, Gsm8kFlexible, MathVerify, Minerva, QwenMath
from rlvr_math.final_number import Gsm8k
from rlvr_math.verifiers import AnswerFormat, BoxedFormat


def judge(gold, text, cls=Answer, **options):
    problem = Problem("p", "q", "v", {"answer": gold}, "d")
    return cls(cls.Config(**options)).verify(problem, Completion.from_text(text))


CLASSES = {
    # class: rows of (reference, response, right)
    "a number is not cut out of a formula": [
        ("7", r"Hence $\dfrac{2}{7} $", False),
        ("7", r"Hence $\dfrac{14}{2} $", True),
        ("8", r"<answer>\frac{3}{8}</answer>", False),
        (r"\frac38", r"<answer>\frac{3}{8}</answer>", True),
        ("9", "So the point is (2,9)", False),
        ("9", "We get x^9", False),
        ("9", r"We get \sqrt9", False),
        ("3", r"We get \sqrt{9}", True),
        ("3", r"Now \log_{2} 3", False),
        ("3", "That leaves x_3", False),
        ("3", "12-9 is what is left", True),
        ("9", "12-9 is what is left", False),
        ("2", "It has 2x of them", False),
    ],
    "displayed formulas are read to their end": [
        ("11", "\\begin{align*}\n a &= 4+7 \\\\\n &= 11\n\\end{align*}", True),
        ("7", "\\begin{align*}\n a &= 4+7 \\\\\n &= 11\n\\end{align*}", False),
        (r"\sqrt{11}", "\\[\n a = \\sqrt{11}.\n\\]", True),
        ("11", "\\[\n a = \\sqrt{11}.\n\\]", False),
        ("11", "\\begin{equation}\n\\text{total} = 11 \\tag{3}\n\\end{equation}", True),
    ],
    "signs and scales in words": [
        ("8", "So it is minus 8.", False),
        ("-8", "So it is minus 8.", True),
        ("-8", "So it is negative eight.", True),
        ("8", "The answer is - 8", False),
        ("8", "It is 8 million.", False),
        ("8000000", "It is 8 million.", True),
        ("8", "It costs $8 thousand.", False),
        ("64", "The answer is 8 squared.", True),
        ("8", "The answer is half of 8.", False),
        ("8", "The answer is more than 8.", False),
        ("8", "The answer is at most 8.", False),
        ("105", "So there are one hundred and five.", True),
        ("3.5", "So it takes three and a half hours.", True),
    ],
    "what an answer is said not to be": [
        ("6", "It is not 6.", False),
        ("6", "The answer is anything but 6.", False),
        ("6", "6 would be wrong.", False),
        ("6", "The answer is 6, not 4.", True),
        ("4", "The answer is 6, not 4.", False),
        ("6", "The answer is not 4 but 6.", True),
        ("6", "I was unable to solve this; there are 6 unknowns.", False),
        ("6", "It is false that the answer is 6.", False),
    ],
    "what stands around a number belongs to it": [
        ("2", "The chance is 1 out of 2", False),
        (r"\frac12", "The chance is 1 out of 2", True),
        ("14", "The answer is 14 mod 5", False),
        ("14", "The answer is 14 choose 2", False),
        ("7", "The answer is 14 divided by 2", True),
        ("14", "Is it 14?", False),
        ("14", "Is it 13? No, it is 14.", True),
        ("14", "The answer is 14 (fourteen).", True),
        ("14", "The answer is |-14|.", True),
        ("14", "She has 2*7 = <<2*7=14>>14 marbles.", True),
        ("14", "7 + 7 => 14", True),
    ],
    "two answers are no answer": [
        ("4", "The answer is 4 or 5.", False),
        ("5", "It is 4 apples, or maybe 5 apples.", False),
        ("5", "It could be 4, it could be 5.", False),
        ("5", "1 2 3 4 5", False),
        ("4", "The answer is 4 (or 5).", False),
        ("4,5", "The answer is 4 or 5.", True),
    ],
    "sentences are searched for their value": [
        ("21", "Final Answer: The smallest $m$ is 21.", True),
        ("21", "The answer is therefore 21, since 21 = 3 * 7 and 7 > 3.", True),
        ("21", "<answer>The smallest $m$ is 21.</answer>", True),
        ("21", "The answer is 21 (see step 4).", True),
        ("4", "The answer is 21 (see step 4).", False),
        ("21", "Step 4", False),
        ("4", "Step 4", False),
        ("21", "In total, 21 children sang.", True),
        ("21", "| what | value |\n|---|---|\n| result | 21 |", True),
        (r"\text{ellipse}", "So this is an ellipse.", True),
        (r"\text{ellipse}", "So this is not an ellipse.", False),
        ("21", r"\boxed{\text{There are }21\text{ ways}}", True),
        ("21", r"\boxed{\text{There are more than }21\text{ ways}}", False),
        ("21", r"\boxed{\text{There are }21\text{ and }5\text{ ways}}", False),
    ],
    "an empty box ends the search": [
        ("6", r"\boxed{} 6", False),
        ("6", r"The answer is 6. \boxed{\phantom{6}}", False),
        ("6", r"\boxed{} was empty, \boxed{6} is not", True),
    ],
    "tags": [
        ("6", "<answer>6</answer>", True),
        ("6", "<answer>5</answer> no: <answer>6</answer>", True),
        ("6", "<answer>6", True),  # the tag was never closed: 6 is the last expression
        ("6", r"<answer>\boxed{6}</answer>", True),
    ],
    "units and currencies": [
        (r"5\text{ cm}", r"\boxed{50\text{ mm}}", True),
        (r"5\text{ cm}", r"\boxed{5\text{ mm}}", False),
        ("5 cm", "The length is 5 m.", False),
        (r"60\text{ mph}", r"\boxed{88\text{ ft/s}}", True),
        (r"60\text{ mph}", r"\boxed{60\text{ km/h}}", False),
        (r"2\text{ hours}", r"\boxed{120\text{ minutes}}", True),
        (r"3\text{ kJ}", r"\boxed{3000\text{ joules}}", True),
        (r"\$7", "It costs €7.", False),
        (r"\$7", r"\boxed{700\text{ cents}}", True),
        ("£7", r"\boxed{\$7}", False),
        (r"90^\circ", r"\boxed{\frac{\pi}{2}\text{ radians}}", True),
        (r"90^\circ", r"\boxed{90\text{ radians}}", False),
        (r"\frac12", r"\boxed{\sin 30^\circ}", True),
        (r"40\%", r"\boxed{40^\circ}", False),
        ("0.4", r"\boxed{0.4\%}", False),
    ],
    "ratios, bases, dates, times": [
        ("3:4", r"\boxed{6:8}", True),
        ("3:4", r"\boxed{3\text{ to }4}", True),
        ("3:4", r"\boxed{4:3}", False),
        ("9:48", r"\boxed{3:16}", False),  # a time is not cancelled down
        ("121_3", r"\boxed{(121)_3}", True),
        ("121_3", r"\boxed{121_{\text{three}}}", True),
        ("121_3", r"\boxed{121_4}", False),
        (r"\text{July 4, 1999}", r"\boxed{\text{4th of July 1999}}", True),
        (r"\text{July 4, 1999}", "It was on July 4th, 1999.", True),
        (r"\text{July 4, 1999}", r"\boxed{\text{July 4, 1998}}", False),
        (r"3:15\text{ p.m.}", r"\boxed{15:15}", True),
        (r"3:15\text{ p.m.}", r"\boxed{\text{3:15 AM}}", False),
        (r"2\pmod 5", r"\boxed{x\equiv 7\pmod 5}", True),
        (r"2\pmod 5", r"\boxed{2\pmod 7}", False),
    ],
    "inequalities, vectors, names": [
        ("2<x<6", r"\boxed{x>2\text{ and }x<6}", True),
        ("2<x<6", r"\boxed{x>2\text{ or }x<6}", False),
        (r"x<2\text{ or }x>6", r"\boxed{x<2\text{ and }x>6}", False),
        (r"a<b\le c", r"\boxed{c\ge b>a}", True),
        (r"a<b\le c", r"\boxed{a<b<c}", False),
        (r"\begin{pmatrix}2\\5\end{pmatrix}", r"\boxed{(2,5)}", True),
        (r"\begin{pmatrix}2\\5\end{pmatrix}", r"\boxed{(5,2)}", False),
        ("6", r"\boxed{\text{Area}=6}", True),
        ("2x", r"\boxed{f'(x)=2x}", True),
        (r"e^x+C", r"\boxed{e^x+c}", True),
        (r"e^x+C", r"\boxed{e^x}", False),
    ],
    "unicode": [
        ("6", "\\boxed{\N{ZERO WIDTH SPACE}6\N{WORD JOINER}}", True),
        (r"\sqrt{65}", "\\boxed{\N{SQUARE ROOT}65}", True),
        (r"5\sqrt{6}", "\\boxed{\N{SQUARE ROOT}65}", False),
        (r"\text{café}", "\\boxed{\\text{cafe\N{COMBINING ACUTE ACCENT}}}", True),
        ("42", "\\boxed{\N{MATHEMATICAL BOLD DIGIT FOUR}\N{FULLWIDTH DIGIT TWO}}", True),
        (r"x\ne 3", "\\boxed{x =\N{COMBINING LONG SOLIDUS OVERLAY} 3}", True),
    ],
}


@pytest.mark.parametrize("cls", [Answer, QwenMath, MathVerify])
@pytest.mark.parametrize("name", CLASSES)
def test_classes(name, cls):
    for gold, text, right in CLASSES[name]:
        verdict = judge(gold, text, cls)
        assert verdict.passed is right, (gold, text, verdict.detail)


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


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("<answer>6</answer>", True),
        ("<think>5?</think> <answer>6</answer>\n", True),
        ("<think><answer>5</answer></think> <answer>6</answer>", True),
        ("<answer>6</answer> <answer>6</answer>", False),
        ("<answer>6</answer> I hope", False),
        ("<answer> </answer>", False),
        ("</answer>6<answer>", False),
        ("<answer>6", False),
        ("6", False),
    ],
)
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
