"""Problems of the training data among other sentences, or in other words."""

import pytest

from rlvr_core.api import Problem
from rlvr_core.builtin.evals.contamination import Trained
from rlvr_core.builtin.evals.retold import sentences, told_again

FARM = (
    "A farmer keeps 240 hens in 6 barns. Each hen lays 5 eggs a week. Foxes take 18 hens in May. "
    "How many eggs are laid in June?"
)
OTHERS = [
    f"A {what} of {n} {things} is shared among {n + 3} {who}. How many does each of them get?"
    for n, (what, things, who) in enumerate(
        [("crate", "apples", "children"), ("bag", "marbles", "pupils"), ("box", "pens", "clerks")]
        * 20
    )
]


def search(prompt, *trained):
    known = Trained()
    known.add("train", [*((f"o{n}", text) for n, text in enumerate(OTHERS)), *trained])
    other = "Why do the seven tall grey birds near Lima sleep whenever there is rain and wind?"
    held = [Problem("held", prompt, "x", {}, "d"), Problem("other", other, "x", {}, "d")]
    return known.search(held).matches


def verbatim(held_out, trained):
    return told_again(held_out, trained)[0]


def retold(held_out, trained):
    return told_again(held_out, trained)[1]


def test_sentences_lose_punctuation_and_keep_signs():
    assert sentences("Tom has $1,200. He pays 5 - 3!\nHow much?") == [
        "tom has 1200",
        "he pays 5 - 3",
        "how much",
    ]


def test_a_problem_among_other_sentences_is_the_same_and_in_another_order_much_like_it():
    first, second, third, asked = FARM.replace(". ", ".|").split("|")
    framed = f"My aunt wrote this riddle. {FARM} Show your work."
    turned = f"{asked} You know this: {third} {first} {second}"
    assert verbatim([FARM], [*OTHERS, framed, turned]) == [len(OTHERS)]
    for text, by in ((framed, "text"), (turned, "near")):
        (match,) = search(FARM, ("copy", text))
        assert (match.trained, match.by) == ("copy", by)


@pytest.mark.parametrize(
    "change", [("240", "250"), ("June?", "June, and how many hens are left?"), ("Foxes", "Dogs")]
)
def test_one_other_sentence_is_another_problem(change):
    assert verbatim([FARM], [FARM.replace(*change)]) == [None]


def test_few_words_are_no_evidence():
    assert verbatim(["Compute 3 + 4. Be exact."], ["Be exact. Compute 3 + 4."]) == [None]


def test_the_same_numbers_and_rare_words_are_the_same_problem_told_again():
    told = (
        "In 6 barns there are two hundred hens and 40 more, 240 in all, each laying 5 eggs per "
        "week. In May foxes took 18. Find the number of eggs for June, with barns, farmer and "
        "foxes in mind."
    )
    (found,) = retold([FARM], [*OTHERS, told])
    assert found is None  # two hundred and forty is another number: too few are the same
    told = told.replace("two hundred hens and 40 more, 240 in all,", "240 hens,")
    (found,) = retold([FARM], [*OTHERS, told])
    assert found[0] == len(OTHERS)
    assert found[1] > 0.34
    (match,) = search(FARM, ("told", told))
    assert (match.trained, match.by) == ("told", "near")


def test_the_same_numbers_in_another_story_are_not():
    story = "A train of 240 seats stops 6 times. Each stop costs 5 coins and 18 minutes. How late?"
    assert retold([FARM], [*OTHERS, story]) == [None]


def test_formulas_are_no_words():
    one = "Let \\frac{a}{b} have 240 hens, 6 barns, 5 eggs, 18 foxes. Find June, May, farmer, week."
    assert retold([one], [*OTHERS, one + " Again."]) == [None]
