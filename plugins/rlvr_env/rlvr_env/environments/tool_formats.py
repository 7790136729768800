"""The built-in tool formats: of Hermes and Qwen, of Llama 3, and of models that write code."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Literal

from rlvr_core.api import BadCall, Tool, ToolCall, spoken
from rlvr_env.environments.call_json import DECODER, read_call


class Hermes:
    """``<tool_call>{"name": "get", "arguments": {"key": "a"}}</tool_call>``, one or several."""

    name = "hermes"
    stop: tuple[str, ...] = ("</tool_call>",)
    role: Literal["tool", "user"] = "tool"

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
            calls.append(read_call(body, "arguments", repair))
        return calls

    def render(self, call: ToolCall) -> str:
        """See ``ToolFormat.render``."""
        body = {"name": call.name, "arguments": dict(call.arguments)}
        return f"<tool_call>\n{json.dumps(body, ensure_ascii=False)}\n</tool_call>"

    def describe(self, tools: Sequence[Tool]) -> str:
        """See ``ToolFormat.describe``."""
        example = '<tool_call>\n{"name": NAME, "arguments": {ARGUMENT: VALUE}}\n</tool_call>'
        return f"{listed(tools)}\n\nTo call one, write\n{example}"


class Llama:
    """A turn of the form ``{"name": "get", "parameters": {"key": "a"}}``; ``;`` separates calls."""

    name = "llama"
    stop: tuple[str, ...] = ()
    role: Literal["tool", "user"] = "tool"

    def parse(self, text: str, *, repair: bool = False) -> list[ToolCall | BadCall]:
        """See ``ToolFormat.parse``.

        JSON without a ``name`` is an answer, not a call.
        """
        rest = spoken(text).strip().removeprefix("<|python_tag|>").strip()
        if not re.match(r'\{\s*["\']?(name|parameters|type)\b', rest):
            return []
        calls: list[ToolCall | BadCall] = []
        while rest:
            try:
                _, end = DECODER.raw_decode(rest)
            except (ValueError, RecursionError):
                end = len(rest)
            calls.append(read_call(rest[:end], "parameters", repair, cut=True))
            rest = rest[end:].lstrip().removeprefix(";").lstrip()
        return calls

    def render(self, call: ToolCall) -> str:
        """See ``ToolFormat.render``."""
        body = {"name": call.name, "parameters": dict(call.arguments)}
        return json.dumps(body, ensure_ascii=False)

    def describe(self, tools: Sequence[Tool]) -> str:
        """See ``ToolFormat.describe``."""
        example = '{"name": NAME, "parameters": {ARGUMENT: VALUE}}'
        return f"{listed(tools)}\n\nTo call one, answer with nothing but\n{example}"


class Python:
    """Code between a line with three backticks and ``python``, and a line with three backticks."""

    name = "python"
    stop: tuple[str, ...] = ("\n```\n",)
    role: Literal["tool", "user"] = "user"

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
        descriptions = "\n".join(tool.description for tool in tools)
        return f"{descriptions}\n\nTo run code, write\n```python\nCODE\n```"


def listed(tools: Sequence[Tool]) -> str:
    """Return the schemas of tools, one per line, for prompts without a template for them."""
    lines = [json.dumps(tool.schema["function"], ensure_ascii=False) for tool in tools]
    return "\n".join(["You may call these functions:", *lines])
