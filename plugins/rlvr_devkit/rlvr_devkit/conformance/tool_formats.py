"""Promises of tool formats."""

from __future__ import annotations

from collections.abc import Sequence

from rlvr_core.api import BadCall, ToolCall
from rlvr_devkit.conformance.junk import junk
from rlvr_devkit.conformance.subject import Check, Subject, demand

_CALLS = (
    ToolCall("get", {"key": "a"}),
    ToolCall("add", {"a": 3, "b": -2.5}),
    ToolCall("note", {"text": 'He said "no";\nthen } and {, é and \\n.'}),
    ToolCall("set", {"on": True, "items": [1, "two", None], "more": {"deep": [{}]}}),
    ToolCall("now", {}),
)
_PLAIN = ("", "The answer is 7.", "I could get the key, or add 3 and 4.", "f(x) = {x}")


def _calls(subject: Subject) -> Sequence[ToolCall]:
    return subject.example.calls or _CALLS


def reads_what_it_writes(subject: Subject) -> None:
    """Check that ``parse`` reads what ``render`` writes, alone and after other text."""
    tool_format = subject.build()
    for call in _calls(subject):
        text = tool_format.render(call)
        demand(isinstance(text, str), f"render gives a {type(text).__name__}")
        for turn in (text, f"<think>I need a tool.</think>\n{text}"):
            parsed = tool_format.parse(turn)
            demand(parsed == [call], f"{call} is written as {text!r} and read as {parsed}")


def plain_text_has_no_calls(subject: Subject) -> None:
    """Check that neither an answer nor a call within reasoning is parsed as a call."""
    tool_format = subject.build()
    thought = f"<think>\n{tool_format.render(_calls(subject)[0])}\n</think>\nThe answer is 7."
    for text in (*_PLAIN, thought):
        parsed = tool_format.parse(text)
        demand(parsed == [], f"{text!r} is read as {parsed}: there is no call in it")


def stands_junk(subject: Subject) -> None:
    """Check that ``parse`` never raises, and returns only calls and bad calls."""
    tool_format = subject.build()
    right = tool_format.render(_calls(subject)[0])
    for what, text in junk("Use the tool.", right, right[::-1]).items():
        try:
            parsed = tool_format.parse(text)
        except Exception as error:
            what = f"on {what} parse raises {type(error).__name__}: {str(error)[:200]}"
            raise AssertionError(what) from error
        odd = [call for call in parsed if not isinstance(call, ToolCall | BadCall)]
        demand(not odd, f"on {what} parse gives {odd}")


TOOL_FORMAT_CHECKS: tuple[Check, ...] = (
    Check("round-trip", "parse reads what render writes", reads_what_it_writes),
    Check("plain", "plain text and reasoning hold no calls", plain_text_has_no_calls),
    Check("junk", "no turn makes it raise", stands_junk),
)
