"""What runs in the sandbox before a program does: its names, and the counting of what it uses.

This file is sent there as text. It stands on its own, and runs in the program's process: what is
counted is what really happened to the page while the program ran, not what its text looks like. A
program that takes the interpreter apart (``gc``, frames, patching ``bs4`` itself) can still lie; so
can one that parses and selects, and then throws that away.
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


class Page:
    """The page of one program, and what the program does with it."""

    def __init__(self, html: str) -> None:
        self.used = {"html": 0, "parsed": 0, "selected": 0, "read": 0}
        self._html = html
        self._pieces = set(html.split("<"))
        self._soups: dict[int, Any] = {}
        self._inside = False

    def take(self) -> str:
        """The HTML."""
        self.used["html"] += 1
        return self._html

    def make_soup(self, parser: str = "html.parser") -> bs4.BeautifulSoup:
        """The current page, parsed."""
        return bs4.BeautifulSoup(self.take(), parser)

    def watch(self) -> None:
        """Count what BeautifulSoup does from now on."""
        soups: Any = bs4.BeautifulSoup
        made: Callable[..., None] = soups.__init__

        @functools.wraps(made)
        def make(soup: Any, markup: Any = "", *args: Any, **named: Any) -> None:
            if hasattr(markup, "read"):
                markup = markup.read()
            made(soup, markup, *args, **named)
            if self._is_mine(markup):
                self._soups[id(soup)] = soup
                self.used["parsed"] += 1

        soups.__init__ = make
        owner: type
        for owner in (element.PageElement, element.Tag):
            for name, method in list(vars(owner).items()):
                if re.match(r"(find|select)(_|$)", name):
                    setattr(owner, name, self._counted("selected", method))
        for name in ("get_text", "get", "__getitem__"):
            owner = _owner(name)
            setattr(owner, name, self._counted("read", vars(owner)[name]))
        for name in ("text", "string", "strings", "stripped_strings"):
            owner = _owner(name)
            old = vars(owner)[name]
            setattr(owner, name, property(self._counted("read", old.fget), old.fset))

    def _counted(self, what: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """The method, counted when it is called on the page and finds something."""

        @functools.wraps(method)
        def call(node: Any, *args: Any, **named: Any) -> Any:
            if self._inside:
                return method(node, *args, **named)
            self._inside = True
            try:
                found = method(node, *args, **named)
            finally:
                self._inside = False
            empty = found is None or (isinstance(found, (list, str)) and not found)
            if not empty and self._holds(node):
                self.used[what] += 1
            return found

        return call

    def _is_mine(self, markup: Any) -> bool:
        """Whether markup is the page, changed a little or not, or a good part of it."""
        if isinstance(markup, bytes):
            markup = markup.decode("utf-8", "replace")
        if not isinstance(markup, str) or not markup.strip():
            return False
        if len(markup) >= min(200, len(self._html) / 2) and markup.strip() in self._html:
            return True
        return 2 * len(self._pieces & set(markup.split("<"))) > len(self._pieces)

    def _holds(self, node: Any) -> bool:
        while node.parent is not None:
            node = node.parent
        return id(node) in self._soups


class Names(dict[str, Any]):
    """The built-in names, and the page, which is counted when it is asked for."""

    def __init__(self, page: Page) -> None:
        super().__init__(vars(builtins))
        self._page, self._dumps = page, json.dumps
        self._write, self._leave = os.write, os._exit

    def __missing__(self, name: str) -> str:
        if name == "HTML":
            return self._page.take()
        raise KeyError(name)

    def report(self, mark: str) -> None:
        """Tell what was counted, and end the process."""
        self._write(2, f"{mark}{self._dumps(self._page.used)}{mark}".encode())
        self._leave(0)


def furnish(given: dict[str, Any], names: dict[str, Any]) -> None:
    """Give a program its names, and begin to count.

    Args:
        given: ``html``, ``url``, ``question``, ``constraints``.
        names: The name space it will run in.
    """
    page = Page(given["html"])
    page.watch()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # kept if it is stopped
    names.update(
        __builtins__=Names(page),
        URL=given["url"],
        QUERY=given["question"],
        CONSTRAINTS=given["constraints"],
        make_soup=page.make_soup,
        BeautifulSoup=bs4.BeautifulSoup,
        Comment=element.Comment,
        NavigableString=element.NavigableString,
        Tag=element.Tag,
        json=json,
        re=re,
    )


def _owner(name: str) -> type:
    """The class that an element has a method or property from."""
    owner: type = next(one for one in element.Tag.__mro__ if name in vars(one))
    return owner
