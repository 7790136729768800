"""Tools that a model may call, the calls that it writes, and the protocol of tool formats.

A call that cannot be parsed is reported to the model as an error, and never run with other
arguments than the model wrote. Repair is optional and reports what it changed; truncated calls are
never run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from rlvr_core.api.problems import Json

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A parsed call.

    Attributes:
        name: Name of the tool.
        arguments: Arguments by name.
        mended: The mistakes that were repaired; empty without ``repair``.
    """

    name: str
    arguments: Mapping[str, Json]
    mended: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BadCall:
    """Text that was meant as a call but is invalid; no part of it may be run.

    Attributes:
        error: The mistake, as reported to the model.
    """

    error: str


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that a model may call.

    Attributes:
        name: Its name.
        description: Description for the model.
        parameters: JSON schema of each argument, by name.
        optional: Names of optional arguments.
    """

    name: str
    description: str
    parameters: Mapping[str, Mapping[str, Json]]
    optional: tuple[str, ...] = ()

    @property
    def schema(self) -> dict[str, Json]:
        """Return the schema as chat templates and OpenAI's API take it."""
        properties = {name: dict(schema) for name, schema in self.parameters.items()}
        required = [name for name in properties if name not in self.optional]
        parameters = {"type": "object", "properties": properties, "required": required}
        function = {"name": self.name, "description": self.description, "parameters": parameters}
        return {"type": "function", "function": function}

    def fault(self, arguments: Mapping[str, Json]) -> str | None:
        """Describe what is wrong with a call's arguments, for the model; None if they are valid.

        Names are checked, and types where a schema has a ``type``.
        """
        known = ", ".join(self.parameters) or "none"
        broken = unwritable(dict(arguments))
        if broken:
            return f"the arguments of {self.name} hold {broken}"
        for name in self.parameters:
            if name not in arguments and name not in self.optional:
                return f"{self.name} needs the argument '{name}'"
        for name, value in arguments.items():
            if name not in self.parameters:
                return f"{self.name} has no argument '{name}'; it has: {known}"
            expected_type = self.parameters[name].get("type")
            kinds = [expected_type] if isinstance(expected_type, str) else expected_type or []
            if kinds and not any(_is(value, kind) for kind in kinds):
                allowed = " or ".join(kinds)
                return f"argument '{name}' of {self.name} must be {allowed}, not {_shown(value)}"
        return None


@runtime_checkable
class ToolFormat(Protocol):
    """A syntax for calls: a component of the kind ``tool_format``, without options.

    Attributes:
        name: Its short name.
        stop: Strings that end a turn after a call, for models without a chat template; empty if a
            call has no end mark.
        role: Role of a tool's answer: ``tool``, or ``user`` if chat templates have no tool message
            for such calls.
    """

    name: str
    stop: tuple[str, ...]
    role: Literal["tool", "user"]

    def parse(self, text: str, *, repair: bool = False) -> list[ToolCall | BadCall]:
        """Parse the calls in a turn of the model, in order; empty if there are none.

        Reasoning, up to the last ``</think>``, is ignored; see ``spoken``.

        Args:
            text: One turn of the model.
            repair: Whether to repair small mistakes and report them in ``ToolCall.mended``.
        """

    def render(self, call: ToolCall) -> str:
        """Return text that ``parse`` reads as this call."""

    def describe(self, tools: Sequence[Tool]) -> str:
        """Return a description of the tools for prompts whose chat template has none."""


_STRING_OR_MARK = re.compile(r'(?<![^\s\[{(:,=])"(?:[^"\\\n]|\\.)*+"|(</?think>)')


def spoken(text: str) -> str:
    """Return the text after the reasoning; empty if the reasoning does not end.

    ``<think>`` and ``</think>`` between double quotes, as in the string of a tool call, are text.
    """
    if "think>" not in text:
        return text
    marks = [mark for mark in _STRING_OR_MARK.finditer(text) if mark[1]]
    start = max((mark.end() for mark in marks if mark[1] == "</think>"), default=0)
    opened = (mark.start() for mark in marks if mark[1] == "<think>" and mark.end() > start)
    return text[start : next(opened, len(text))]


def unwritable(value: Any) -> str | None:
    """Describe content of a value, at any depth, that UTF-8 cannot encode; else None."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            try:
                one.encode()
            except UnicodeEncodeError:
                return "half of a surrogate pair, which is no text"
        elif isinstance(one, dict):
            waiting += [*one, *one.values()]
        elif isinstance(one, list):
            waiting += one
    return None


def _is(value: Json, kind: str) -> bool:
    kinds = _TYPES.get(kind, (object,))
    if isinstance(value, bool) and kind != "boolean":
        return object in kinds
    return isinstance(value, kinds)


def _shown(value: Json) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
