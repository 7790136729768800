"""The tools of a conversation, how each model's calls of them are read, and what they answer."""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence

from rlvr_bs4 import final
from rlvr_bs4.schema import canon, describe
from rlvr_bs4.task import REASONS, Task
from rlvr_core.api import BadCall, Json, Tool, ToolCall
from rlvr_core.plugins.tool_formats import tool_format

RUN = Tool(
    "run_python",
    "Run a Python program on the current page. It has HTML (the page), URL, QUERY, CONSTRAINTS, "
    "make_soup(parser='html.parser'), BeautifulSoup, Tag, NavigableString, Comment, re and json. "
    "Every program begins afresh; you see what it prints.",
    {"code": {"type": "string"}},
)
NAVIGATE = Tool(
    "navigate",
    "Go to the page a link leads to. The programs that follow see that page.",
    {"href": {"type": "string"}},
)
BACK = Tool("back", "Go back to the page before.", {})
METADATA = Tool(
    "get_task_metadata", "The form of the answer, the current page, and the calls left.", {}
)
LINT = Tool(
    "lint_json",
    "Check the form of a final answer before you give it.",
    {"json_string": {"type": "string"}},
)
TOOLS = {tool.name: tool for tool in (RUN, NAVIGATE, BACK, METADATA, LINT)}

_ALONE = f"""\
A block that is nothing but one call of these is carried out instead of run:
navigate("HREF"): {NAVIGATE.description}
back(): {BACK.description}
get_task_metadata(): {METADATA.description}
lint_json("JSON"): {LINT.description}

Write
```python
CODE
```"""


def told(name: str, tools: Sequence[Tool]) -> str:
    """How to call the tools, for prompts without a chat template."""
    if is_python(name):
        return f"{tools[0].description}\n{_ALONE}"
    return tool_format(name).describe(list(tools))


def is_python(name: str) -> bool:
    """Whether calls are blocks of Python, of which one that is a single call may be of any tool."""
    return tool_format(name).name == "python"


def calls(name: str, text: str, repair: bool) -> list[ToolCall | BadCall]:
    """The calls in a turn, each of a known tool with arguments that fit."""
    parsed = tool_format(name).parse(text, repair=repair)
    if is_python(name):
        parsed = [_alone(call) if isinstance(call, ToolCall) else call for call in parsed]
    return [_fitting(call) if isinstance(call, ToolCall) else call for call in parsed]


def _fitting(call: ToolCall) -> ToolCall | BadCall:
    tool = TOOLS.get(call.name)
    if tool is None:
        return BadCall(f"there is no tool {call.name[:60]!r}; there are: {', '.join(TOOLS)}")
    fault = tool.fault(call.arguments)
    if fault is None and tool is RUN and not str(call.arguments["code"]).strip():
        fault = "run_python needs a program; its code is empty"
    return call if fault is None else BadCall(fault)


def _alone(call: ToolCall) -> ToolCall | BadCall:
    """A block of Python as the call it is: of a tool if nothing else is in it."""
    code = str(call.arguments["code"])
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ToolCall(RUN.name, {"code": code})  # Python itself will say what is wrong
    nodes = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in TOOLS
    ]
    if not nodes:
        return ToolCall(RUN.name, {"code": code})
    first, name = nodes[0], nodes[0].func.id  # type: ignore[attr-defined]
    body = tree.body[0]
    if not (len(tree.body) == 1 and isinstance(body, ast.Expr) and body.value is first):
        return BadCall(f"a call of {name} stands alone in its block; nothing was run")
    return _literal(name, first)


def _literal(name: str, call: ast.Call) -> ToolCall | BadCall:
    parameters = list(TOOLS[name].parameters)
    try:
        values = [ast.literal_eval(value) for value in call.args]
        named = {
            keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords if keyword.arg
        }
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return BadCall(f"the arguments of {name} must be written out; nothing was run")
    if len(values) > len(parameters) or len(named) < len(call.keywords):
        return BadCall(f"{name} takes {len(parameters)} arguments; nothing was run")
    given = dict(zip(parameters, values, strict=False))
    if given.keys() & named.keys():
        return BadCall(f"an argument of {name} is there twice; nothing was run")
    return ToolCall(name, {**given, **named})


def constraints(task: Task) -> Json:
    """Return the content of CONSTRAINTS, equal for solvable and unsolvable tasks."""
    return {"output_schema": task.schema, "allowed_limit_reasons": list(REASONS)}


def metadata(task: Task, url: str, left: int) -> str:
    """Answer ``get_task_metadata``, without a hint at the truth or whether there is one."""
    known = {"question": task.question, "url": url, "calls_left": left, **constraints(task)}
    return json.dumps(known, ensure_ascii=False)


def lint(task: Task, text: str) -> str:
    """Answer ``lint_json``, about the form alone."""
    answer = final.parse(text)
    if isinstance(answer, str):
        return f"not a final answer: {answer}"
    if answer.abstains:
        known = answer.reason in REASONS
        return "well-formed" if known else f"the reason must be one of: {', '.join(REASONS)}"
    if canon(task.schema, answer.answer) is None:
        return f"the answer must be {describe(task.schema)}"
    return "well-formed"
