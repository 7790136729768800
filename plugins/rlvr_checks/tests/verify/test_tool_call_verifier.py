"""checks/tool-call: calls of every format, right and wrong, written before the verifier."""

import json
import time

import pytest

from rlvr_checks.structured.tool_call import ToolCallVerifier
from rlvr_core.api import Completion, DataError, Problem, ToolCall
from rlvr_core.plugins.tool_formats import tool_format
from rlvr_devkit.conformance.as_tests import conformance
from tests.support.tables import table

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


SPECS = {"one": ONE, "two": TWO, "none": NONE, "empty": EMPTY}
RIGHT = table(__file__, "right", SPECS)

CODER = coder("weather", city="Oslo", days="3", metric="true")
GET_CALL = f'{{"name": "get", "arguments": {GET}}}'
PUT_CALL = f'{{"name": "put", "arguments": {PUT}}}'
WRONG = table(__file__, "wrong", SPECS)
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


@pytest.mark.parametrize("spec", table(__file__, "refused"))
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
