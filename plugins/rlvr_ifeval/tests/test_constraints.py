"""Each constraint against hand-written responses (``constraints.jsonl``), and hostile ones."""

import json
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr_core.testing.clock import cpu_limit
from rlvr_ifeval.ifeval import IFEVAL
from rlvr_ifeval.multi import MULTI
from rlvr_ifeval.rlvr import RLVR
from tests.support.tables import table

HERE = Path(__file__).parent
SETS = {"multi": MULTI, "rlvr": RLVR}
ROWS = [json.loads(line) for line in (HERE / "constraints.jsonl").open(encoding="utf-8")]
BOUND = [SETS[row["set"]].parse(row["id"], row["args"]) for row in ROWS]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_hand_written_responses(row):
    constraint = SETS[row["set"]].parse(row["id"], row["args"])
    wrong = [text for text in row["true"] if not constraint.follows(text)]
    wrong += [text for text in row["false"] if constraint.follows(text)]
    assert not wrong, f"judged the wrong way: {wrong}"


@pytest.mark.parametrize("name", SETS)
def test_every_constraint_has_right_and_wrong_responses_and_other_scripts(name):
    seen = defaultdict(lambda: [0, 0, 0])
    for row in ROWS:
        if row["set"] == name:
            counts = seen[row["id"]]
            counts[0] += len(row["true"])
            counts[1] += len(row["false"])
            counts[2] += not all(text.isascii() for text in row["true"] + row["false"])
    few = [id for id in SETS[name].ids if min(seen[id][:2]) < 2]
    assert not few
    ascii_only = [id for id in SETS[name].ids if not seen[id][2]]
    assert not ascii_only


def test_the_sets_have_the_right_sizes():
    assert (len(IFEVAL), len(MULTI), len(RLVR)) == (25, 54, 25)
    assert set(IFEVAL.ids) < set(MULTI.ids)


@pytest.mark.parametrize("bound", BOUND, ids=lambda bound: bound.id)
def test_wording_names_the_arguments(bound):
    assert bound.wording.strip()
    for value in bound.args.model_dump(exclude_none=True).values():
        if isinstance(value, int):
            assert str(value) in bound.wording


@pytest.mark.parametrize("bound", BOUND, ids=lambda bound: bound.id)
def test_blank_responses_follow_nothing(bound):
    assert not any(bound.follows(text) for text in ("", " ", "\n\t\n", "\u3000"))


MARKS = "*** ****** [ << >> P.S. ```json { İ ß e.g. …"
ALPHABET = st.one_of(
    st.sampled_from("*[]<>-\"'`#.,!?{}() \n\t\r\\\x00"),
    st.characters(codec="utf-8"),
)
TEXT = st.text(ALPHABET, max_size=300) | st.lists(
    st.sampled_from([*MARKS.split(), "SECTION 1"]) | st.text(ALPHABET, max_size=8),
    max_size=40,
).map(" ".join)


@settings(deadline=None)
@given(TEXT)
def test_hostile_text_never_raises(text):
    for bound in BOUND:
        if bound.id.startswith(("language:", "change_case:english", "validate_response")):
            continue  # slow: the test below has them
        for min_content in (False, True):
            assert bound.follows(text, min_content=min_content) in (True, False)
        assert isinstance(bound.constraint.holds(text, bound.args), bool)


@settings(deadline=None)
@given(TEXT)
def test_t56_languages_of_hostile_text_are_told_the_same_way_twice(text):
    bound = RLVR.parse("validate_response_language", {"language": "en"})
    assert bound.constraint.holds(text, bound.args) == bound.constraint.holds(text, bound.args)


N = 40_000
LONG = [
    "\n" * N,
    " " * N + "x",
    "\n *" * (N // 3),
    "\n-" * (N // 2),
    "[" * N,
    "[]" * (N // 2),
    "<<" * (N // 2),
    "<" * N + ">",
    "*" * N,
    "* " * (N // 2),
    "***" * (N // 3),
    "the big " * (N // 8),
    "the " * (N // 4) + "x",
    ". " * (N // 2),
    "." * N,
    "a." * (N // 2),
    "A.B. " * (N // 5),
    "Mr. " * (N // 4),
    '"' * N,
    "{" * N,
    "[" * 2000 + "1" + "]" * 2000,
    "7" * N,
    "p. " * (N // 3),
    "word " * (N // 5),
    "漢" * N,
    "a-" * (N // 2),
    "SECTION " * (N // 8),
    "a@" * (N // 2),
    "https://" * (N // 8),
    "\\frac{" * (N // 6),
]


@pytest.mark.parametrize("text", LONG, ids=lambda text: repr(text[:10]))
def test_t53_long_hostile_text_takes_linear_time(text):
    for bound in BOUND:
        with cpu_limit(6, bound.id):  # linear takes up to 2.4 s, in the sentence tokenizer
            bound.follows(text, min_content=True)


def test_t57_keywords_are_literal():
    plus = IFEVAL.parse("keywords:existence", {"keywords": ["C++", "(a|b)*", "[x"]})
    assert plus.follows("I use C++ and (a|b)* and [x.")
    assert not plus.follows("I use CCC and aab and x.")
    evil = IFEVAL.parse(
        "keywords:frequency", {"keyword": "(a+)+$", "frequency": 1, "relation": "at least"}
    )
    with cpu_limit(1):
        assert not evil.follows("a" * 5000 + "!")


TRIVIAL = table(__file__, "trivial")


@pytest.mark.parametrize(("name", "id", "args", "trivial", "real"), TRIVIAL)
def test_t58_trivial_passes_fail_only_when_content_is_asked_for(name, id, args, trivial, real):
    bound = SETS[name].parse(id, args)
    assert bound.follows(trivial)
    assert not bound.follows(trivial, min_content=True)
    assert bound.follows(real)
    assert bound.follows(real, min_content=True)
