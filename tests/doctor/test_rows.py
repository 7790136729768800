"""Rows that became prompts in another way than their author meant."""

from types import SimpleNamespace

import pytest

from rlvr_core.api import Problem
from rlvr_core.builtin.doctor.rows import rows


def told(prompts, ids=None):
    ids = ids or [f"p{n}" for n in range(len(prompts))]
    problems = [
        Problem(id_, prompt, "v", {"answer": "1"}, "d")
        for id_, prompt in zip(ids, prompts, strict=True)
    ]
    return [(one.level, one.value) for one in rows(SimpleNamespace(problems=problems))]


QUESTIONS = [f"How many apples are {n} apples and {n % 7} more?" for n in range(100)]
FINE = [("ok", "each prompt is the text of one row")]


def test_questions_are_rows():
    assert told(QUESTIONS) == FINE


@pytest.mark.parametrize("end", ["\\n", "\\r\\n", "\\n\\nAnswer:", "\\t1"])
def test_line_breaks_that_were_escaped_once_too_often(end):
    ((level, value),) = told([one + end for one in QUESTIONS])
    assert (level, value[:41]) == ("warn", "100 of 100 (100 %) prompts have a backsla")


@pytest.mark.parametrize(
    "prompt",
    [
        r"Is $\neq$ the same as $\nu$, and $\text{it}$ as $\nabla$ or $\Rightarrow$?",
        r"What is $A \nRightarrow B$, and $A \nLeftarrow B$?",
        'What does print("a\\n") write?',
        "What does this print?\nprint('one\\ntwo\\n3')",
        "Where is C:\\new\\temp?",
    ],
)
def test_formulas_programs_and_paths_have_backslashes_of_their_own(prompt):
    assert told([f"{n}. {prompt}" for n in range(50)]) == FINE


def test_prompts_that_are_names_of_rows():
    names = [f"apples-{n}" for n in range(50)]
    ((level, value),) = told(names, names)
    assert (level, value[:27]) == ("warn", "50 of 50 (100 %) prompts ar")
    # where the question is its own id, nothing is mixed up
    assert told(QUESTIONS, QUESTIONS) == FINE


def test_rows_that_have_run_together():
    """Of 100 questions 2 are no chance yet in 3; the second ones are there by themselves, too."""
    joined = [
        f"{one} {QUESTIONS[(n + 1) % 100]}" if n in (10, 30, 50) else one
        for n, one in enumerate(QUESTIONS)
    ]
    ((level, value),) = told(joined)
    assert level == "warn"
    assert value.startswith("3 of 100 (3 %) prompts hold the whole prompt of another problem")
    assert "such as p10 that of p11" in value
    two = [one if n != 50 else QUESTIONS[50] for n, one in enumerate(joined)]
    assert told(two) == FINE


def test_problems_that_come_with_an_earlier_one():
    """Another one than the next is a choice, up to a tenth: 3 of 100 are fine, and 20 are not."""

    def after(places):
        return [
            f"{one} {QUESTIONS[n - 3]}" if n in places else one for n, one in enumerate(QUESTIONS)
        ]

    assert told(after((10, 30, 50))) == FINE
    ((level, value),) = told(after(range(5, 100, 5)))
    assert (level, value[:9]) == ("warn", "19 of 100")


def test_an_example_in_front_of_all_is_no_row_that_ran_together():
    shown = f"{QUESTIONS[0]} 0 apples."
    assert told([QUESTIONS[0], *(f"Q: {shown} {one}" for one in QUESTIONS[1:])]) == FINE


def test_a_number_within_a_number_is_no_prompt():
    sums = [f"Add the number {n} to 1" for n in range(10, 60)]
    assert told([*sums, *(f"Please: Add the number {n} to 17" for n in range(10, 60))]) == FINE


def scanned(text, letters):
    return text.translate(str.maketrans(letters))


@pytest.mark.parametrize("letters", [{"0": "O"}, {"1": "l"}, {"0": "o", "1": "I"}, {"8": "B"}])
def test_digits_that_a_scan_has_read_as_letters(letters):
    texts = [scanned(f"What is {37 * n % 1000} + {91 * n % 1000}?", letters) for n in range(100)]
    ((level, value),) = told(texts)
    first = min(letters)
    assert (level, value[:27]) == ("warn", f"no prompt has the digit {first} (")
    # with the digit as well, or few numbers, it is how the text is
    assert told([f"{text} {first}0123456789" for text in texts]) == FINE
    assert told(texts[:8]) == FINE


def test_numbers_to_other_bases_and_formulas_of_molecules_are_fine():
    octal = [f"What is {n * 37:o} in base ten, without H2O?" for n in range(100)]
    assert told(octal) == FINE
