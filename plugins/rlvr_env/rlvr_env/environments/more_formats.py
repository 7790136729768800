"""More tool formats: plain JSON, Python calls, OpenAI's, Qwen3-Coder's and gpt-oss's."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from rlvr_core.api import BadCall, Json, Tool, ToolCall, spoken
from rlvr_core.api.tools import unwritable
from rlvr_env.environments.call_json import DECODER, read_call
from rlvr_env.environments.tool_formats import listed

Calls = list[ToolCall | BadCall]
_FENCE = re.compile(r"```(?:json|python|py|tool_code)?[ \t]*\n(.*?)\n?[ \t]*```", re.DOTALL)


class Pythonic:
    """``[get(key="a"), put(key="b", value=1)]``: calls as Python writes them, values literal."""

    name = "pythonic"
    stop: tuple[str, ...] = ()
    role: Literal["tool", "user"] = "tool"

    def parse(self, text: str, *, repair: bool = False) -> Calls:
        """See ``ToolFormat.parse``.

        The turn is a list of calls or calls alone, in a fence or not; one that does not begin like
        a call is an answer.
        """
        rest = spoken(text).strip()
        if fenced := _FENCE.fullmatch(rest):
            rest = fenced[1].strip()
        rest = rest.removeprefix("<|python_start|>").removesuffix("<|python_end|>").strip()
        if not re.match(r"(?:\[\s*)?[A-Za-z_][\w.]*\(|\[\s*\]\Z", rest):
            return []
        try:
            tree = ast.parse(rest)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            return [BadCall(f"the call is not valid Python ({_line(error)}); it was not run")]
        nodes: list[ast.expr] = []
        for statement in tree.body:
            if not isinstance(statement, ast.Expr):
                return [BadCall("there is something beside calls; nothing was run")]
            value = statement.value
            nodes += value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
        return [_python_call(node) for node in nodes]

    def render(self, call: ToolCall) -> str:
        """See ``ToolFormat.render``."""
        return f"[{call.name}({', '.join(f'{k}={v!r}' for k, v in call.arguments.items())})]"

    def describe(self, tools: Sequence[Tool]) -> str:
        """See ``ToolFormat.describe``."""
        example = "[NAME(ARGUMENT=VALUE)]"
        return f"{listed(tools)}\n\nTo call one, answer with nothing but\n{example}"


class OpenAI:
    """The ``tool_calls`` of OpenAI's chat interface, whose ``arguments`` are a text of JSON.

    A turn is ``{"tool_calls": [{"id": ..., "type": "function", "function": {"name": ...,
    "arguments": "{...}"}}]}``, the list alone, one of its entries, or plain
    ``{"name": ..., "arguments": {...}}``.
    """

    name = "openai"
    stop: tuple[str, ...] = ()
    role: Literal["tool", "user"] = "tool"

    def parse(self, text: str, *, repair: bool = False) -> Calls:
        """See ``ToolFormat.parse``. JSON that is no call is an answer."""
        rest = spoken(text).strip()
        if fenced := _FENCE.fullmatch(rest):
            rest = fenced[1].strip()
        if not re.match(r'(?:\[\s*)?\{\s*"(?:tool_calls|id|type|function|name|index)"', rest):
            return []
        calls: Calls = []
        while rest:
            try:
                value, end = DECODER.raw_decode(rest)
            except (ValueError, RecursionError) as error:
                return [BadCall(f"the calls are not valid JSON ({_line(error)}); nothing was run")]
            if isinstance(value, dict) and "tool_calls" in value:
                value = value["tool_calls"]
            calls += map(_openai_call, value if isinstance(value, list) else [value])
            rest = rest[end:].lstrip()
        return calls

    def render(self, call: ToolCall) -> str:
        """See ``ToolFormat.render``."""
        text = json.dumps(dict(call.arguments), ensure_ascii=False)
        function = {"name": call.name, "arguments": text}
        entry = {"id": "call_0", "type": "function", "function": function}
        return json.dumps({"tool_calls": [entry]}, ensure_ascii=False)

    def describe(self, tools: Sequence[Tool]) -> str:
        """See ``ToolFormat.describe``."""
        example = '{"name": NAME, "arguments": {ARGUMENT: VALUE}}'
        return f"{listed(tools)}\n\nTo call one, answer with nothing but\n{example}"


_PARAMETER = re.compile(r"\s*<parameter=([^<>\n]+)>\n?(.*?)\n?</parameter>\s*", re.DOTALL)


class QwenCoder:
    """``<tool_call><function=get><parameter=key>a</parameter></function></tool_call>``.

    Values are text; one that is JSON of another type is read as such, as the templates of
    Qwen3-Coder do it.
    """

    name = "qwen3-coder"
    stop: tuple[str, ...] = ("</tool_call>",)
    role: Literal["tool", "user"] = "tool"

    def parse(self, text: str, *, repair: bool = False) -> Calls:
        """See ``ToolFormat.parse``."""
        calls: Calls = []
        rest = spoken(text)
        while "<function=" in rest:
            body, closed, rest = rest.partition("<function=")[2].partition("</function>")
            if not closed or "<function=" in body:
                calls.append(BadCall("a <function=...> has no </function>; it was not run"))
                rest = closed and body[body.index("<function=") :] + closed + rest
                continue
            name, mark, inside = body.partition(">")
            calls.append(self._call(name.strip(), inside if mark else "<"))
        return calls

    @staticmethod
    def _call(name: str, inside: str) -> ToolCall | BadCall:
        arguments: dict[str, Json] = {}
        at = 0
        while parameter := _PARAMETER.match(inside, at):
            if parameter[1] in arguments:
                return BadCall(
                    f"the parameter '{parameter[1][:40]}' is there twice; it was not run"
                )
            arguments[parameter[1]] = _value(parameter[2])
            at = parameter.end()
        if not name or inside[at:].strip():
            return BadCall("a call is <function=NAME> with <parameter=NAME> in it; it was not run")
        return ToolCall(name, arguments)

    def render(self, call: ToolCall) -> str:
        """See ``ToolFormat.render``."""
        lines = [
            f"<parameter={name}>\n{value if isinstance(value, str) else json.dumps(value)}\n"
            f"</parameter>"
            for name, value in call.arguments.items()
        ]
        inside = "\n".join([f"<function={call.name}>", *lines, "</function>"])
        return f"<tool_call>\n{inside}\n</tool_call>"

    def describe(self, tools: Sequence[Tool]) -> str:
        """See ``ToolFormat.describe``."""
        example = "<function=NAME>\n<parameter=ARGUMENT>\nVALUE\n</parameter>\n</function>"
        return f"{listed(tools)}\n\nTo call one, write\n<tool_call>\n{example}\n</tool_call>"


_HARMONY = re.compile(
    r"(?:<\|start\|>assistant)?(?:<\|channel\|>(?:commentary|analysis))?\s*to=functions\.([\w.-]+)"
    r"(?:<\|channel\|>(?:commentary|analysis))?\s*(?:<\|constrain\|>\s*)?(?:json)?\s*<\|message\|>"
)
_HARMONY_END = re.compile(r"<\|(?:call|end|return|start|channel|message)\|>")


class GptOss:
    """gpt-oss's Harmony: ``to=functions.get<|message|>{"key": "a"}<|call|>``."""

    name = "gpt-oss"
    stop: tuple[str, ...] = ("<|call|>",)
    role: Literal["tool", "user"] = "tool"

    def parse(self, text: str, *, repair: bool = False) -> Calls:
        """See ``ToolFormat.parse``.

        A call at the end of the turn needs no ``<|call|>``, which may be the token that ended it.
        """
        calls: Calls = []
        at = 0
        while begin := _HARMONY.search(text, at):
            end = _HARMONY_END.search(text, begin.end())
            at = end.end() if end else len(text)
            if end and end[0] != "<|call|>":
                calls.append(BadCall("a call has no <|call|>; it was not run"))
                continue
            body = text[begin.end() : end.start() if end else None].strip() or "{}"
            named = f'{{"name": {json.dumps(begin[1])}, "arguments": {body}}}'
            calls.append(read_call(named, "arguments", repair, cut=True))
        return calls

    def render(self, call: ToolCall) -> str:
        """See ``ToolFormat.render``."""
        text = json.dumps(dict(call.arguments), ensure_ascii=False)
        return (
            f"<|channel|>commentary to=functions.{call.name} <|constrain|>json<|message|>"
            f"{text}<|call|>"
        )

    def describe(self, tools: Sequence[Tool]) -> str:
        """See ``ToolFormat.describe``."""
        example = self.render(ToolCall("NAME", {"ARGUMENT": "VALUE"}))
        return f"{listed(tools)}\n\nTo call one, write\n{example}"


def _python_call(node: ast.expr) -> ToolCall | BadCall:
    if not isinstance(node, ast.Call):
        return BadCall("there is something beside calls; it was not run")
    name = _dotted(node.func)
    if name is None:
        return BadCall("a call is NAME(ARGUMENT=VALUE); it was not run")
    if node.args:
        return BadCall(f"the arguments of {name} need their names; it was not run")
    arguments: dict[str, Json] = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            return BadCall(f"the arguments of {name} must be written out; it was not run")
        if keyword.arg in arguments:
            return BadCall(f"argument '{keyword.arg}' of {name} is there twice; it was not run")
        try:
            arguments[keyword.arg] = _literal(keyword.value)
        except (ValueError, TypeError, RecursionError):
            return BadCall(f"argument '{keyword.arg}' of {name} is no literal; it was not run")
    if broken := unwritable(arguments):
        return BadCall(f"the arguments of {name} hold {broken}; it was not run")
    return ToolCall(name, arguments)


def _dotted(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := _dotted(node.value)):
        return f"{before}.{node.attr}"
    return None


_NAMED = {"true": True, "false": False, "null": None}


def _literal(node: ast.expr) -> Json:
    """Return the value of a literal that JSON can express, with ``true``, ``false`` and ``null``.

    Raises:
        ValueError: If it is something else.
    """
    if isinstance(node, ast.Name) and node.id in _NAMED:
        return _NAMED[node.id]
    if isinstance(node, ast.List | ast.Tuple):
        return [_literal(elt) for elt in node.elts]
    if isinstance(node, ast.Dict):
        keys = [ast.literal_eval(key) for key in node.keys if key is not None]
        if len(keys) < len(node.keys) or len(set(map(str, keys))) < len(keys):
            raise ValueError("a key is there twice")
        if not all(isinstance(key, str) for key in keys):
            raise ValueError("keys are text")
        return dict(zip(keys, map(_literal, node.values), strict=True))
    value: Any = ast.literal_eval(node)
    json.dumps(value, allow_nan=False)
    return value


def _openai_call(entry: Any) -> ToolCall | BadCall:
    function = entry.get("function", entry) if isinstance(entry, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        return BadCall('a call is an object with "name" and "arguments"; it was not run')
    other = sorted(function.keys() - {"name", "arguments", "id", "type", "index"})
    if other or "arguments" not in function:
        fault = f"a call has no '{other[0]}'" if other else 'a call has "arguments"'
        return BadCall(f"{fault}; it was not run")
    arguments = function["arguments"]
    body = arguments if isinstance(arguments, str) else json.dumps(arguments)
    named = f'{{"name": {json.dumps(function["name"])}, "arguments": {body.strip() or "{}"}}}'
    return read_call(named, "arguments", repair=False)


def _value(text: str) -> Json:
    """Return a parameter's text parsed as JSON, unless that is a string or invalid."""
    try:
        value, end = DECODER.raw_decode(text.strip())
    except (ValueError, RecursionError):
        return text
    return text if text.strip()[end:] or isinstance(value, str) else value


def _line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:100]
