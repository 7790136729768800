"""How models write tool calls, and how they are read: for environments of any plugin.

A call that cannot be read is an error to tell the model, never a call with other arguments than it
wrote. Mending is for those who ask for it, and says what it did; what was cut off is never run.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from rlvr_core.api.types import Json

FormatName = Literal["hermes", "llama", "python"]

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
        if _is_broken(dict(arguments)):
            return f"the arguments of {self.name} hold {_HALF}"
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


class ToolFormat(Protocol):
    """One way to write calls."""

    name: FormatName

    def parse(self, text: str, *, repair: bool = False) -> list[ToolCall | BadCall]:
        """The calls in what a model wrote, in order; none if it wrote none.

        What it thought, up to the last ``</think>``, is left out.

        Args:
            text: One turn of the model.
            repair: Put small slips in the JSON right, and say so in ``ToolCall.mended``.
        """

    def render(self, call: ToolCall) -> str:
        """The text that ``parse`` reads as this call."""

    def describe(self, tools: Sequence[Tool]) -> str:
        """What to put into a prompt that no chat template tells the tools to."""


def tool_format(name: FormatName) -> ToolFormat:
    """``hermes``: JSON in ``<tool_call>`` tags, as Hermes and Qwen write it. ``llama``: a turn that
    is JSON, as Llama 3 writes it. ``python``: fenced code, a call of the tool ``python``.
    """  # noqa: D205
    formats: dict[str, ToolFormat] = {one.name: one for one in (Hermes(), Llama(), Python())}
    return formats[name]


class Hermes:
    """``<tool_call>{"name": "get", "arguments": {"key": "a"}}</tool_call>``, once or more."""

    name: FormatName = "hermes"

    def parse(self, text: str, *, repair: bool = False) -> list[ToolCall | BadCall]:
        """See ``ToolFormat.parse``."""
        calls: list[ToolCall | BadCall] = []
        rest = spoken(text)
        while "<tool_call>" in rest:
            body, closed, rest = rest.partition("<tool_call>")[2].partition("</tool_call>")
            if not closed or "<tool_call>" in body:
                calls.append(BadCall("a <tool_call> has no </tool_call>; it was not run"))
                rest = closed and body[body.index("<tool_call>") :] + closed + rest
                continue
            calls.append(_json_call(body, "arguments", repair))
        return calls

    def render(self, call: ToolCall) -> str:
        """See ``ToolFormat.render``."""
        body = {"name": call.name, "arguments": dict(call.arguments)}
        return f"<tool_call>\n{json.dumps(body, ensure_ascii=False)}\n</tool_call>"

    def describe(self, tools: Sequence[Tool]) -> str:
        """See ``ToolFormat.describe``."""
        example = '<tool_call>\n{"name": NAME, "arguments": {ARGUMENT: VALUE}}\n</tool_call>'
        return f"{_listed(tools)}\n\nTo call one, write\n{example}"


class Llama:
    """A turn that is ``{"name": "get", "parameters": {"key": "a"}}``; ``;`` between several."""

    name: FormatName = "llama"

    def parse(self, text: str, *, repair: bool = False) -> list[ToolCall | BadCall]:
        """See ``ToolFormat.parse``.

        JSON without a ``name`` is no call but an answer.
        """
        rest = spoken(text).strip().removeprefix("<|python_tag|>").strip()
        if not re.match(r'\{\s*["\']?(name|parameters|type)\b', rest):
            return []
        calls: list[ToolCall | BadCall] = []
        while rest:
            try:
                _, end = _DECODER.raw_decode(rest)
            except (ValueError, RecursionError):
                end = len(rest)
            calls.append(_json_call(rest[:end], "parameters", repair, cut=True))
            rest = rest[end:].lstrip().removeprefix(";").lstrip()
        return calls

    def render(self, call: ToolCall) -> str:
        """See ``ToolFormat.render``."""
        body = {"name": call.name, "parameters": dict(call.arguments)}
        return json.dumps(body, ensure_ascii=False)

    def describe(self, tools: Sequence[Tool]) -> str:
        """See ``ToolFormat.describe``."""
        example = '{"name": NAME, "parameters": {ARGUMENT: VALUE}}'
        return f"{_listed(tools)}\n\nTo call one, answer with nothing but\n{example}"


class Python:
    """Code between a line with three backticks and ``python``, and a line with three backticks."""

    name: FormatName = "python"

    def parse(self, text: str, *, repair: bool = False) -> list[ToolCall | BadCall]:
        """See ``ToolFormat.parse``. There is nothing to repair: code is run as it is."""
        calls: list[ToolCall | BadCall] = []
        code: list[str] | None = None
        foreign = False
        for line in spoken(text).split("\n"):
            fence = line.strip()
            if code is not None:
                if fence == "```":
                    calls.append(ToolCall("python", {"code": "\n".join(code)}))
                    code = None
                else:
                    code.append(line)
            elif foreign:
                foreign = fence != "```"
            elif fence.lower() in ("```python", "```py"):
                code = []
            else:
                foreign = fence.startswith("```") and not fence.endswith("```", 3)
        if code is not None:
            calls.append(BadCall("a code block is not closed with ```; it was not run"))
        return calls

    def render(self, call: ToolCall) -> str:
        """See ``ToolFormat.render``."""
        return f"```python\n{call.arguments['code']}\n```"

    def describe(self, tools: Sequence[Tool]) -> str:
        """See ``ToolFormat.describe``."""
        told = "\n".join(tool.description for tool in tools)
        return f"{told}\n\nTo run code, write\n```python\nCODE\n```"


def spoken(text: str) -> str:
    """The text after the thoughts; nothing if they do not end."""
    _, closed, after = text.rpartition("</think>")
    if not closed:
        return text.partition("<think>")[0]
    return after.partition("<think>")[0]


def _listed(tools: Sequence[Tool]) -> str:
    lines = [json.dumps(tool.schema["function"], ensure_ascii=False) for tool in tools]
    return "\n".join(["You may call these functions:", *lines])


def _json_call(text: str, key: str, repair: bool, *, cut: bool = False) -> ToolCall | BadCall:
    """The call that a text is.

    Args:
        text: JSON.
        key: Where the arguments are.
        repair: See ``ToolFormat.parse``.
        cut: Whether the end of the text may be missing, as nothing says where it is.
    """
    mended: list[str] = []
    try:
        found = _decoded(text.strip(), repair, mended, cut)
        if _is_broken(found):
            raise ValueError(f"it holds {_HALF}")
    except (ValueError, RecursionError) as error:
        return BadCall(f"the call is not valid JSON ({_reason(error)}); it was not run")
    if not isinstance(found, dict) or not isinstance(found.get("name"), str):
        return BadCall(f'a call is an object with "name" and "{key}"; it was not run')
    other = sorted(found.keys() - {"name", key})
    arguments = found.get(key)
    if repair and key not in found:
        theirs = [name for name in ("arguments", "parameters") if name in found]
        if len(theirs) == 1:
            arguments, other = found[theirs[0]], sorted(found.keys() - {"name", theirs[0]})
            mended.append(f"'{theirs[0]}' for '{key}'")
    if repair and isinstance(arguments, str):
        try:
            arguments = _decoded(arguments, False, mended, cut)
            if _is_broken(arguments):
                raise ValueError(f"it holds {_HALF}")
        except (ValueError, RecursionError) as error:
            return BadCall(f'"{key}" is not valid JSON ({_reason(error)}); it was not run')
        mended.append("arguments written as a text")
    if not isinstance(arguments, dict):
        return BadCall(f'"{key}" of the call must be an object; it was not run')
    if other:
        return BadCall(f"a call has no '{other[0]}'; it was not run")
    return ToolCall(found["name"], arguments, tuple(mended))


def _decoded(text: str, repair: bool, mended: list[str], cut: bool) -> Any:
    """The JSON of a text, mended on request as long as nothing need be guessed.

    Raises:
        ValueError: If it is none.
        RecursionError: If it is nested too deeply.
    """
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        if not repair:
            raise
        first = error
    fence = re.fullmatch(r"```(?:json)?\s*(.*?)\s*```", text, re.DOTALL)
    attempts = [("a code fence", fence[1])] if fence else []
    text = fence[1] if fence else text
    closed = None if cut else _closed(text)
    if closed is not None:
        attempts.append(("brackets not closed", closed))
    attempts.append(("a trailing comma", re.sub(r",(\s*[}\]])(?=[\s}\]]*$)", r"\1", text)))
    for what, other in attempts:
        try:
            found = json.loads(other, object_pairs_hook=_once, parse_constant=_refuse)
        except ValueError:
            continue
        mended.append(what)
        return found
    try:
        found = json.loads(text, strict=False, object_pairs_hook=_once, parse_constant=_refuse)
    except ValueError:
        found = _literal(text, first)
        mended.append("Python in place of JSON")
    else:
        mended.append("line breaks in a text")
    return found


def _literal(text: str, otherwise: ValueError) -> Any:
    """A Python literal that JSON could have said as well.

    Raises:
        ValueError: If it is none.
    """
    try:
        tree = ast.parse(text, mode="eval")
        for node in ast.walk(tree):
            keys = [ast.dump(key) for key in getattr(node, "keys", ()) if key is not None]
            if len(set(keys)) < len(keys):
                raise ValueError("a key is there twice")
        found = ast.literal_eval(tree)
        return json.loads(json.dumps(found, allow_nan=False))
    except (ValueError, SyntaxError, TypeError, MemoryError) as error:
        raise otherwise from error


def _closed(text: str) -> str | None:
    """The text with the brackets closed that are open at its end; None if none are.

    Where something may be missing, at the end of a text or behind an opening bracket, comma or
    colon, it is not closed.
    """
    waiting: list[str] = []
    inside = escaped = False
    for sign in text:
        if inside:
            inside = escaped or sign != '"'
            escaped = sign == "\\" and not escaped
        elif sign == '"':
            inside = True
        elif sign in "{[":
            waiting.append("}" if sign == "{" else "]")
        elif sign in "}]" and (not waiting or waiting.pop() != sign):
            return None
    if inside or not waiting or text.rstrip()[-1] in "{[,:":
        return None
    return text + "".join(reversed(waiting))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is there twice")
    return found


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


_HALF = "half of a surrogate pair, which is no text"
_DECODER = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_refuse)


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at character {error.pos + 1}"
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


def _is_broken(value: Any) -> bool:
    """Whether a text in it, of whatever depth, cannot be written as UTF-8."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            try:
                one.encode()
            except UnicodeEncodeError:
                return True
        elif isinstance(one, dict):
            waiting += [*one, *one.values()]
        elif isinstance(one, list):
            waiting += one
    return False


def _is(value: Json, kind: str) -> bool:
    kinds = _TYPES.get(kind, (object,))
    if isinstance(value, bool) and kind != "boolean":
        return object in kinds
    return isinstance(value, kinds)


def _shown(value: Json) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
