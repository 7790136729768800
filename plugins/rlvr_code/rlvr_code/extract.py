"""The program in a response: out of fences, without thoughts, cut after what was asked."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rlvr_code import source

_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[ \t]*([\w+#.-]*)[^\n`]*$", re.MULTILINE)
_ANSWER = re.compile(
    r"^[ \t]*<answer>[ \t]*\n((?:(?!^[ \t]*</answer>).*\n)*?)[ \t]*</answer>", re.MULTILINE
)
_BEGUN = re.compile(r"^(?:(?:async[ \t]+)?def|class)[ \t]+(\w+)|^(\w+)[ \t]*=", re.MULTILINE)
_LANGUAGES = ("", "python", "python3", "py", "py3", "pycon", "ipython", "cpython")
_ENDS = ("[DONE]", "</code>", "<|endoftext|>", "<|im_end|>")
_THOUGHT = re.compile(r"<(/?)think>")
_QUOTES = "\"'`"
_TRIES = 20
"""Beginnings of a text that are tried."""


@dataclass(frozen=True, slots=True)
class Block:
    """Fenced code of a response.

    Attributes:
        code: What stands between the fences.
        closed: Whether there is a closing fence.
        named: Whether the opening one says that it is Python.
    """

    code: str
    closed: bool
    named: bool


def program(
    text: str,
    *,
    wanted: Collection[str] = (),
    prompt: str = "",
    cut: bool = True,
    trim: bool = True,
) -> str:
    """The program that a response consists of or contains.

    Fenced code goes first: the last block that defines what is wanted, together with blocks before
    it that define what it uses. Without a fence the text itself is the program, or the
    continuation of the prompt.

    Args:
        text: The response.
        wanted: Names the program is to define; none for one that is run as it is.
        prompt: Code that the response may continue, or repeat.
        cut: Whether to end a program without fence after the definitions wanted and those they
            need, wherever these stand.
        trim: Whether to leave out the end of a program that is in no closed fence if only what is
            before it parses. What stands in a closed fence is taken as it is.

    Raises:
        OverBudgetError: If that takes more work than a response is worth.
    """
    before = source.budget.set(source.Budget())
    try:
        return _program(text, wanted, prompt, cut, trim)
    finally:
        source.budget.reset(before)


def _program(text: str, wanted: Collection[str], prompt: str, cut: bool, trim: bool) -> str:
    text = _closed_early(_said(text), wanted, prompt)
    blocks = _blocks(text)
    if blocks:
        return _from_blocks(blocks, wanted, prompt, trim)
    for end in _ENDS:
        text = text.partition(end)[0]
    text = text.removeprefix("[BEGIN]")
    whole = _continued(text, wanted, prompt, trim)
    whole = _parseable(whole, wanted) if trim else whole
    return _cut(whole, wanted) if cut and wanted else whole


def _said(text: str) -> str:
    """The text without thoughts; the opening tag may stand in the prompt."""
    text = _without_thoughts(text.removeprefix("\ufeff").replace("\r\n", "\n"))
    answers = _ANSWER.findall(text)
    return str(answers[-1]) if answers else text


def _without_thoughts(text: str) -> str:
    """The text after the last thought that was closed, up to one that is not.

    A tag in a string or comment of a program does not count, and a closing tag closes only what
    is open.
    """
    begins, is_open, opened = 0, True, len(text)
    for tag in _THOUGHT.finditer(text):
        if _in_code(text, tag):
            continue
        if not tag[1]:
            opened, is_open = (opened if opened < len(text) else tag.start()), True
        elif is_open:
            begins, is_open, opened = tag.end(), False, len(text)
    return text[begins:opened]


def _in_code(text: str, tag: re.Match[str]) -> bool:
    """Whether a tag is quoted in its line, or stands in a comment."""
    before = text[text.rfind("\n", 0, tag.start()) + 1 : tag.start()]
    before = before.replace("```", "")  # a fence may end where a thought does
    after = text[tag.end() : tag.end() + 1]
    quoted = before[-1:] in _QUOTES or (after and after in _QUOTES)
    in_string = any(before.count(mark) % 2 for mark in '"`')
    return bool(before.strip() and (quoted or in_string or before.lstrip().startswith("#")))


def _blocks(text: str) -> list[Block]:
    """Contents of fenced code; a fence that is not closed runs to the end."""
    blocks: list[Block] = []
    place = 0
    while opening := _FENCE.search(text, place):
        mark, language = opening[1], opening[2].lower()
        closing = re.compile(rf"^[ \t]*{re.escape(mark)}[`~]*[ \t]*$", re.MULTILINE)
        end = closing.search(text, opening.end())
        body = text[opening.end() + 1 : end.start() if end else len(text)]
        place = end.end() if end else len(text)
        if margin := opening[0].index(mark):  # within a list; its lines may be as far in
            body = re.sub(rf"^[ \t]{{1,{margin}}}", "", body, flags=re.MULTILINE)
        if language in _LANGUAGES:
            code, _, _ = body.partition("[DONE]")
            blocks.append(Block(code, bool(end), bool(language)))
    if not blocks and "```" in text and (inline := re.search(r"```(?:python|py)?(.+?)```", text)):
        blocks.append(Block(inline[1], True, True))  # a fence within one line
    return blocks


def _closed_early(text: str, wanted: Collection[str], prompt: str) -> str:
    """The text before a fence that only closes, its opening one being in the prompt."""
    fences = list(_FENCE.finditer(text))
    if len(fences) % 2 == 0 or fences[0][2] or not text[: fences[0].start()].strip():
        return text
    before = text[: fences[0].start()]
    whole = _continued(before, wanted, prompt, trim=False)
    return before if wanted and set(wanted) <= source.defined(whole) else text


def _from_blocks(blocks: Sequence[Block], wanted: Collection[str], prompt: str, trim: bool) -> str:
    if not wanted:
        return _whole_program(blocks, trim)
    codes = [block.code for block in blocks]
    for place in range(len(blocks) - 1, -1, -1):
        loose = trim and not blocks[place].closed
        block = _parseable(codes[place], wanted) if loose else codes[place]
        if set(wanted) <= source.defined(block):
            whole = _continued(block, wanted, prompt, loose)
            return "\n".join([*_needed(block, codes[:place]), whole])
        if not loose and source.parse(block) is None and _seems_to_define(block, wanted):
            return block  # the answer, and it does not compile
    together = "\n".join(codes)
    if set(wanted) <= source.defined(together):
        return together
    return _continued(codes[0], wanted, prompt, trim and not blocks[0].closed)


def _whole_program(blocks: Sequence[Block], trim: bool) -> str:
    """The last block that is Python by its fence; where none is, the last that parses."""
    named = [block for block in blocks if block.named and block.code.strip()]
    if named:
        last = named[-1]
        code = _parseable(last.code, ()) if trim and not last.closed else last.code
        return "\n".join([*_needed(code, [block.code for block in named[:-1]]), code])
    parsed = [
        block for block in blocks if block.code.strip() and source.parse(block.code) is not None
    ]
    return (parsed or blocks)[-1].code


def _seems_to_define(code: str, wanted: Collection[str]) -> bool:
    """Whether lines begin the definitions wanted, in a text that does not parse."""
    return set(wanted) <= {name for pair in _BEGUN.findall(code) for name in pair}


def _needed(block: str, before: Sequence[str]) -> list[str]:
    """Earlier blocks that define names which a block uses and nothing in it defines."""
    chosen: list[str] = []
    missing = source.reached(block) - source.defined(block) - source.BUILTIN
    for other in reversed(before):
        if missing & source.defined(other):
            chosen.insert(0, other)
            missing = (missing | source.reached(other)) - source.defined(other) - source.BUILTIN
    return chosen


def _continued(text: str, wanted: Collection[str], prompt: str, trim: bool) -> str:
    """The text after the prompt if it goes on there, else with what the prompt defines before it.

    A response that repeats the signature needs the prompt's imports and helpers all the same.
    """
    if not prompt:
        return text
    if set(wanted) <= source.defined(_parseable(text, wanted) if trim else text):
        return _helpers(prompt, wanted, text) + text
    return prompt + _indented(text, prompt)


def _indented(text: str, prompt: str) -> str:
    """A continuation whose first line has lost its indentation gets it back."""
    first = text.lstrip("\n").split("\n", 1)[0]
    if first.strip() and not first[0].isspace() and prompt.endswith("\n"):
        return "    " + text.lstrip("\n")
    return text


def _helpers(prompt: str, wanted: Collection[str], text: str) -> str:
    """The part of a prompt that defines neither what is wanted nor what the text defines."""
    tree = source.parse(prompt) or source.parse(prompt + "    pass\n")
    if tree is None:
        return ""
    redefined = source.defined(text) | set(wanted)
    kept = [node for node in tree.body if not redefined & set(source.binds(node))]
    return "".join(f"{ast.unparse(node)}\n" for node in kept)


def _parseable(text: str, wanted: Collection[str]) -> str:
    """A beginning of the text, in whole lines, that is a program; the text itself if none is.

    With names wanted, a beginning that lacks them does not count.
    """
    lines = text.split("\n")
    fault = _fault(text)
    for _ in range(_TRIES):
        if fault is None:
            return text
        before = min(fault, len(lines)) - 1
        margin = before
        while margin > 0 and (not lines[margin].strip() or lines[margin][0].isspace()):
            margin -= 1
        for count in (before, margin):
            part = "\n".join(lines[:count]) + "\n"
            if (
                part.strip()
                and source.parse(part) is not None
                and set(wanted) <= source.defined(part)
            ):
                return part
        lines = lines[:margin]
        fault = _fault("\n".join(lines)) if lines else None
        if fault is None:
            break
    return text


def _fault(code: str) -> int | None:
    """Line of the first syntax error, counted from 1; None if there is no error."""
    try:
        source.parse_or_raise(code)
    except SyntaxError as error:
        return max(error.lineno or 1, 1)
    except (ValueError, RecursionError, MemoryError):
        return 1
    return None


def _cut(code: str, wanted: Collection[str]) -> str:
    """A program up to what is wanted, and of the rest only what that needs."""
    tree = source.parse(code)
    if tree is None or not set(wanted) <= source.defined(code):
        return code
    missing, last = set(wanted), 0
    while missing:
        missing -= set(source.binds(tree.body[last]))
        last += 1
    kept, rest = tree.body[:last], tree.body[last:]
    later = _needed_later(kept, rest)
    lines = code.split("\n")
    end = max((node.end_lineno or 0 for node in kept), default=0)
    parts = ["\n".join(lines[:end])]
    parts += ["\n".join(lines[_first(node) - 1 : node.end_lineno]) for node in later]
    return "\n".join(parts) + "\n"


def _needed_later(kept: Sequence[ast.stmt], rest: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Definitions after the cut of names that nothing before it binds and something kept uses."""
    binders: dict[str, list[int]] = {}
    for place, node in enumerate(rest):
        for name in set(source.binds(node)):
            binders.setdefault(name, []).append(place)
    known = {name for node in kept for name in source.binds(node)} | source.BUILTIN
    needed = source.reached(_text_of(kept)) - known
    chosen: set[int] = set()
    while needed:
        name = needed.pop()
        if name in known:
            continue
        known.add(name)
        for place in binders.get(name, ()):
            if place not in chosen:  # each statement is read once
                chosen.add(place)
                needed |= source.reached(_text_of([rest[place]])) - known
    return [rest[place] for place in sorted(chosen)]


def _text_of(nodes: Sequence[ast.stmt]) -> str:
    return ast.unparse(ast.Module(list(nodes), []))


def _first(node: ast.stmt) -> int:
    """First line of a statement, decorators included."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])
