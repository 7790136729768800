"""checks/tool-call: calls of every format, right and wrong, written before the verifier."""

import json
import time

import pytest

from rlvr_checks.structured.tool_call import ToolCallVerifier
from rlvr_core.api import Completion, DataError, Problem, ToolCall
from rlvr_core.plugins.tool_formats import tool_format
from rlvr_devkit.conformance.as_tests import conformance

ONE = [{"name": "weather", "arguments": {"city": "Oslo", "days": 3, "metric": True}}]
TWO = [
    {"name": "get", "arguments": {"key": "a"}},
    {"name": "put", "arguments": {"key": "b", "value": [1, {"x": None}]}},
]
NONE = []
EMPTY = [{"name": "now", "arguments": {}}]
FORMATS = ["hermes", "openai", "llama", "pythonic", "qwen3-coder", "gpt-oss"]

ARGUMENTS = '{"city": "Oslo", "days": 3, "metric": true}'
OBJECT = f'{{"name": "weather", "arguments": {ARGUMENTS}}}'
GET, PUT = '{"key": "a"}', '{"key": "b", "value": [1, {"x": null}]}'


def hermes(*bodies):
    return "\n".join(f"<tool_call>\n{body}\n</tool_call>" for body in bodies)


def openai(name, arguments):
    entry = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}
    return json.dumps({"tool_calls": [entry]})


def coder(name, **parameters):
    inside = "\n".join(f"<parameter={k}>\n{v}\n</parameter>" for k, v in parameters.items())
    return f"<tool_call>\n<function={name}>\n{inside}\n</function>\n</tool_call>"


def harmony(name, arguments):
    head = f"<|start|>assistant<|channel|>commentary to=functions.{name} <|constrain|>json"
    return f"{head}<|message|>{arguments}<|call|>"


RIGHT = [
    (ONE, OBJECT.replace("arguments", "parameters").replace("{", '{"type": "function", ', 1)),
    ([], "```python\nprint(sum([1, 2]))\n```"),  # code, and none of it a call of a tool
    ([], '{"name": "Ada", "age": 36}'),
    (ONE, hermes(OBJECT)),
    (ONE, f"I will look it up.\n{hermes(OBJECT)}"),
    (ONE, f"<think>{hermes('{}')}</think>{hermes(OBJECT)}"),
    (ONE, hermes('{"arguments": {"metric": true, "days": 3, "city": "Oslo"}, "name": "weather"}')),
    (ONE, hermes(OBJECT.replace("3", "3.0"))),
    (ONE, hermes(OBJECT.replace(" ", ""))),
    (ONE, OBJECT),
    (ONE, f"[{OBJECT}]"),
    (ONE, f"```json\n{OBJECT}\n```"),
    (ONE, f"```json\n[{OBJECT}]\n```"),
    (ONE, f"I call this:\n```json\n{OBJECT}\n```\n"),
    (ONE, openai("weather", ARGUMENTS)),
    (ONE, openai("weather", json.loads(ARGUMENTS))),
    (ONE, OBJECT.replace("arguments", "parameters")),
    (ONE, f"<|python_tag|>{OBJECT.replace('arguments', 'parameters')}"),
    (ONE, 'weather(city="Oslo", days=3, metric=True)'),
    (ONE, "[weather(city='Oslo', days=3, metric=True)]"),
    (ONE, "[weather(metric=true, city='Oslo', days=3.0)]"),
    (ONE, "```python\nweather(city='Oslo', days=3, metric=True)\n```"),
    (ONE, "First I need this.\n```tool_code\nweather(city='Oslo', days=3, metric=True)\n```"),
    (ONE, coder("weather", city="Oslo", days="3", metric="true")),
    (ONE, f"Let me see.\n{coder('weather', metric='true', days='3', city='Oslo')}"),
    (ONE, harmony("weather", ARGUMENTS)),
    (ONE, f"<|channel|>analysis<|message|>Hm.<|end|>{harmony('weather', ARGUMENTS)}"),
    (ONE, harmony("weather", ARGUMENTS).removesuffix("<|call|>")),
    (
        TWO,
        hermes(f'{{"name": "get", "arguments": {GET}}}', f'{{"name": "put", "arguments": {PUT}}}'),
    ),
    (TWO, f'[{{"name": "get", "arguments": {GET}}}, {{"name": "put", "arguments": {PUT}}}]'),
    (TWO, f'{{"name": "get", "parameters": {GET}}}; {{"name": "put", "parameters": {PUT}}}'),
    (TWO, '[get(key="a"), put(key="b", value=[1, {"x": None}])]'),
    (TWO, 'get(key="a")\nput(key="b", value=[1, {"x": null}])'),
    (TWO, coder("get", key="a") + "\n" + coder("put", key="b", value='[1, {"x": null}]')),
    (TWO, harmony("get", GET) + harmony("put", PUT)),
    (EMPTY, "now()"),
    (EMPTY, "[now()]"),
    (EMPTY, hermes('{"name": "now", "arguments": {}}')),
    (EMPTY, openai("now", "{}")),
    (EMPTY, openai("now", "")),
    (EMPTY, coder("now")),
    (EMPTY, harmony("now", "{}")),
    (NONE, "It is five o'clock."),
    (NONE, ""),
    (NONE, "[]"),
    (NONE, "I would call weather(city='Oslo'), but need not."),
    (NONE, f"<think>{hermes(OBJECT)}</think>No need."),
    ([{"name": "a.b", "arguments": {"x": -1}}], "[a.b(x=-1)]"),
    ([{"name": "say", "arguments": {"text": 'a "b" \n é'}}], "[say(text='a \"b\" \\n é')]"),
    ([{"name": "say", "arguments": {"text": "<b>5</b>"}}], coder("say", text="<b>5</b>")),
    ([{"name": "f", "arguments": {"x": {"b": 1, "a": [2]}}}], "f(x={'a': [2], 'b': 1})"),
    ([{"type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}], "f(x=1)"),
]

CODER = coder("weather", city="Oslo", days="3", metric="true")
GET_CALL = f'{{"name": "get", "arguments": {GET}}}'
PUT_CALL = f'{{"name": "put", "arguments": {PUT}}}'
WRONG = [  # and what the verdict says
    (ONE, f"```json\n{OBJECT}\n```\nor\n```json\n{OBJECT}\n```", "2 calls, 1 expected"),
    ([], '{"name": "f", "arguments": 5}', "must be an object"),
    (ONE, "", "0 calls, 1 expected"),
    (ONE, "I cannot.", "0 calls"),
    (ONE, "weather", "0 calls"),
    (ONE, f"<think>{hermes(OBJECT)}</think>", "0 calls"),
    (ONE, f"<think>{hermes(OBJECT)}", "0 calls"),
    (ONE, hermes(OBJECT, OBJECT), "2 calls, 1 expected"),
    (ONE, hermes(OBJECT.replace("weather", "Weather")), "of 'Weather', not of 'weather'"),
    (ONE, hermes(OBJECT.replace("weather", "weather2")), "not of 'weather'"),
    (ONE, hermes(OBJECT.replace("Oslo", "Bergen")), "'city' has another value"),
    (ONE, hermes(OBJECT.replace("Oslo", "oslo")), "'city' has another value"),
    (ONE, hermes(OBJECT.replace("Oslo", "Oslo ")), "'city' has another value"),
    (ONE, hermes(OBJECT.replace("3", '"3"')), "'days' has another value"),
    (ONE, hermes(OBJECT.replace("3", "4")), "'days' has another value"),
    (ONE, hermes(OBJECT.replace("3", "3.5")), "'days' has another value"),
    (ONE, hermes(OBJECT.replace("true", "false")), "'metric' has another value"),
    (ONE, hermes(OBJECT.replace("true", "1")), "'metric' has another value"),
    (ONE, hermes(OBJECT.replace("true", '"true"')), "'metric' has another value"),
    (ONE, hermes(OBJECT.replace("true", "null")), "'metric' has another value"),
    (ONE, hermes(OBJECT.replace(', "metric": true', "")), "lacks the argument 'metric'"),
    (ONE, hermes(OBJECT.replace("true", 'true, "x": 1')), "an argument 'x' too many"),
    (ONE, hermes(OBJECT.replace("true", 'true, "days": 3')), "a key is there twice"),
    (ONE, hermes(OBJECT[:-1]), "not valid JSON"),
    (ONE, hermes(OBJECT)[: -len("</tool_call>")], "no </tool_call>"),
    (ONE, hermes(OBJECT.replace('"', "'")), "not valid JSON"),
    (ONE, hermes(OBJECT.replace("3", "NaN")), "NaN"),
    (ONE, hermes(f"[{OBJECT}]"), "a call is an object"),
    (ONE, hermes(OBJECT.replace("arguments", "parameters")), ""),
    (ONE, hermes(OBJECT) + hermes("oops"), "call 2: the call is not valid JSON"),
    (ONE, f"{OBJECT} and more", ""),
    (ONE, f"{OBJECT}{OBJECT}", "2 calls"),
    (ONE, OBJECT.replace("3", "4"), "'days' has another value"),
    (ONE, openai("weather", ARGUMENTS[:-1]), "not valid JSON"),
    (ONE, openai("weather", "[]"), "must be an object"),
    (ONE, openai("weather", json.dumps(ARGUMENTS)), "must be an object"),
    (ONE, '{"tool_calls": []}', "0 calls"),
    (ONE, "weather('Oslo', 3, True)", "need their names"),
    (ONE, "weather(city='Oslo', days=3)", "lacks the argument 'metric'"),
    (ONE, "weather(city='Oslo', days=1 + 2, metric=True)", "no literal"),
    (ONE, "weather(city=CITY, days=3, metric=True)", "no literal"),
    (ONE, "weather(city='Oslo', days=3, metric=True", "not valid Python"),
    (ONE, "weather(**{'city': 'Oslo', 'days': 3, 'metric': True})", "must be written out"),
    (ONE, "weather(city='Oslo', days=3, metric=True, city='Oslo')", "there twice"),
    (ONE, "weather(city=f'Oslo', days=3, metric=True)", "no literal"),
    (ONE, "print(weather(city='Oslo', days=3, metric=True))", "need their names"),
    (ONE, "x = weather(city='Oslo', days=3, metric=True)", "0 calls"),
    (ONE, "weather(city='Oslo', days=3, metric=True)\nimport os", "beside calls"),
    (ONE, "weather(city='Oslo', days=3, metric=True)()", "NAME(ARGUMENT=VALUE)"),
    (ONE, "[weather(city='Oslo', days=3, metric=True), 5]", "beside calls"),
    (ONE, "weather(city=b'Oslo', days=3, metric=True)", "no literal"),
    (ONE, "weather(city='Oslo', days=3j, metric=True)", "no literal"),
    (ONE, coder("weather", city="Oslo", days="three", metric="true"), "'days' has another value"),
    (ONE, coder("weather", city="Oslo", days="3"), "lacks the argument 'metric'"),
    (ONE, CODER.replace("</function>", ""), "no </function>"),
    (ONE, CODER.replace("</parameter>", "", 1), ""),
    (ONE, CODER.replace("days", "city"), "there twice"),
    (ONE, harmony("weather", ARGUMENTS[:-1]), "not valid JSON"),
    (ONE, harmony("Weather", ARGUMENTS), "not of 'weather'"),
    (ONE, harmony("weather", ARGUMENTS).replace("<|call|>", "<|end|>"), "no <|call|>"),
    (TWO, hermes(PUT_CALL, GET_CALL), "call 1"),
    (TWO, hermes(GET_CALL), "1 calls, 2 expected"),
    (TWO, hermes(*[GET_CALL] * 2), "call 2"),
    (TWO, '[get(key="a"), put(key="b", value=[{"x": None}, 1])]', "'value' has another value"),
    (NONE, hermes(OBJECT), "1 calls, 0 expected"),
    (NONE, OBJECT, "1 calls, 0 expected"),
    (NONE, "weather(city='Oslo')", "1 calls, 0 expected"),
    (NONE, hermes("oops"), "not valid JSON"),
    (EMPTY, "now", "0 calls"),
    (EMPTY, "now(x=1)", "an argument 'x' too many"),
]  # fmt: skip
CASES = [{"spec": {"calls": c}, "response": t, "passed": True} for c, t in RIGHT]
CASES += [{"spec": {"calls": c}, "response": t, "passed": False} for c, t, _ in WRONG]

test_tool_call_keeps_its_promises = conformance(ToolCallVerifier, cases=CASES)


def verify(calls, text, **options):
    verifier = ToolCallVerifier(ToolCallVerifier.Config(**options))
    problem = Problem("p", "?", "checks/tool-call", {"calls": calls}, "toy")
    verifier.check(problem)
    return verifier.verify(problem, Completion.from_text(text))


@pytest.mark.parametrize(("calls", "text", "said"), WRONG, ids=lambda value: ascii(value)[:50])
def test_wrong_and_the_verdict_says_why(calls, text, said):
    verdict = verify(calls, text)
    assert verdict.passed is False
    assert verdict.score == 0.0
    assert said in verdict.detail, verdict


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("calls", [ONE, TWO, EMPTY])
def test_what_a_format_writes_it_reads_and_a_corrupted_one_fails(name, calls):
    render = tool_format(name).render
    made = [ToolCall(call["name"], call["arguments"]) for call in calls]
    text = "\n".join(map(render, made))
    assert verify(calls, text, format=name).passed
    assert verify(calls, text).passed
    verifier = ToolCallVerifier(ToolCallVerifier.Config(format=name))
    problem = Problem("p", "?", "checks/tool-call", {"calls": calls}, "toy")
    assert verifier.verify(problem, Completion.from_text(verifier.gold(problem))).passed
    other = [ToolCall(one.name, {**one.arguments, "more": "x"}) for one in made]
    assert not verify(calls, "\n".join(map(render, other)), format=name).passed
    assert not verify(calls, text.replace(calls[-1]["name"], "other")).passed


def test_a_format_that_is_named_is_the_only_one():
    assert verify(ONE, hermes(OBJECT), format="hermes").passed
    assert not verify(ONE, OBJECT, format="hermes").passed
    assert not verify(ONE, hermes(OBJECT), format="pythonic").passed


def test_calls_may_come_in_any_order():
    both = [GET_CALL, PUT_CALL]
    assert verify(TWO, hermes(*both[::-1]), ignore_order=True).passed
    assert not verify(TWO, hermes(both[0], both[0]), ignore_order=True).passed
    lists = [{"name": "f", "arguments": {"x": x}} for x in ([1, 2], [2, 1])]
    assert verify(lists, "[f(x=[2, 1]), f(x=[1, 2])]", ignore_order=True).passed
    assert not verify(lists, "[f(x=[2, 1]), f(x=[2, 1])]", ignore_order=True).passed


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"calls": None},
        {"calls": "f(x=1)"},
        {"calls": [{"arguments": {}}]},
        {"calls": ["f"]},
        {"calls": [{"name": "f", "arguments": "{"}]},
        {"calls": [{"name": "f", "arguments": [1]}]},
    ],
)
def test_check_refuses_what_cannot_be_judged(spec):
    verifier = ToolCallVerifier(ToolCallVerifier.Config())
    with pytest.raises(DataError, match="p7"):
        verifier.check(Problem("p7", "?", "checks/tool-call", spec, "toy"))


@pytest.mark.parametrize(
    "piece",
    ["<tool_call>", "<function=", "to=functions.a<|message|>", "[", "f(", "f(x=", "```json\n", "-",
     '{"name": ', "[f(x=[", "<|channel|>commentary", "a.", "<function=f><parameter=x>", "f()\n"],
)  # fmt: skip
def test_hostile_answers_cost_little(piece):
    for start in ("", "f(x="):
        text = start + piece * (99_000 // len(piece))
        began = time.process_time()
        verdict = verify(ONE, text)
        assert time.process_time() - began < 4
        assert verdict.passed is False
