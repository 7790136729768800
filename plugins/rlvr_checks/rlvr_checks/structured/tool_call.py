"""The verifier ``checks/tool-call``: the answer makes the expected tool calls."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from rlvr_checks.structured.values import canonical, same
from rlvr_core.api import (
    BadCall,
    Completion,
    ComponentConfig,
    DataError,
    Json,
    Names,
    Problem,
    ToolCall,
    Verdict,
    spoken,
)
from rlvr_core.plugins.tool_formats import tool_format

MARKS = (
    ("<function=", "qwen3-coder"),
    ("<tool_call>", "hermes"),
    ("to=functions.", "gpt-oss"),
)
"""Texts that occur only in calls of one format."""
UNMARKED = ("openai", "llama", "pythonic")
"""Formats in which the whole turn is the calls, tried in this order."""
_FENCE = re.compile(r"```(?:json|python|py|tool_code)?[ \t]*\n(.*?)\n[ \t]*```", re.DOTALL)
_ARGUMENTS = re.compile(r"[\"'](?:arguments|parameters|tool_calls)[\"']\s*:")
MAX_CHARACTERS = 100_000


class ToolCallVerifier:
    """Reads the calls of an answer and compares them with the expected ones, by value.

    The order of arguments is no matter, nor is how a value is written: ``1.0`` is ``1``. A call
    that cannot be read, one too many and one too few are wrong.
    """

    class Config(ComponentConfig):
        """Options of ``checks/tool-call``."""

        calls: Annotated[str, Field(min_length=1)] = "calls"
        """Field of the spec with the expected calls: ``[{"name": ..., "arguments": {...}}]``, or as
        OpenAI's interface has them. An empty list: no call may be made."""
        format: Annotated[str, Names("tool_format")] | None = None
        """The tool format that calls must be written in; null for any that comes with rlvr."""
        ignore_order: bool = False
        """Whether several calls may come in any order."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._format = None if config.format is None else tool_format(config.format)

    def check(self, problem: Problem) -> None:
        """Refuse a problem whose expected calls cannot be read.

        Raises:
            DataError: If the field is missing or no list of calls.
        """
        self._expected(problem)

    def gold(self, problem: Problem) -> str:
        """Return the expected calls, as a model would write them."""
        expected = self._expected(problem)
        if not expected:
            return "No tool is needed."
        if self._format is not None:
            return "\n".join(map(self._format.render, expected))
        render = tool_format("hermes").render
        return "\n".join(map(render, expected))

    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        """Return score 1 for exactly the expected calls, else 0."""
        expected = self._expected(problem)
        if len(completion.text) > MAX_CHARACTERS:
            return Verdict(0.0, passed=False, detail=f"longer than {MAX_CHARACTERS:,} characters")
        parsed = self._parse(completion.text, calls_expected=bool(expected))
        fault = _fault(expected, parsed, ignore_order=self._config.ignore_order)
        calls = [_plain(call) for call in parsed if isinstance(call, ToolCall)]
        return Verdict(
            float(fault is None),
            passed=fault is None,
            extracted=json.dumps(calls, ensure_ascii=False) if calls else None,
            detail=fault or "",
        )

    def _parse(self, text: str, *, calls_expected: bool) -> list[ToolCall | BadCall]:
        if self._format is not None:
            return self._format.parse(text)
        text = text.replace("\r\n", "\n")
        answer = spoken(text)
        for mark, name in MARKS:
            # gpt-oss reasons in a separate channel
            if mark in (text if name == "gpt-oss" else answer):
                return tool_format(name).parse(text)
        whole = self._unmarked(answer, calls_expected=calls_expected)
        if whole and not isinstance(whole[0], BadCall):
            return whole
        blocks = [
            self._unmarked(block.strip(), calls_expected=False) for block in _FENCE.findall(answer)
        ]
        return [call for calls in blocks for call in calls] or whole

    @staticmethod
    def _unmarked(turn: str, *, calls_expected: bool) -> list[ToolCall | BadCall]:
        """Parse a turn in the first format that can read it without an invalid call."""
        bad: list[ToolCall | BadCall] = []
        for name in UNMARKED:
            calls = tool_format(name).parse(turn)
            if calls and not any(isinstance(call, BadCall) for call in calls):
                return calls
            # any Python, and any object with a name, looks like an invalid call
            if calls_expected or (name != "pythonic" and _ARGUMENTS.search(turn)):
                bad = bad or calls
        return bad

    def _expected(self, problem: Problem) -> list[ToolCall]:
        field = self._config.calls
        calls = problem.spec.get(field)
        if not isinstance(calls, list | tuple):
            raise DataError(
                f"{problem.id}: checks/tool-call needs a list of calls in field '{field}'; it is "
                f"{calls!r:.80}",
                remedy=f"fields there are: {', '.join(map(str, problem.spec)) or 'none'}",
            )
        return [_reference(call, f"{problem.id}: {field}[{i}]") for i, call in enumerate(calls)]


def _reference(call: Json, where: str) -> ToolCall:
    function = call.get("function", call) if isinstance(call, Mapping) else None
    if isinstance(function, Mapping) and isinstance(function.get("name"), str):
        arguments = function.get("arguments", {})
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments)
            except ValueError as error:
                raise DataError(f"{where}: its arguments are not JSON: {error}") from error
        if isinstance(arguments, Mapping):
            return ToolCall(function["name"], arguments)
    raise DataError(
        f'{where}: a call is an object with "name" and "arguments", not {call!r:.80}',
    )


def _fault(
    expected: Sequence[ToolCall], parsed: Sequence[ToolCall | BadCall], *, ignore_order: bool
) -> str | None:
    """Return why the calls of an answer are not the expected ones; None if they are."""
    actual: list[ToolCall] = []
    for number, call in enumerate(parsed, 1):
        if isinstance(call, BadCall):
            return f"call {number}: {call.error}"
        actual.append(call)
    if len(actual) != len(expected):
        return f"{len(actual)} calls, {len(expected)} expected"
    if ignore_order:
        actual = sorted(actual, key=_key)
        expected = sorted(expected, key=_key)
    for number, (right, call) in enumerate(zip(expected, actual, strict=True), 1):
        if call.name != right.name:
            return f"call {number} is of {call.name[:80]!r}, not of {right.name!r}"
        for name in sorted(right.arguments.keys() | call.arguments.keys()):
            if name not in call.arguments:
                return f"call {number} of {right.name} lacks the argument {name!r}"
            if name not in right.arguments:
                return f"call {number} of {right.name} has an argument {name[:80]!r} too many"
            if not same(right.arguments[name], call.arguments[name]):
                return f"call {number} of {right.name}: the argument {name!r} has another value"
    return None


def _key(call: ToolCall) -> str:
    return f"{call.name} {canonical(dict(call.arguments), ordered=True)}"


def _plain(call: ToolCall) -> dict[str, Any]:
    return {"name": call.name, "arguments": dict(call.arguments)}
