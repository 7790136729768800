"""Kinds of tasks: a builder, a reference solver, and solvers with a common bug."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from rlvr_bs4.ask import Ask, Question
from rlvr_bs4.dom import Node
from rlvr_bs4.site import Site
from rlvr_bs4.task import Abstain, Difficulty, Limit, Par
from rlvr_bs4.world import World
from rlvr_core.api import Json


@dataclass(frozen=True, slots=True)
class Claim:
    """Number of elements of a page that match a compound selector, noise included."""

    css: str
    n: int = 1


@dataclass(frozen=True, slots=True)
class Body:
    """The content of one page, before anything is put around it.

    Attributes:
        main: Its blocks; noise goes between them, never into them.
        head: What belongs into ``<head>``.
        claims: What must hold on the finished page.
    """

    main: tuple[Node, ...]
    head: tuple[Node, ...] = ()
    claims: tuple[Claim, ...] = ()


@dataclass(frozen=True, slots=True)
class Draft:
    """A task before its pages are furnished.

    Attributes:
        question: What is asked.
        answer: The truth; None as well where ``limit`` is set.
        body: The start page.
        more: Other pages by path.
        path: Path of the start page.
        limit: Why there is no answer.
        canaries: Secrets planted in the content.
        par: What the reference solver takes.
    """

    question: Question
    answer: Json
    body: Body
    more: Mapping[str, Body] | None = None
    path: str = "/"
    limit: Limit | None = None
    canaries: tuple[str, ...] = ()
    par: Par = field(default_factory=Par)


class Archetype(ABC):
    """One kind of task.

    A method whose name begins with ``bug_`` is a solver with a common mistake: the pages are made
    so that it goes wrong on at least four fifths of the seeds.
    """

    id: ClassVar[str]
    category: ClassVar[str]
    difficulty: ClassVar[Difficulty]
    phase: ClassVar[int]
    asks: ClassVar[Ask]
    schema: ClassVar[Json]
    twins: ClassVar[int] = 0
    """Further drafts of the same kind whose content is put on the page, before and after that of
    the task: nothing but the question then says which of them is meant."""
    abstains: ClassVar[bool] = False
    """Whether some of its tasks cannot be answered from the HTML."""

    @abstractmethod
    def build(self, w: World) -> Draft:
        """Draw a task: the truth first, then a page that holds it, with the trap in it."""

    @abstractmethod
    def solve(self, site: Site) -> Json | Abstain:
        """Find the answer as a careful programmer would, from question and HTML alone."""

    def slots(self, site: Site) -> dict[str, str]:
        """The elements that the question selects."""
        return self.asks.read(site.question)

    @property
    def summary(self) -> str:
        """First line of its docstring."""
        return (inspect.getdoc(type(self)) or "").partition("\n")[0]

    @property
    def bugs(self) -> dict[str, Callable[[Site], Json | Abstain]]:
        """Solvers with a common mistake, by what the mistake is."""
        return {
            name.removeprefix("bug_").replace("_", " "): getattr(self, name)
            for name in sorted(dir(type(self)))
            if name.startswith("bug_")
        }
