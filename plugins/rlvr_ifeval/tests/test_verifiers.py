"""The four verifiers: scoring, options, and specs that must be refused."""

import json

import pytest

from rlvr_core.api import Completion, DataError, Problem
from rlvr_devkit.conformance.as_tests import conformance
from rlvr_ifeval.constraint import Constraint, ConstraintSet, NoArgs
from rlvr_ifeval.loose import variants
from rlvr_ifeval.verifiers import Ifeval, Multi, Rlvr, answer_part
from tests.support.tables import table

TWO = {
    "instruction_id_list": ["punctuation:no_comma", "detectable_format:title"],
    "kwargs": [{}, {}],
}
MULTI_TWO = [
    {"instruction_id": ["punctuation:no_comma", "detectable_format:title"], "kwargs": [None, {}]}
]
MULTI_CASES = table(__file__, "multi cases")
RLVR_CASES = table(__file__, "rlvr cases")

test_ifeval_conforms = conformance(Ifeval, cases="verifier_cases.jsonl")
test_multi_conforms = conformance(Multi, cases=MULTI_CASES)
test_rlvr_conforms = conformance(Rlvr, cases=RLVR_CASES)


def problem(spec, id="row_7"):
    return Problem(id, "q", "v", spec, "d")


def judge(verifier, spec, text, **options):
    return verifier(verifier.Config(**options)).verify(problem(spec), Completion.from_text(text))


def test_parts_have_one_entry_a_constraint_in_order():
    verdict = judge(Ifeval, TWO, "no title, here")
    assert list(verdict.parts.items()) == [
        ("1:punctuation:no_comma", 0.0),
        ("2:detectable_format:title", 0.0),
    ]
    twice = {"instruction_id_list": ["punctuation:no_comma"] * 2, "kwargs": [{}, {}]}
    assert list(judge(Ifeval, twice, "a").parts.values()) == [1.0, 1.0]


def test_both_scores_and_what_failed_are_said():
    verdict = judge(Ifeval, TWO, "no title")
    assert (verdict.score, verdict.passed) == (0.0, False)
    assert "1 of 2 followed (all 0, mean 0.5)" in verdict.detail
    assert "2:detectable_format:title" in verdict.detail
    assert "1:punctuation" not in verdict.detail
    assert judge(Ifeval, TWO, "no title", scoring="mean").score == 0.5
    assert judge(Multi, {"ground_truth": MULTI_TWO}, "no title").score == 0.5
    assert judge(Multi, {"ground_truth": MULTI_TWO}, "no title", scoring="all").score == 0.0


def test_loose_leaves_out_lines_and_asterisks():
    assert set(variants("a\n*b*\nc")) == {
        "a\n*b*\nc", "*b*\nc", "a\n*b*", "*b*", "a\nb\nc", "b\nc", "a\nb", "b",
    }  # fmt: skip
    quote = {"instruction_id_list": ["startend:quotation"], "kwargs": [{}]}
    text = 'Sure, here you go:\n"All of it"'
    assert not judge(Ifeval, quote, text).passed
    assert judge(Ifeval, quote, text, loose=True).passed
    # Each constraint may be followed by another variant, as in the official script.
    both = {
        "instruction_id_list": [
            "startend:quotation",
            "detectable_format:number_highlighted_sections",
        ],
        "kwargs": [{}, {"num_highlights": 1}],
    }
    assert judge(Ifeval, both, '*Sure*:\n"All"', loose=True).passed


def test_a_blank_response_fails_even_what_nothing_follows_trivially():
    for text in ("", "  \n"):
        verdict = judge(Ifeval, TWO, text)
        assert (verdict.score, verdict.status) == (0.0, "ok")
        assert not judge(Ifeval, TWO, text, loose=True).passed


def test_only_the_answer_is_judged_where_asked_for():
    comma = {"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}
    text = "<think>well, hm</think>\n<answer>Plain words</answer>"
    assert not judge(Ifeval, comma, text).passed
    assert judge(Ifeval, comma, text, answer_only=True).passed
    assert answer_part("<think>a</think>b</think> <answer>c</answer>") == "c"
    assert answer_part("<think>never ends") == ""
    assert answer_part(" plain ") == "plain"
    assert judge(Multi, {"ground_truth": MULTI_TWO}, "<think>a, b</think><<T>>").passed


BAD_LISTS = table(__file__, "bad lists")
ARGUMENTS = table(__file__, "wrong arguments")


@pytest.mark.parametrize(("spec", "says"), BAD_LISTS)
def test_t54_t55_bad_specs_are_refused_and_never_a_zero(spec, says):
    with pytest.raises(DataError) as caught:
        Ifeval(Ifeval.Config()).check(problem(spec))
    assert says in str(caught.value)
    assert "row_7" in str(caught.value)
    verdict = judge(Ifeval, spec, "a")
    assert (verdict.score, verdict.status) == (None, "unscorable")


@pytest.mark.parametrize(("id", "args", "says"), ARGUMENTS)
def test_t55_wrong_arguments_name_row_constraint_and_argument(id, args, says):
    spec = {"instruction_id_list": [id], "kwargs": [args]}
    with pytest.raises(DataError) as caught:
        Ifeval(Ifeval.Config()).check(problem(spec))
    for part in (says, id, "row_7"):
        assert part in str(caught.value)


def test_t54_nulls_are_absent_arguments():
    spec = {
        "instruction_id_list": ["length_constraints:number_words"],
        "kwargs": [{"num_words": 1.0, "relation": "at least", "keyword": None, "N": None}],
    }
    assert judge(Ifeval, spec, "one").passed


def test_all_faults_are_told_at_once():
    spec = {
        "instruction_id_list": ["a:b", "keywords:frequency"],
        "kwargs": [{}, {"keyword": "a", "odd": 1}],
    }
    with pytest.raises(DataError) as caught:
        Ifeval(Ifeval.Config()).check(problem(spec))
    assert len(caught.value.complaints) == 4


KINDS = {"multi": Multi, "rlvr": Rlvr}
BAD_TRUTHS = [
    *table(__file__, "bad truths", KINDS),
    (Multi, {"ground_truth": "[" * 5000}),
    (Multi, {"ground_truth": "-" * 5000 + "1"}),
    (Multi, {"ground_truth": "9" * 5000}),
]


@pytest.mark.parametrize(("verifier", "spec"), BAD_TRUTHS)
def test_t55_bad_ground_truth_is_refused(verifier, spec):
    with pytest.raises(DataError) as caught:
        verifier(verifier.Config()).check(problem(spec))
    assert "row_7" in str(caught.value)
    assert judge(verifier, spec, "a").status == "unscorable"


def test_ground_truth_as_data_json_and_python_literal_mean_the_same():
    for truth in (MULTI_TWO, repr(MULTI_TWO), json.dumps(MULTI_TWO), MULTI_TWO[0],
                  [json.dumps(MULTI_TWO[0])], {**MULTI_TWO[0]}):  # fmt: skip
        assert judge(Multi, {"ground_truth": truth}, "<<T>>").passed


def test_an_exception_in_a_constraint_is_an_error_and_never_a_zero(monkeypatch):
    def broken(response, args):
        raise IndexError("oops")

    known = ConstraintSet("test")
    known.register(Constraint("x:y", NoArgs, broken, lambda args: "Do."))
    monkeypatch.setattr("rlvr_ifeval.verifiers.IFEVAL", known)
    verdict = judge(Ifeval, {"instruction_id_list": ["x:y"], "kwargs": [{}]}, "a")
    assert (verdict.score, verdict.status, verdict.passed) == (None, "error", None)
    assert "x:y: IndexError: oops" in verdict.detail
