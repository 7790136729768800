"""A task's pages as a visitor sees them: one at a time, moving by links.

Solvers get nothing else, and the tools of an environment are made of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote, urldefrag, urljoin

from rlvr_bs4.task import Task
from rlvr_core.api import Json

if TYPE_CHECKING:
    from bs4 import BeautifulSoup, Tag

PARSERS = ("html.parser", "lxml")
"""Parsers; the reference solvers get full marks under both."""


def resolve(current: str, href: str, pages: Mapping[str, str]) -> str | None:
    """The page that a link leads to; None if it leads nowhere.

    White space around it and a fragment are ignored, and characters are quoted as browsers do.
    """
    try:
        url = urldefrag(urljoin(current, href.strip())).url
    except ValueError:  # no URL at all
        return None
    if url in pages:
        return url
    try:
        wanted = _quoted(url)
    except UnicodeEncodeError:  # half of a surrogate pair: no text, so no URL
        return None
    return next((known for known in pages if _quoted(known) == wanted), None)


def _quoted(url: str) -> str:
    return quote(url, safe="%/:=&?~#+!$,;'@()*[]")


class Site:
    """A visitor on the pages of one task.

    Attributes:
        question: What is asked.
        schema: Form of the answer.
        url: Where the visitor is.
        parser: What pages are parsed with.
        visited: URLs in the order of the visits, the start included.
    """

    def __init__(self, task: Task, parser: str = "html.parser") -> None:
        self.question = task.question
        self.schema: Json = task.schema
        self.parser = parser
        self.visited = [task.start]
        self._pages = task.pages

    @property
    def url(self) -> str:
        """The current page's address."""
        return self.visited[-1]

    @property
    def html(self) -> str:
        """The current page's HTML."""
        return self._pages[self.url]

    def go(self, href: str) -> bool:
        """Follow a link; False, without moving, if it leads nowhere."""
        url = resolve(self.url, href, self._pages)
        if url is not None:
            self.visited.append(url)
        return url is not None

    def soup(self, parser: str = "") -> BeautifulSoup:
        """The current page, parsed."""
        from bs4 import BeautifulSoup

        return BeautifulSoup(self.html, parser or self.parser)

    def one(self, css: str) -> Tag:
        """The first element a selector finds.

        Raises:
            LookupError: If there is none.
        """
        return one(self.soup(), css)


def one(within: Tag, css: str) -> Tag:
    """The first element below another that a selector finds.

    Raises:
        LookupError: If there is none.
    """
    tag = within.select_one(css)
    if tag is None:
        raise LookupError(f"nothing matches {css}")
    return tag


def text(tag: Tag) -> str:
    """Text of an element with white space as single spaces."""
    return " ".join(tag.get_text().split())


def attr(tag: Tag, name: str, default: str = "") -> str:
    """An attribute as text."""
    value = tag.get(name)
    return default if value is None else value if isinstance(value, str) else " ".join(value)
