"""Runs in the sandbox before a program: defines its names, and counts its calls.

This file is sent there as text. It stands on its own, and runs in the program's process: what is
counted is what really happened to the page while the program ran, not what its text looks like.

The page and the counters are variables of functions, and attributes of nothing. A program that
takes the interpreter apart (``__closure__``, ``gc``, frames, patching ``bs4``) can still lie;
so can one that parses and selects, and then throws that away.
"""

from __future__ import annotations

import builtins
import functools
import json
import os
import re
import sys
from collections.abc import Callable
from typing import Any

import bs4
from bs4 import element

Count = Callable[[str], None]


def furnish(given: dict[str, Any], names: dict[str, Any]) -> None:
    """Give a program its names, and begin to count.

    Args:
        given: ``html`` and ``url`` of the page; ``question``, ``constraints``; ``asking``, the text
            that, compiled with a mark after it, asks for the counts.
        names: The name space it will run in.
    """
    html: str = given["html"]
    asking: bytes = given["asking"].encode()
    used = {"html": 0, "parsed": 0, "selected": 0, "read": 0}
    dumps, write, leave = json.dumps, os.write, os._exit

    def count(what: str) -> None:
        used[what] += 1

    def take() -> str:
        count("html")
        return html

    def make_soup(parser: str = "html.parser") -> bs4.BeautifulSoup:
        """The current page, parsed."""
        return bs4.BeautifulSoup(take(), parser)

    def hear(event: str, about: tuple[Any, ...]) -> None:
        """Tell what was counted, and end the process, when a question for it is compiled.

        No name of the program is used for that, so that it can put nothing in its place.
        """
        if event != "compile":
            return
        source = about[0] if isinstance(about[0], bytes) else str(about[0]).encode(errors="replace")
        if source.startswith(asking):
            mark = source[len(asking) :]
            write(2, mark + dumps(used).encode() + mark)
            leave(0)

    _watch(html, count)
    sys.addaudithook(hear)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # kept if it is stopped
    names.update(
        __builtins__=_built_in(take),
        URL=given["url"],
        QUERY=given["question"],
        CONSTRAINTS=given["constraints"],
        make_soup=make_soup,
        BeautifulSoup=bs4.BeautifulSoup,
        Comment=element.Comment,
        NavigableString=element.NavigableString,
        Tag=element.Tag,
        json=json,
        re=re,
    )


def _built_in(take: Callable[[], str]) -> dict[str, Any]:
    """The built-in names, and the page, which is counted when it is asked for."""

    class Names(dict[str, Any]):
        def __missing__(self, name: str) -> str:
            if name == "HTML":
                return take()
            raise KeyError(name)

    return Names(vars(builtins))


def _watch(html: str, count: Count) -> None:
    """Count what BeautifulSoup does from now on."""
    mine: dict[int, Any] = {}
    soups: Any = bs4.BeautifulSoup
    made: Callable[..., None] = soups.__init__
    is_page = _recogniser(html)

    def make(soup: Any, markup: Any = "", *args: Any, **named: Any) -> None:
        if hasattr(markup, "read"):
            markup = markup.read()
        made(soup, markup, *args, **named)
        if is_page(markup):
            mine[id(soup)] = soup
            count("parsed")

    counted = _counter(mine, count)
    soups.__init__ = _named_as(made, make)
    owner: type
    for owner in (element.PageElement, element.Tag):
        for name, method in list(vars(owner).items()):
            if re.match(r"(find|select)(_|$)", name):
                setattr(owner, name, counted("selected", method))
    for name in ("get_text", "get", "__getitem__"):
        owner = _owner(name)
        setattr(owner, name, counted("read", vars(owner)[name]))
    for name in ("text", "string", "strings", "stripped_strings"):
        owner = _owner(name)
        old = vars(owner)[name]
        setattr(owner, name, property(counted("read", old.fget), old.fset))


def _counter(
    soups: dict[int, Any], count: Count
) -> Callable[[str, Callable[..., Any]], Callable[..., Any]]:
    """Return a wrapper that counts a method's successful calls on the page."""
    inside = False

    def holds(node: Any) -> bool:
        while node.parent is not None:
            node = node.parent
        return id(node) in soups

    def counted(what: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(node: Any, *args: Any, **named: Any) -> Any:
            nonlocal inside
            if inside:
                return method(node, *args, **named)
            inside = True
            try:
                result = method(node, *args, **named)
            finally:
                inside = False
            empty = result is None or (isinstance(result, (list, str)) and not result)
            if not empty and holds(node):
                count(what)
            return result

        return _named_as(method, call)

    return counted


def _recogniser(html: str) -> Callable[[Any], bool]:
    """Whether markup is the page, changed a little or not, or a good part of it."""
    pieces = set(html.split("<"))

    def is_page(markup: Any) -> bool:
        if isinstance(markup, bytes):
            markup = markup.decode("utf-8", "replace")
        if not isinstance(markup, str) or not markup.strip():
            return False
        if len(markup) >= min(200, len(html) / 2) and markup.strip() in html:
            return True
        return 2 * len(pieces & set(markup.split("<"))) > len(pieces)

    return is_page


def _named_as(method: Callable[..., Any], other: Callable[..., Any]) -> Callable[..., Any]:
    """The other one under the method's name, without a way back to the method."""
    named = functools.wraps(method)(other)
    del named.__dict__["__wrapped__"]
    return named


def _owner(name: str) -> type:
    """The class that an element has a method or property from."""
    owner: type = next(kind for kind in element.Tag.__mro__ if name in vars(kind))
    return owner
