"""Canaries of rewards that are plain functions: written in the form that the function reads."""

import pytest

from rlvr_core.api import Problem
from rlvr_core.builtin.canaries.forms import FORMS, forms_of, read, reference_of
from tests.guards import plain_functions as plain
from tests.guards.plain_functions import HEALTHY, WRONG, doctor, function, run


@pytest.mark.parametrize("rule", WRONG)
def test_wrong_functions_are_named_in_every_form(rule):
    for form in plain.FORMS:
        reward = function(WRONG[rule], form)
        assert doctor(reward).level == "fail"
        assert any("too lax" in said or "wrong answers of one kind" in said
                   for said in run(reward, form))  # fmt: skip


@pytest.mark.parametrize("rule", HEALTHY)
def test_healthy_functions_are_left_alone_in_every_form(rule):
    for form in plain.FORMS:
        reward = function(HEALTHY[rule], form)
        found = doctor(reward)
        assert found.level == "ok"
        assert "kinds of wrong answers on 24 problems get no reward" in found.value
        assert run(reward, form) == []


def test_a_form_that_nobody_knows_is_said_and_not_called_ok():
    def odd(text, answer):
        return text == f"~~{answer}~~"

    found = doctor(odd)
    assert found.level == "note"
    assert "canaries were not tested" in found.value
    # the policy writes another form: no completion passes
    (said,) = run(odd, "boxed")
    assert "wrong answers were not tried on my/v: the stated reference passes in none" in said


def test_a_form_that_only_completions_show_is_taken_from_them():
    def last_digit(text, answer):
        return text.startswith("~~") and text.rstrip("~")[-1:] == answer[-1:]

    said = run(last_digit, "odd", written={"odd": ("", "~~%s~~")})
    assert any("passes 4 of 4 wrong answers of one kind" in one for one in said)


def test_a_function_with_a_wanted_form_does_not_deny_answers_in_others():
    reward = function(HEALTHY["the same text"], "boxed")
    for written in ("so it is %s", "Answer: %s", "<answer>%s</answer>"):
        assert run(reward, "boxed", steps=4, written={"boxed": ("", written)}) == []


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("6 + 1 = 7, so \\boxed{47}", "47"),
        ("\\boxed{47} or \\boxed{47}", "47"),
        ("\\boxed{46}, no, \\boxed{47}", None),
        ("\\boxed{46}. Answer: 47", None),
        ("The answer is 47.", "47"),
        ("<answer> 47 </answer>", "47"),
        ("It is 46.", "46"),
        # whichever number a verifier reads of the second, it is not 47; of the third it may be
        ("1 and 46", "46"),
        ("47 and 46", None),
        ("none", None),
    ],
)
def test_answers_are_read_where_they_are_clear(text, answer):
    found = read(text, "47")
    assert (found and found[1]) == answer


@pytest.mark.parametrize(
    ("spec", "answer"),
    [
        ({"answer": 47, "level": 3}, "47"),
        ({"total": "47"}, "47"),
        ({"left": 4, "right": 3}, ""),
        ({"answer": "40 + 7 = 47\n#### 47"}, "47"),
        ({"solution": "so \\boxed{Paris}"}, "Paris"),
    ],
)
def test_the_reference_of_a_spec_as_it_is_written(spec, answer):
    problem = Problem("p", "?", "v", spec, "toy")
    assert reference_of(problem) == answer
    assert len(forms_of(problem)) == (len(FORMS) if answer else 0)
