"""Tools that a model may call, the calls that it writes, and the protocol of a tool format.

A call that cannot be read is an error to tell the model, never a call with other arguments than it
wrote. Repair is for those who ask for it, and says what it did; what was cut off is never run.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from rlvr_core.api import Json, PluginError
from rlvr_core.api.services import describe, load_host

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
    """A call that was read.

    Attributes:
        name: Of the tool.
        arguments: By name.
        mended: What was wrong with the text and was put right; empty without ``repair``.
    """

    name: str
    arguments: Mapping[str, Json]
    mended: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BadCall:
    """Text that was meant as a call and is none; nothing of it may be run.

    Attributes:
        error: What is wrong with it, to tell the model.
    """

    error: str


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that a model may call.

    Attributes:
        name: Its name.
        description: What it does, for the model.
        parameters: JSON schema of each argument, by name.
        optional: Arguments that may be left out.
    """

    name: str
    description: str
    parameters: Mapping[str, Mapping[str, Json]]
    optional: tuple[str, ...] = ()

    @property
    def schema(self) -> dict[str, Json]:
        """As chat templates and OpenAI's interface take it."""
        properties = {name: dict(schema) for name, schema in self.parameters.items()}
        required = [name for name in properties if name not in self.optional]
        parameters = {"type": "object", "properties": properties, "required": required}
        function = {"name": self.name, "description": self.description, "parameters": parameters}
        return {"type": "function", "function": function}

    def fault(self, arguments: Mapping[str, Json]) -> str | None:
        """What is wrong with the arguments of a call, to tell the model; None if nothing is.

        Names and types are checked, as far as each schema's ``type`` says one.
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
            wanted = self.parameters[name].get("type")
            kinds = [wanted] if isinstance(wanted, str) else wanted or []
            if kinds and not any(_is(value, kind) for kind in kinds):
                said = " or ".join(kinds)
                return f"argument '{name}' of {self.name} must be {said}, not {_shown(value)}"
        return None


@runtime_checkable
class ToolFormat(Protocol):
    """One way to write calls: a component of the kind ``tool_format``, without options.

    Attributes:
        name: Its short name.
        stop: Strings that end a turn after a call, for a model that has no chat template to end
            it; empty where a call has no end mark of its own.
        role: Who a tool's answer is said by: ``tool``, or ``user`` where chat templates have no
            tool message that goes with such a call.
    """

    name: str
    stop: tuple[str, ...]
    role: Literal["tool", "user"]

    def parse(self, text: str, *, repair: bool = False) -> list[ToolCall | BadCall]:
        """The calls in what a model wrote, in order; none if it wrote none.

        What it thought, up to the last ``</think>``, is left out; see ``spoken``.

        Args:
            text: One turn of the model.
            repair: Put small slips right, and say so in ``ToolCall.mended``.
        """

    def render(self, call: ToolCall) -> str:
        """The text that ``parse`` reads as this call."""

    def describe(self, tools: Sequence[Tool]) -> str:
        """What to put into a prompt whose chat template does not describe the tools."""


def spoken(text: str) -> str:
    """The text after the thoughts; nothing if they do not end."""
    _, closed, after = text.rpartition("</think>")
    if not closed:
        return text.partition("<think>")[0]
    return after.partition("<think>")[0]


def unwritable(value: Any) -> str | None:
    """What a value holds, at whatever depth, that cannot be written as UTF-8; None if nothing."""
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


@functools.cache
def tool_format(name: str) -> ToolFormat:
    """The tool format of this name, from whichever installed plugin registered it.

    Args:
        name: Full name, or the short name while only one plugin uses it: ``core/hermes``,
            ``hermes``.

    Raises:
        ConfigError: If there is none of this name; it names the nearest ones.
        PluginError: If its plugin is missing or broken, or what it registered is no tool format.
    """
    entry = load_host().entry("tool_format", name, "")
    remedy = f"report it to the author of {entry.plugin}: see rlvr_core.api.ToolFormat"
    try:
        made = entry.load()()
    except PluginError:
        raise
    except Exception as error:
        raise PluginError(
            f"tool format '{entry.name}' cannot be constructed: {describe(error)}",
            where=str(entry.registered),
            remedy=remedy,
        ) from error
    if not isinstance(made, ToolFormat):
        raise PluginError(
            f"{entry.target} is no tool format",
            where=str(entry.registered),
            remedy=remedy,
        )
    return made
