"""Short eval problems that were trained on in another frame."""

import itertools
from types import SimpleNamespace

import pytest

from rlvr_core.api import Problem
from rlvr_core.builtin.doctor.short import SHORT

PAIRS = [(a, b) for a, b in itertools.product(range(10, 40), repeat=2) if (a + b) % 3]


def problems(frame, pairs, answer=lambda a, b: a + b, dataset="train"):
    return [
        Problem(
            f"{dataset}{a}+{b}", frame.format(a, b), "v", {"answer": str(answer(a, b))}, dataset
        )
        for a, b in pairs
    ]


def levels(trained, held_out):
    (check,) = SHORT
    found = check.ask(SimpleNamespace(problems=trained, held_out={"task": tuple(held_out)}))
    return None if found is None else [one.level for one in found]


TRAINED = problems("What is {}+{}?", PAIRS[:300])


@pytest.mark.parametrize("frame", ["Please compute {}+{}.", "{} + {} =", "Q: {}+{}\nA:", "({}+{})"])
def test_problems_of_the_training_data_in_another_frame(frame):
    assert levels(TRAINED, problems(frame, PAIRS[:60])) == ["fail"]
    # a few of many are doubtful, not wrong
    some = problems(frame, PAIRS[:8] + PAIRS[300:560])
    assert levels(TRAINED, some) == ["warn"]


@pytest.mark.parametrize("frame", ["What is {}+{}?", "Please compute {}+{}."])
def test_problems_that_were_held_out_are_not_accused(frame):
    assert levels(TRAINED, problems(frame, PAIRS[300:360])) == ["ok"]
    # nor the same numbers in another order, or with another sign
    assert levels(TRAINED, problems(frame.replace("+", "-"), PAIRS[:60])) == ["ok"]


def test_another_question_about_the_same_sums_is_not_accused():
    other = problems("How many digits has {}+{}?", PAIRS[:60], lambda a, b: len(str(a + b)))
    assert levels(TRAINED, other) == ["ok"]
    # where all answers are alike, equal ones are chance
    yes = problems("Is {}+{} whole?", PAIRS[:60], lambda a, b: "yes")
    assert levels(problems("Is {}+{} positive?", PAIRS[:60], lambda a, b: "yes"), yes) == ["ok"]


def test_long_problems_are_left_to_the_guard_of_contamination():
    who = ("Ann", "The baker", "A clerk", "Old Tom", "My aunt", "No one", "One of us", "Her dog")
    what = "met {} people on the way to the market in May and {} more on the way home"
    long = [one for name in who for one in problems(f"{name} {what}", PAIRS[:3])]
    assert levels(long, long) is None
