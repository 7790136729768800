"""Multiple choice: right and wrong answers of many forms, hedges, and what must stay quick."""

import json
import time
from pathlib import Path

import pytest

from rlvr_checks.choice.reading import read_choice
from rlvr_checks.choice.verifier import ChoiceVerifier
from rlvr_core.api import Completion, DataError, Problem
from rlvr_devkit.conformance.as_tests import conformance
from tests.support.tables import table

CASES = Path(__file__).parent / "cases" / "choice.jsonl"
ROWS = [json.loads(line) for line in CASES.read_text().splitlines()]
CELL = ["nucleus", "mitochondria", "ribosome", "Golgi apparatus"]

test_choice_keeps_its_promises = conformance(ChoiceVerifier, cases=CASES)


def verify(text, options=CELL, answer="B", **config):
    problem = Problem("p", "?", "checks/choice", {"options": options, "answer": answer}, "toy")
    verifier = ChoiceVerifier(ChoiceVerifier.Config(**config))
    return verifier.verify(problem, Completion.from_text(text))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: ascii(row["response"])[:60])
def test_an_answer_is_read_as_a_person_reads_it(row):
    verdict = verify(row["response"], row["spec"]["options"], row["spec"]["answer"])
    assert verdict.passed is row["passed"], verdict


@pytest.mark.parametrize("letter", "ABCDEFGHIJ")
def test_each_of_ten_letters_in_each_form(letter):
    options = [f"the {n}th thing" for n in range(10)]
    text = options["ABCDEFGHIJ".index(letter)]
    for form in ("{}", "({})", "**{}**", "The answer is {}.", "The answer is ({}).", "Answer: {}"):
        assert verify(form.format(letter), options, letter).passed, form
        other = "ABCDEFGHIJ"[("ABCDEFGHIJ".index(letter) + 1) % 10]
        assert not verify(form.format(letter), options, other).passed, form
    for form in (r"\boxed{{{}}}", "{}", "The answer is {}.", "<answer>{}</answer>"):
        assert verify(form.format(text), options, letter).passed, form


@pytest.mark.parametrize(("said", "letter"), table(__file__, "letters as options"))
def test_options_that_are_letters_themselves(said, letter):
    assert read_choice(said, ["c", "a", "b", "d"]).letter == letter


@pytest.mark.parametrize("said", ["A", "(A)", "The answer is A.", "The answer is (A) C.", "(A) C"])
def test_a_capital_is_a_letter_though_another_option_has_it_as_its_text(said):
    assert read_choice(said, ["C", "A", "B", "D"]).letter == "A"
    assert read_choice("The answer is K.", ["C", "K", "B", "D"]).letter == "B"


@pytest.mark.parametrize(("text", "place"), table(__file__, "places"))
def test_the_verdict_names_the_place(text, place):
    assert verify(text).passed
    assert verify(text).detail == f"B, from the {place}"


@pytest.mark.parametrize(("text", "first", "last"), table(__file__, "first and last"))
def test_the_first_or_the_last_of_several_counts(text, first, last):
    assert read_choice(text, CELL, "first").letter == first
    assert read_choice(text, CELL, "last").letter == last
    assert verify(text, answer="C").passed is (last == "C")
    assert verify(text, answer="B", match="first").passed is (first == "B")


def test_one_text_under_two_letters_is_one_answer():
    options = ["1", "2", "2", "3"]
    assert verify("C", options, "B").passed
    assert verify("The answer is 2.", options, "C").passed
    for said in ("The answer is C. 2.", "(C) 2", r"\boxed{\text{(C) } 2}", "It is called C. 2"):
        assert verify(said, options, "B").passed, said
        assert not verify(said, options, "A").passed, said
    assert not verify("A", options, "B").passed


@pytest.mark.parametrize(
    "piece",
    [
        "it is ", "the answer is ", r"\boxed{", r"\boxed{A} or ", "<answer>", "(", "{", "A, ",
        "A. ", " ", "\n", "B is correct, ", r"\or", "not A but ", "I say ", "'", "**", "The ",
        "<answer>A</answer>", "The answer is ", "The answer is ... ", "<|eot_id|>", "(A) and ",
        "\nQuestion: ", "(A)\n(B)\n", "is called B. mitochondria ", "(a) ", "**A**", "Option A is ",
    ],
)  # fmt: skip
@pytest.mark.parametrize("match", ["first", "last"])
def test_hostile_answers_cost_little(piece, match):
    text = piece * (200_000 // len(piece)) + "B"
    began = time.process_time()
    verify(text, match=match)
    assert time.process_time() - began < 2


@pytest.mark.parametrize("spec", table(__file__, "refused"))
def test_check_refuses_what_cannot_be_judged(spec):
    with pytest.raises(DataError, match="p7"):
        ChoiceVerifier(ChoiceVerifier.Config()).check(
            Problem("p7", "?", "checks/choice", spec, "t")
        )


def test_a_letter_that_no_option_has_is_read_and_wrong():
    assert read_choice("The answer is H.", CELL).letter == "H"
    assert not verify("The answer is H.").passed
