import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr_core.api import Completion, DataError, Problem
from rlvr_core.verify.exact import Exact


def verify(answer, text, **options):
    problem = Problem("p", "?", "core/exact", {"answer": answer}, "toy")
    return Exact(Exact.Config(**options)).verify(problem, Completion.from_text(text))


@pytest.mark.parametrize(
    ("answer", "text", "options", "passed"),
    [
        ("4", "4", {}, True),
        ("4", " 4\n", {}, True),
        (" 4", "4", {}, True),
        ("4", " 4", {"strip": False}, False),
        ("4", "44", {}, False),
        ("4", "", {}, False),
        ("Paris", "paris", {}, False),
        ("Straße", "STRASSE", {"casefold": True}, True),
    ],
)
def test_exact(answer, text, options, passed):
    verdict = verify(answer, text, **options)
    assert verdict.passed is passed
    assert verdict.score == float(passed)


@given(answer=st.text().filter(str.strip), extra=st.text(min_size=1).filter(str.strip))
def test_t60_gold_passes_and_a_corrupted_one_does_not(answer, extra):
    verifier = Exact(Exact.Config())
    problem = Problem("p", "?", "core/exact", {"answer": answer}, "toy")
    verifier.check(problem)
    gold = verifier.gold(problem)
    assert verifier.verify(problem, Completion.from_text(gold)).passed
    assert not verifier.verify(problem, Completion.from_text(gold + extra.strip())).passed


@pytest.mark.parametrize("spec", [{}, {"answer": 4}, {"answer": None}, {"answer": " "}])
def test_check_refuses_a_spec_without_an_answer(spec):
    problem = Problem("p7", "?", "core/exact", spec, "toy")
    with pytest.raises(DataError, match="p7"):
        Exact(Exact.Config()).check(problem)


def test_another_field_may_hold_the_answer():
    verifier = Exact(Exact.Config(field="final"))
    problem = Problem("p", "?", "core/exact", {"final": "x"}, "toy")
    assert verifier.verify(problem, Completion.from_text("x")).passed
    with pytest.raises(DataError, match="fields there are: final"):
        Exact(Exact.Config()).check(problem)
