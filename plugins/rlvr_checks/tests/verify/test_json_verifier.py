"""checks/json: right and wrong answers, partial credit, hostile text."""

import json
import time

import pytest

from rlvr_checks.structured.json_verifier import JsonVerifier
from rlvr_core.api import Completion, DataError, Problem
from rlvr_devkit.conformance.as_tests import conformance
from tests.support.tables import table

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "age": {"type": "integer", "minimum": 0},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
        "home": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "zip": {"type": "string"}},
            "required": ["city"],
        },
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
BY_SCHEMA = {"schema": PERSON}
ADA = {"name": "Ada", "age": 36, "tags": ["a", "b"], "home": {"city": "London"}}
BY_ANSWER = {"answer": ADA}
BOTH = {"schema": PERSON, "answer": ADA}
TEXT = json.dumps(ADA)
NUMBERS = {"answer": {"x": 1, "y": [1.5, None, True], "z": ""}}
LIST = {"answer": [1, 2, 3]}
SCALAR = {"answer": 5}
STRING = {"answer": "five"}

MARKUP = {"answer": {"html": "<answer>{}</answer> <think>no</think> ```json"}}
SPECS = {
    "by schema": BY_SCHEMA, "by answer": BY_ANSWER, "both": BOTH, "numbers": NUMBERS, "list": LIST,
    "scalar": SCALAR, "string": STRING, "markup": MARKUP,
}  # fmt: skip
RIGHT = table(__file__, "right", SPECS)

WRONG = [
    *table(__file__, "wrong", SPECS),
    (BOTH, TEXT.replace("36", "9" * 5000), "too many digits"),
    (BOTH, "[" * 100_000, "deeper than 100"),
    (BOTH, '{"a":' * 10_000, "deeper than 100"),
    (BOTH, "x" * 300_000, "longer than 200,000"),
]
CASES = [{"spec": spec, "response": text, "passed": True} for spec, text in RIGHT]
CASES += [{"spec": spec, "response": text, "passed": False} for spec, text, _ in WRONG]

test_json_keeps_its_promises = conformance(JsonVerifier, cases=CASES)


def verify(spec, text, **options):
    verifier = JsonVerifier(JsonVerifier.Config(**options))
    problem = Problem("p", "?", "checks/json", spec, "toy")
    verifier.check(problem)
    return verifier.verify(problem, Completion.from_text(text))


@pytest.mark.parametrize(("spec", "text", "said"), WRONG, ids=lambda value: ascii(value)[:40])
@pytest.mark.parametrize("partial", [False, True])
def test_wrong_and_the_verdict_says_why(spec, text, said, partial):
    verdict = verify(spec, text, partial=partial)
    assert verdict.passed is False
    assert verdict.score < 1.0 if partial else verdict.score == 0.0
    assert said in verdict.detail
    assert len(verdict.detail) < 400


@pytest.mark.parametrize(
    "text", [f"```json\n{TEXT}\n```", f"Here: {TEXT}", f"{TEXT} there", f"<answer>{TEXT}</answer>"]
)
def test_nothing_may_stand_around_it_if_the_answer_must_be_json(text):
    assert verify(BOTH, text).passed
    assert not verify(BOTH, text, place="whole").passed
    assert verify(BOTH, f" {TEXT}\n", place="whole").passed


@pytest.mark.parametrize(
    ("given", "share"),
    [*table(__file__, "partial"), ({str(n): n for n in range(100)} | {"a": 1}, 1 / 103)],
)
def test_partial_credit_is_the_share_of_paths(given, share):
    spec = {"answer": {"a": 1, "b": {"c": 2, "d": 3}}}
    assert verify(spec, json.dumps(given), partial=True).score == pytest.approx(share)
    assert verify(spec, json.dumps(given)).score == float(share == 1.0)


@pytest.mark.parametrize(("given", "share"), table(__file__, "partial by schema"))
def test_partial_credit_by_a_schema(given, share):
    assert verify(BY_SCHEMA, json.dumps(given), partial=True).score == pytest.approx(share)


def test_more_items_or_unnamed_properties_give_no_more_credit():
    schema = {"type": "object", "properties": PERSON["properties"], "required": ["name", "age"]}
    few = verify({"schema": schema}, '{"name": "A", "age": "1"}', partial=True).score
    junk = {"name": "A", "age": "1"} | {f"k{n}": n for n in range(50)}
    assert verify({"schema": schema}, json.dumps(junk), partial=True).score == few == 0.5


def test_order_of_arrays_may_be_no_matter():
    spec = {"answer": {"a": [1, {"b": [2, 3.0]}, "x", None, True]}}
    other = '{"a": [true, null, "x", {"b": [3, 2]}, 1.0]}'
    assert not verify(spec, other).passed
    assert verify(spec, other, ignore_order=True).passed
    for wrong in ("[1, 1]", '["1", 2]', "[true, 2]", "[1, 2, 2]", "[1, [2]]"):
        assert not verify({"answer": [1, 2]}, wrong, ignore_order=True).passed


@pytest.mark.parametrize(("spec", "said"), table(__file__, "refused"))
def test_check_refuses_what_cannot_be_judged(spec, said):
    with pytest.raises(DataError) as caught:
        JsonVerifier(JsonVerifier.Config()).check(Problem("p7", "?", "checks/json", spec, "toy"))
    assert said in str(caught.value)
    assert "p7" in str(caught.value)


FORMATS = {
    "date": ("2024-02-29", "2024-02-30", "yesterday"),
    "time": ("10:00:00Z", "25:00:00Z", "10 am"),
    "date-time": ("2024-01-01T10:00:00.5+02:00", "2024-13-01T10:00:00Z", "2024-01-01"),
    "duration": ("P1DT2H", "P", "PT", "2 days"),
    "email": ("a.b@x.org", "a.b", "a@b", "a b@x.org"),
    "hostname": ("x-1.example.org", "-x.org", "a b"),
    "ipv4": ("127.0.0.1", "256.0.0.1", "1.2.3"),
    "uri": ("https://x.org/a?b#c", "x.org", "https:// x.org", "https://"),
    "uuid": ("123e4567-e89b-12d3-a456-426614174000", "123e4567"),
}


@pytest.mark.parametrize("name", FORMATS)
def test_formats_of_text_are_checked(name):
    right, *wrong = FORMATS[name]
    spec = {"schema": {"type": "string", "format": name}}
    assert verify(spec, json.dumps(right)).passed
    for text in wrong:
        assert f"is not a '{name}'" in verify(spec, json.dumps(text)).detail
    assert verify({"schema": {"format": name}}, "5").passed  # a format is of text alone


@pytest.mark.parametrize(
    ("divisor", "right", "wrong"),
    [
        (0.01, ("19.99", "0.3", "1e2", "-4.35"), ("19.999", "1e-3")),
        (0.1, ("0.3", "1.1", "7"), ("0.35",)),
        (3, ("9", "9.0", "9" * 30), ("10", "1" + "0" * 30)),
    ],
)  # fmt: skip
def test_multiples_are_those_of_the_numbers_as_written(divisor, right, wrong):
    spec = {"schema": {"type": "number", "multipleOf": divisor}}
    assert all(verify(spec, text).passed for text in right)
    for text in wrong:
        assert "is not a multiple of" in verify(spec, text).detail


HOSTILE = "a" * 5000 + "!"


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        ({"pattern": "^(a+)+$"}, "aaa", HOSTILE),
        ({"anyOf": [{"pattern": "^(a|aa)+$"}, {"minLength": 9}]}, HOSTILE, "b"),
        ({"not": {"pattern": "^(a*)*$"}}, HOSTILE, "aaa"),
        ({"pattern": "^(?=a)(a+)+(?<!b)$"}, "aaa", HOSTILE),  # RE2 has no look-around
        ({"pattern": "^[a-z]+$"}, "abc", "abc\n"),
        ({"pattern": r"^(a)\1[$]?$"}, "aa$", "aa\n"),
        ({"pattern": r"^\d$"}, "7", "\u0663"),
        ({"pattern": r"^\p{L}+$"}, "\u00e9t\u00e9", "4"),
        ({"pattern": r"^\u00e9"}, "\u00e9t\u00e9", "e"),
        ({"patternProperties": {"^(x+)+$": {"type": "null"}}}, {"xx": None}, {"xx": 1}),
        (
            {"patternProperties": {"^(x+)+$": {}}, "additionalProperties": False},
            {"xx": 1},
            {"x" * 5000 + "!": 1},
        ),
        ({"properties": {"pattern": {"const": "(a"}}}, {"pattern": "(a"}, {"pattern": "a"}),
    ],
)
def test_patterns_are_those_of_ecma_262_and_no_text_keeps_them_busy(schema, right, wrong):
    began = time.process_time()
    assert verify({"schema": schema}, json.dumps(right)).passed
    assert verify({"schema": schema}, json.dumps(wrong)).score == 0.0
    assert time.process_time() - began < 3


def test_references_inside_a_schema_are_followed():
    spec = {
        "schema": {"$ref": "#/$defs/n", "$defs": {"n": {"type": "array", "items": {"$ref": "#"}}}}
    }
    assert verify(spec, "[[], [[]]]").passed
    assert not verify(spec, "[[], [1]]").passed


@pytest.mark.parametrize(
    "piece",
    ['{"a":1,', "{", "[", '{"a":[', "```json\n", '"', "\\", "[1] ", '{"a": {"b": "', "<answer>"],
)
def test_hostile_answers_cost_little(piece):
    text = piece * (199_000 // len(piece))
    for spec in (BOTH, {"schema": {"$ref": "#/$defs/n", "$defs": {"n": {"items": {"$ref": "#"}}}}}):
        began = time.process_time()
        verify(spec, text)
        assert time.process_time() - began < 3
