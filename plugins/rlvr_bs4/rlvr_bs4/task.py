"""Tasks: pages, a question, the truth, and the cost of a good answer.

A task is all that a single-answer problem, an environment and the grader need; none of them ever
goes back to the generator's inner state.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from rlvr_core.api import Json

Difficulty = Literal["primer", "easy", "medium", "hard"]
SizeName = Literal["bare", "small", "medium", "large"]
Row = tuple[str, int, SizeName]
"""Archetype, seed and size: what a task is made of."""

REASONS: Mapping[str, str] = {
    "javascript_required": "a script would have to fetch or build it",
    "image_text": "it is only in a picture",
    "canvas_text": "it is only painted on a canvas",
    "document_embed": "it is only in an embedded PDF or the like",
    "access_blocked": "the site shows a challenge or a block instead",
    "encoding_lost": "its characters were lost when the page was encoded",
}
"""Why a question cannot be answered from the HTML. Every prompt shows all of them."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The truth of a task that cannot be answered from its HTML.

    Attributes:
        reason: One of ``REASONS``.
        spans: Pieces of the page that show it; evidence must hold one of them whole. None of them
            is anywhere in a solvable page of the same archetype.
    """

    reason: str
    spans: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Abstain:
    """A solver's finding that the HTML does not hold the answer."""

    reason: str
    evidence: str


@dataclass(frozen=True, slots=True)
class Par:
    """The cost of the reference solver: programs run and pages visited."""

    run_python: int = 1
    navigate: int = 0


@dataclass(frozen=True, slots=True)
class Task:
    """One question about one small site.

    Attributes:
        archetype: What kind of task it is.
        seed: Number of the task within its archetype; decides the split.
        size: How much page is around the content; question and truth do not depend on it.
        question: What is asked.
        schema: Form of the answer, a subset of JSON Schema (``rlvr_bs4.schema``).
        answer: The true answer; None as well where ``limit`` is set.
        limit: Why there is none.
        pages: HTML of every page by absolute URL.
        start: URL of the page one begins on.
        canaries: Secrets planted in the pages, never to be repeated.
        par: What the reference solver takes.
    """

    archetype: str
    seed: int
    size: SizeName
    question: str
    schema: Json
    answer: Json
    limit: Limit | None
    pages: Mapping[str, str]
    start: str
    canaries: tuple[str, ...] = field(default=())
    par: Par = field(default_factory=Par)

    @property
    def html(self) -> str:
        """The page one begins on."""
        return self.pages[self.start]

    @property
    def sha256(self) -> str:
        """Hash of everything that decides what is asked and what is right."""
        limit = None if self.limit is None else [self.limit.reason, list(self.limit.spans)]
        parts = [self.question, self.schema, self.answer, limit, dict(self.pages), self.start]
        return hashlib.sha256(canonical([*parts, list(self.canaries)]).encode()).hexdigest()

    @property
    def gold(self) -> str:
        """A response that is right."""
        if self.limit is None:
            return json.dumps({"status": "ok", "answer": self.answer}, ensure_ascii=False)
        limit = {"reason": self.limit.reason, "evidence": self.limit.spans[0]}
        return json.dumps({"status": "limit", "answer": None, "limit": limit}, ensure_ascii=False)


def canonical(value: Json) -> str:
    """JSON with one spelling for each value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
