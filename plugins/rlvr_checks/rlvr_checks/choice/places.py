r"""Finds where a model marks its answer (``<answer>``, ``\boxed{}``) or asks a new question."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

Match = Literal["last", "first"]

_BRACE = re.compile(r"[{}]")
_TAG = re.compile(r"<answer>((?:(?!</?answer>).)*)</answer>", re.DOTALL | re.IGNORECASE)
_WORD = re.compile(r"\\\w+|\w+")
_JOINERS = re.compile(
    r"or|and|also|maybe|perhaps|possibly|either|else|otherwise|both|if|not|alternatively|answer|the|"
    r"is",
    re.IGNORECASE,
)
"""Words between two marked answers that make one answer with several values of them."""
_QUESTION = re.compile(r"\n[ \t]*(?:\*\*|#+ ?)?(?:Question|Problem)(?: \d+)?[ \t]*:")


@dataclass(frozen=True, slots=True)
class Marked:
    """The content of a marked place, and the end of the place."""

    content: str
    end: int


def tagged(text: str, match: Match = "last") -> Marked | None:
    """Return the content of the last or the first ``<answer>``; None without one."""
    return _choose([(m.start(), m.end(), m[1]) for m in _TAG.finditer(text)], text, match)


def boxed(text: str, match: Match = "last") -> Marked | None:
    r"""Return the content of the last or the first closed ``\boxed{}``; None without one."""
    boxes = []
    start = text.find(r"\boxed{")
    while start >= 0:
        begin = start + len(r"\boxed{")
        end = _closing(text, begin)
        if end is None:
            break
        boxes.append((start, end + 1, text[begin:end]))
        start = text.find(r"\boxed{", end)
    return _choose(boxes, text, match)


def before_question(text: str) -> str:
    """Return a text up to the line in which it asks another question."""
    start = len(text) - len(text.lstrip())
    question = _QUESTION.search(text, start)
    return text[: question.start()] if question else text


def _closing(text: str, begin: int) -> int | None:
    depth = 1
    for brace in _BRACE.finditer(text, begin):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return brace.start()
    return None


def _choose(places: list[tuple[int, int, str]], text: str, match: Match) -> Marked | None:
    """Return a place; several become one if only "or" and the like stands between."""
    if not places:
        return None
    ordered = places if match == "first" else places[::-1]
    taken = ordered[:1]
    for place, other in pairwise(ordered):
        before, after = (place, other) if match == "first" else (other, place)
        words = _WORD.findall(text, before[1], after[0])
        if not all(word.startswith("\\") or _JOINERS.fullmatch(word) for word in words):
            break
        taken.append(other)
    contents = [content for _, _, content in sorted(taken)]
    same = len({content.strip() for content in contents}) == 1
    end = max(end for _, end, _ in taken)
    return Marked(contents[-1] if same else " or ".join(contents), end)
