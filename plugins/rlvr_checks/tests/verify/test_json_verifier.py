"""checks/json: right and wrong answers, partial credit, hostile text."""

import json
import time

import pytest

from rlvr_checks.structured.json_verifier import JsonVerifier
from rlvr_core.api import Completion, DataError, Problem
from rlvr_devkit.conformance.as_tests import conformance

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

RIGHT = [
    (BY_ANSWER, f"{TEXT} [1]"),  # a reference, not the answer
    (BY_ANSWER, f"By [2], it is {TEXT}, see [1] and [2]."),
    (LIST, 'As {"note": 1} says, [1, 2, 3], and not {"x": 2}.'),
    (BOTH, TEXT),
    (BOTH, json.dumps(ADA, indent=2)),
    (BOTH, json.dumps(dict(reversed(ADA.items())))),
    (BOTH, f"```json\n{TEXT}\n```"),
    (BOTH, f"```\n{TEXT}\n```"),
    (BOTH, f"```JSON\n{TEXT}\n```"),
    (BOTH, f"Here it is:\n\n```json\n{TEXT}\n```\n\nAnything else?"),
    (BOTH, f"Here it is: {TEXT}"),
    (BOTH, f"Here it is: {TEXT} Anything else?"),
    (BOTH, f"{TEXT}\n\nAnything else?"),
    (BOTH, f"<think>{{}}</think>{TEXT}"),
    (BOTH, f"<answer>{TEXT}</answer>"),
    (BOTH, f"<answer>\n```json\n{TEXT}\n```\n</answer>"),
    (BOTH, f"```json\n{{}}\n```\nNo, this:\n```json\n{TEXT}\n```"),
    (BOTH, f"An example is {{}}. The answer is {TEXT}"),
    (BOTH, f"\ufeff{TEXT}"),
    (BOTH, f"  \n{TEXT}\n "),
    (BOTH, f"In {{braces}} we put this: {TEXT}"),
    (BOTH, f"The keys [1] and [name]: {TEXT}"),
    (BOTH, TEXT.replace("Ada", "\\u0041da")),
    (BOTH, f"```python\nprint(1)\n```\n\n```json\n{TEXT}\n```"),
    (BOTH, f"  ```json\n  {TEXT}\n  ```"),
    (BOTH, f"```json\n{TEXT}"),
    (BY_SCHEMA, '{"name": "A", "age": 0}'),
    (BY_SCHEMA, '{"name": "A", "age": 3.0}'),
    (BY_SCHEMA, '{"name": "A", "age": 1e2}'),
    (BY_SCHEMA, '{"name": "A", "age": 1, "tags": []}'),
    (BY_SCHEMA, '{"name": "}{", "age": 1}'),
    (BY_SCHEMA, 'It is {"name": "a ```json b", "age": 1}.'),
    (BY_SCHEMA, '{"name": "\\"", "age": 1}'),
    (BY_SCHEMA, '{"name": "\\ud83d\\ude00", "age": 1}'),
    (BY_ANSWER, TEXT.replace("36", "36.0")),
    (NUMBERS, '{"x": 1, "y": [1.5, null, true], "z": ""}'),
    (NUMBERS, '{"x": 1.0, "y": [15e-1, null, true], "z": ""}'),
    (LIST, "[1, 2, 3]"),
    (LIST, "So: [1,2,3]."),
    (LIST, "```\n[1, 2, 3]\n```"),
    (SCALAR, "5"),
    (SCALAR, "5.0"),
    (SCALAR, "```json\n5\n```"),
    (SCALAR, "<answer>5</answer>"),
    (STRING, '"five"'),
    ({"answer": None}, "null"),
    ({"answer": {}}, "{}"),
    ({"answer": []}, "[]"),
    ({"schema": json.dumps(PERSON)}, '{"name": "A", "age": 1}'),
]

WRONG = [  # and what the verdict says
    (BOTH, "", "empty"),
    (BOTH, " \n", "empty"),
    (BOTH, "I cannot.", "not JSON"),
    (BOTH, "{}", "'name' is a required property"),
    (BOTH, "[]", "is not of type 'object'"),
    (BOTH, "null", "is not of type 'object'"),
    (BOTH, f"[{TEXT}]", "is not of type 'object'"),
    (BOTH, TEXT[:-1], "cut off"),
    (BOTH, TEXT[:-5], "cut off"),
    (BOTH, TEXT[:20], "cut off"),
    (BOTH, f"```json\n{TEXT[:-1]}\n```", "cut off"),
    (BOTH, TEXT.replace("36", "37"), "not the answer"),
    (BOTH, TEXT.replace("36", '"36"'), "age: '36' is not of type 'integer'"),
    (BOTH, TEXT.replace("36", "-1"), "less than the minimum"),
    (BOTH, TEXT.replace("36", "36.5"), "not of type 'integer'"),
    (BOTH, TEXT.replace("36", "true"), "not of type 'integer'"),
    (BOTH, TEXT.replace("36", "null"), "not of type 'integer'"),
    (BOTH, TEXT.replace("Ada", "ada"), "not the answer"),
    (BOTH, TEXT.replace("Ada", "Ada "), "not the answer"),
    (BOTH, TEXT.replace("London", ""), "not the answer"),
    (BOTH, TEXT.replace('["a", "b"]', '["b", "a"]'), "not the answer"),
    (BOTH, TEXT.replace('["a", "b"]', '["a"]'), "not the answer"),
    (BOTH, TEXT.replace('["a", "b"]', '["a", "b", "c", "d"]'), "is too long"),
    (BOTH, TEXT.replace('["a", "b"]', '"a, b"'), "not of type 'array'"),
    (BOTH, TEXT.replace('"city"', '"town"'), "home: 'city' is a required property"),
    (BOTH, TEXT[:-1] + ', "more": 1}', "Additional properties"),
    (BOTH, TEXT[:-1] + ', "age": 36}', "'age' is there twice"),
    (BOTH, '{"age": 1, ' + TEXT[1:], "'age' is there twice"),
    (BOTH, TEXT.replace("36", "NaN"), "NaN is not JSON"),
    (BOTH, TEXT.replace("36", "Infinity"), "Infinity is not JSON"),
    (BOTH, TEXT.replace("36", "-Infinity"), "-Infinity is not JSON"),
    (BOTH, TEXT.replace("36", "1e999"), "too large a number"),
    (BOTH, TEXT.replace("36", "9" * 5000), "too many digits"),
    (BOTH, TEXT.replace("36", "036"), "not JSON"),
    (BOTH, TEXT.replace("36", "+36"), "not JSON"),
    (BOTH, TEXT.replace("36", "0x24"), "not JSON"),
    (BOTH, TEXT.replace('"', "'"), "not JSON"),
    (BOTH, TEXT[:-1] + ",}", "not JSON"),
    (BOTH, TEXT.replace("{", "{ // a comment\n", 1), "not JSON"),
    (BOTH, TEXT.replace("true", "True").replace("36", "None"), "not JSON"),
    (BOTH, TEXT.replace("Ada", "A\nda"), "not JSON"),
    (BOTH, TEXT.replace("Ada", "\\ud800"), "half of a surrogate pair"),
    (BOTH, TEXT.replace(",", ""), "not JSON"),
    (BOTH, f"{TEXT}{{}}", "required property"),
    (BOTH, f"{TEXT} or rather {{}}", "required property"),
    (BOTH, f"```json\n{TEXT}\n```\n```json\n{{}}\n```", "required property"),
    (BOTH, f"```json\n{TEXT} That is it.\n```", "text behind the JSON"),
    (BOTH, f"<answer>{TEXT} and more</answer>", "text behind the JSON"),
    (BOTH, f"<think>{TEXT}</think>", "empty"),
    (BOTH, f"<think>{TEXT}", "empty"),
    (BOTH, "[" * 100_000, "deeper than 100"),
    (BOTH, '{"a":' * 10_000, "deeper than 100"),
    (BOTH, "x" * 300_000, "longer than 200,000"),
    (BOTH, json.dumps(TEXT), "not of type 'object'"),
    (BOTH, "name: Ada\nage: 36", "not JSON"),
    (BOTH, "<name>Ada</name>", "not JSON"),
    (BOTH, json.dumps(PERSON), "Additional properties"),
    (BY_SCHEMA, '{"name": "", "age": 1}', "name"),
    (NUMBERS, '{"x": "1", "y": [1.5, null, true], "z": ""}', "not the answer"),
    (NUMBERS, '{"x": true, "y": [1.5, null, true], "z": ""}', "not the answer"),
    (NUMBERS, '{"x": 1, "y": [1.5, null, 1], "z": ""}', "not the answer"),
    (NUMBERS, '{"x": 1, "y": [1.5, false, true], "z": ""}', "not the answer"),
    (NUMBERS, '{"x": 1, "y": [1.5, null, true], "z": null}', "not the answer"),
    (NUMBERS, '{"x": 1, "y": [1.5, null, true]}', "not the answer"),
    (NUMBERS, '{"X": 1, "y": [1.5, null, true], "z": ""}', "not the answer"),
    (LIST, "[3, 2, 1]", "not the answer"),
    (LIST, "[1, 2, 3, 3]", "not the answer"),
    (LIST, "[[1, 2, 3]]", "not the answer"),
    (LIST, "1, 2, 3", "text behind"),
    (LIST, "[1, 2, 3] [4]", "not the answer"),
    (SCALAR, '"5"', "not the answer"),
    (SCALAR, "five", "not JSON"),
    (SCALAR, "5 apples", "text behind"),
    (STRING, "five", "not JSON"),
    ({"answer": {}}, "[]", "not the answer"),
    ({"answer": []}, "{}", "not the answer"),
    ({"answer": None}, "{}", "not the answer"),
    ({"answer": False}, "0", "not the answer"),
]
MARKUP = {"answer": {"html": "<answer>{}</answer> <think>no</think> ```json"}}
RIGHT += [
    (MARKUP, json.dumps(MARKUP["answer"])),
    (MARKUP, f"<think>{{}}</think>```json\n{json.dumps(MARKUP['answer'], indent=1)}\n```"),
    (MARKUP, f'He said "yes"</think>\n<answer>{json.dumps(MARKUP["answer"])}</answer>'),
    (MARKUP, f'<think>5" is enough</think> So: {json.dumps(MARKUP["answer"])}'),
    (MARKUP, f"Here:\r\n```json\r\n{json.dumps(MARKUP['answer'])}\r\n```\r\n"),
]
WRONG += [
    (MARKUP, f"<think>{json.dumps(MARKUP['answer'])}", "is empty"),
    (MARKUP, f"<think>{json.dumps(MARKUP['answer'])}</think> <answer>{{}}</answer>", "not the"),
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
    [
        ({"a": 1, "b": {"c": 2, "d": 3}}, 1.0),
        ({"a": 1, "b": {"c": 2, "d": 4}}, 2 / 3),
        ({"a": 1, "b": {"c": 2}}, 2 / 3),
        ({"a": 1}, 1 / 3),
        ({}, 0.0),
        ({"a": 1, "b": {"c": 2, "d": 3}, "e": 4}, 3 / 4),  # what is too much counts as wrong
        ({"a": 2, "b": {"c": 3, "d": 4}, "e": [1, 2, 3]}, 0.0),
        ({str(n): n for n in range(100)} | {"a": 1}, 1 / 103),
    ],
)
def test_partial_credit_is_the_share_of_paths(given, share):
    spec = {"answer": {"a": 1, "b": {"c": 2, "d": 3}}}
    assert verify(spec, json.dumps(given), partial=True).score == pytest.approx(share)
    assert verify(spec, json.dumps(given)).score == float(share == 1.0)


@pytest.mark.parametrize(
    ("given", "share"),
    [
        ({"name": "A", "age": 1}, 1.0),
        ({"name": "A"}, 1 / 2),
        ({"name": "A", "age": "1"}, 1 / 2),
        ({"name": "A", "age": 1, "tags": [1, 2]}, 2 / 3),
        ({"name": "A", "age": 1, "home": {"zip": "1"}}, 3 / 4),
        ({"name": "A", "age": 1, "more": 1}, 2 / 3),
        ({"name": "A", "more": 1, "other": 2, "third": 3}, 1 / 3),  # junk is one fault
        ({}, 0.0),
        ([], 0.0),
    ],
)
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


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({}, "needs the field 'schema', 'answer', or both"),
        ({"schema": {}}, "allows everything"),
        ({"schema": True}, "allows everything"),
        ({"schema": {"type": "text"}}, "the schema is wrong"),
        ({"schema": "{"}, "the schema is not JSON"),
        ({"schema": [1]}, "a schema is an object"),
        ({"schema": {"$ref": "https://example.org/other.json"}}, "refers to 'https://example.org"),
        ({"schema": {"$ref": "#/$defs/none"}}, "which is not in it"),
        ({"schema": PERSON, "answer": {"name": "A"}}, "the answer does not fit"),
        ({"schema": {"items": {"pattern": "(a"}}}, "'(a' is no regular expression"),
        ({"schema": {"patternProperties": {"[a": {}}}}, "'[a' is no regular expression"),
    ],
)
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
