"""Held-out problems that stand word for word in training prompts, in frames of many kinds."""

import json
import textwrap

import pytest

from rlvr_core.api import Problem
from rlvr_core.builtin.evals.contamination import Trained
from rlvr_core.builtin.evals.verbatim import Verbatim, readings

FARM = (
    "A farmer keeps 240 hens in 6 barns. Each hen lays 5 eggs a week, \u201cif fed\u201d. "
    "Foxes take 18 hens in May. How many eggs are laid in June?"
)
LATEX = (
    "Let $f(x) = \\frac{3x - 2}{x - 2}$.\nIf $f(-2) + f(-1) \\neq \\nu$ is "
    "expressed as $\\frac{m}{n}$, what is $m + n$"
)
OTHER = "Why do the seven tall grey birds near Lima sleep whenever there is rain and wind?"


def lines(text, sign):
    """A text in lines of 40 characters that begin with a sign."""
    wrapped = (textwrap.wrap(one, 40) for one in text.split("\n"))
    return "\n".join(sign + line for one in wrapped for line in one)


FRAMES = {
    "list": lambda text: f"Solve both problems.\n1) {OTHER}\n2) {text}",
    "list in a line": lambda text: f"Solve these. 1) {text} 2) {OTHER}",
    "comment": lambda text: "def solve():\n" + lines(text, "    # ") + "\n    pass",
    "comment of C": lambda text: "/*\n" + lines(text, " * ") + "\n */",
    "json": lambda text: "Fill it in: " + json.dumps({"id": 7, "problem": text, "answer": None}),
    "json in json": lambda text: json.dumps({"row": json.dumps({"problem": text})}),
    "repr": lambda text: f"row = { ({'problem': text, 'n': 1})!r}",
    "escaped": lambda text: json.dumps(f"Do this.\n{text}\nShow it.")[1:-1],
    "quote": lambda text: "My friend wrote:\n" + lines(text, "> "),
    "bullets": lambda text: f"Tasks:\n- {OTHER}\n- {text}\n",
    "items": lambda text: f"\\begin{{enumerate}} \\item[(a)] {text} \\item {OTHER}",
    "bold": lambda text: f"**Problem.** **{text}**",
    "html": lambda text: f"<ol><li>{OTHER}</li><li>{text}</li></ol>",
    "table": lambda text: f"| 1 | {OTHER} |\n| 2 | {' '.join(text.split())} |",
    "chat": lambda text: f"<|im_start|>user\n{text}<|im_end|>",
}


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("text", [FARM, LATEX])
def test_a_problem_in_a_frame_is_the_same(text, frame):
    known = Trained()
    known.add(
        "train", [("o", "Add 2 and 3."), ("o2", "Nobody asks."), ("copy", FRAMES[frame](text))]
    )
    held = [Problem("held", text, "x", {}, "d"), Problem("other", "Where is Lima?", "x", {}, "d")]
    (match,) = known.search(held).matches
    assert (match.trained, match.by) == ("copy", "text")


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize(
    "change",
    [("240", "250"), ("June?", "June, and how many hens are left?"), ("Foxes", "Two foxes")],
)
def test_another_problem_in_a_frame_is_not(frame, change):
    found = Verbatim([FARM])
    found.read(0, FRAMES[frame](FARM.replace(*change)))
    assert found.found == [None]


@pytest.mark.parametrize(
    "text",
    [
        "When there is no rain, how many of the 12 boys run for 5 miles in the 3 parks?",
        "How many of the 12 boys run for 5 miles in the 3 parks (in the town)?",
        "How many of the 12 boys run for 5 miles in the 3 parks, and how many walk?",
    ],
)
def test_a_part_of_a_sentence_is_not_the_problem(text):
    found = Verbatim(["How many of the 12 boys run for 5 miles in the 3 parks?"])
    found.read(0, text)
    assert found.found == [None]


def test_signs_within_a_problem_are_read():
    found = Verbatim(["Compute 3 - 4 + 5 * 6 / 7 - 8 and 9 > 10."])
    for row, text in enumerate(
        ["Compute 3 + 4 + 5 * 6 / 7 - 8 and 9 > 10.", "# Compute 3 - 4 + 5 * 6 / 7 - 8 and 9 > 10."]
    ):
        found.read(row, text)
    assert found.found == [1]


def test_what_is_escaped_is_read_as_what_it_is_and_as_what_it_stands_for():
    assert list(readings('no backslash, "no other reading"')) == [
        'no backslash, "no other reading"'
    ]
    found = list(readings(json.dumps({"a": "one \\frac\n\u2019two\u2019 three"})))
    assert "one \\frac\n\u2019two\u2019 three" in found
