"""Tool calls as models write them: read exactly, refused with a reason, mended only on request."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr_core.api import BadCall, Tool, ToolCall
from rlvr_core.plugins.tool_formats import tool_format
from tests.support.tables import table

HERMES, LLAMA, PYTHON = (tool_format(name) for name in ("hermes", "llama", "python"))
CALL = ToolCall("get", {"key": "a"})


def call(body):
    return f"<tool_call>{body}</tool_call>"


GOOD = '{"name": "get", "arguments": {"key": "a"}}'


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("no call at all", []),
        (call(GOOD), [CALL]),
        (f"I look.\n<tool_call>\n{GOOD}\n</tool_call>\nthen", [CALL]),
        (call(GOOD) + call('{"arguments": {}, "name": "b"}'), [CALL, ToolCall("b", {})]),
        (f"<think>{call(GOOD)}</think> no", []),
        (f"<think>hm {call(GOOD)}", []),
        (f"thought {call(GOOD)}</think>{call(GOOD)}", [CALL]),
        (call('{"name": "get", "arguments": {"code": "a = \\"</x>\\"\\n"}}'),
         [ToolCall("get", {"code": 'a = "</x>"\n'})]),
    ],
)  # fmt: skip
def test_hermes(text, found):
    assert HERMES.parse(text) == found


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        *table(__file__, "no calls"),
        (call('{"name": "get", "arguments": {"x": ' + "[" * 100_000 + "}}"), "too deeply"),
        (call('{"name": "get", "arguments": {"x": ' + "9" * 10_000 + "}}"), "not valid JSON"),
    ],
)
@pytest.mark.parametrize("repair", [False, True])
def test_a_call_that_is_none_is_never_run(text, reason, repair):
    if repair and reason in ("must be an object", "not valid JSON") and '"name": "get"' in text:
        return  # these are among what repair is for
    (bad,) = HERMES.parse(text, repair=repair)
    assert isinstance(bad, BadCall)
    assert reason in bad.error or "not valid JSON" in bad.error
    assert bad.error.endswith("it was not run")


@pytest.mark.parametrize("escape", ["\\ud800", "\\udfff", "\\udc00\\ud800"])
@pytest.mark.parametrize("body", table(__file__, "surrogates"))
@pytest.mark.parametrize("repair", [False, True])
def test_half_of_a_surrogate_pair_is_an_error_that_can_be_told(body, escape, repair):
    text = body.replace("HERE", escape)
    told = []
    for format, written in ((HERMES, call(text)), (LLAMA, text.replace("arguments", "parameters"))):
        (bad,) = format.parse(written, repair=repair)
        assert isinstance(bad, BadCall)
        assert bad.error.encode()
        told.append(bad.error)
    if repair or "'" not in body:
        assert "half of a surrogate pair" in told[0] or "must be an object" in told[0]


def test_whole_surrogate_pairs_are_characters():
    text = call('{"name": "get", "arguments": {"\\ud83d\\ude00": "\\ud83d\\ude00"}}')
    assert HERMES.parse(text) == [ToolCall("get", {"\U0001f600": "\U0001f600"})]


def test_an_open_call_does_not_hide_the_one_behind_it():
    found = HERMES.parse(f"<tool_call>oops {call(GOOD)}")
    assert [type(one) for one in found] == [BadCall, ToolCall]


MENDED = table(__file__, "mended")


@pytest.mark.parametrize(("body", "what"), MENDED)
def test_repair_is_for_those_who_ask_and_says_what_it_did(body, what):
    assert isinstance(HERMES.parse(call(body))[0], BadCall)
    (found,) = HERMES.parse(call(body), repair=True)
    assert (found.name, found.arguments, found.mended) == ("get", {"key": "a"}, (what,))


def test_line_breaks_inside_code_are_mended_into_line_breaks():
    body = '{"name": "run", "arguments": {"code": "a = 1\nprint(a)"}}'
    assert isinstance(HERMES.parse(call(body))[0], BadCall)
    (found,) = HERMES.parse(call(body), repair=True)
    assert found.arguments == {"code": "a = 1\nprint(a)"}
    assert found.mended == ("line breaks in a text",)


@pytest.mark.parametrize("end", range(len('{"name": "run", "arguments": {"code": "rm -r a b"}}')))
def test_truncated_code_never_runs(end):
    """Whatever is cut off, the code that is run is all of it or none."""
    whole = '{"name": "run", "arguments": {"code": "rm -r a b"}}'
    for text in (f"<tool_call>{whole[:end]}", call(whole[:end])):
        for repair in (False, True):
            for found in HERMES.parse(text, repair=repair):
                if isinstance(found, ToolCall):
                    assert found.arguments == {"code": "rm -r a b"}
    for found in LLAMA.parse(whole.replace("arguments", "parameters")[:end], repair=True):
        assert isinstance(found, BadCall) or found.arguments == {"code": "rm -r a b"}
    block = "```python\nrm()\nrun()\n```"
    for found in PYTHON.parse(block[: min(end, len(block) - 1)], repair=True):
        assert isinstance(found, BadCall)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"name": "get", "parameters": {"key": "a"}}', [CALL]),
        ('<|python_tag|>{"name": "get", "parameters": {"key": "a"}}', [CALL]),
        ('{"name": "get", "parameters": {"key": "a"}}; {"name": "b", "parameters": {}}',
         [CALL, ToolCall("b", {})]),
        ('{"status": "ok", "answer": 3}', []),
        ('{"type": "function", "name": "get", "parameters": {"key": "a"}}', [CALL]),
        ("The answer is {x}.", []),
        ('Look: {"name": "get", "parameters": {}}', []),
    ],
)  # fmt: skip
def test_llama(text, found):
    assert LLAMA.parse(text) == found


def test_llama_that_begins_a_call_and_breaks_off():
    (bad,) = LLAMA.parse('{"name": "get", "parameters": {"key":')
    assert "not valid JSON" in bad.error


@pytest.mark.parametrize(("text", "codes"), table(__file__, "blocks"))
def test_python(text, codes):
    assert PYTHON.parse(text) == [ToolCall("python", {"code": code}) for code in codes]


def test_python_that_is_not_closed():
    (bad,) = PYTHON.parse("```python\nimport os")
    assert "not closed" in bad.error


@given(
    st.text(alphabet=st.characters(codec="utf-8"), min_size=1),
    st.dictionaries(st.text(max_size=5), st.integers() | st.text() | st.none(), max_size=3),
)
def test_what_is_written_is_read_back(name, arguments):
    wanted = ToolCall(name, arguments)
    for one in (HERMES, LLAMA):
        text = one.render(wanted)
        if "think>" not in text and text.count("tool_call>") in (0, 2):
            assert one.parse(text) == [wanted]


@given(st.text(alphabet='<>/tolcalhink_`python{}[]":,\\ \n12'), st.booleans())
def test_junk_is_no_exception(text, repair):
    for one in (HERMES, LLAMA, PYTHON):
        for found in one.parse(call(text) + text, repair=repair):
            assert isinstance(found, ToolCall | BadCall)


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        *table(__file__, "arguments"),
        *(
            (broken, "the arguments of get hold half of a surrogate pair, which is no text")
            for broken in (
                {"\ud800": 1},
                {"key": "\udfff"},
                {"key": "a", "n": [{"\ud800": 1}]},
                {"key": ["a", {"b": "\ud800"}]},
            )
        ),
    ],
)
def test_arguments_are_checked_by_name_and_type(arguments, fault):
    parameters = {"key": {"type": "string"}, "n": {"type": ["integer", "null"]}}
    tool = Tool("get", "x", parameters, optional=("n",))
    assert tool.fault(arguments) == fault
    assert tool.schema["function"]["parameters"]["required"] == ["key"]
    assert json.loads(json.dumps(tool.schema)) == tool.schema
    for one in (HERMES, LLAMA):
        assert '"get"' in one.describe([tool])
