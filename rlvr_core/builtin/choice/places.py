r"""Where a model marks its answer: ``<answer>`` and ``\boxed{}``."""

from __future__ import annotations

import re

_BRACE = re.compile(r"[{}]")
_TAG = re.compile(r"<answer>((?:(?!</?answer>).)*)</answer>", re.DOTALL | re.IGNORECASE)
_WORD = re.compile(r"\\\w+|\w+")
_JOINERS = re.compile(
    r"or|and|also|maybe|perhaps|possibly|either|else|otherwise|both|if|not|alternatively|answer|the|"
    r"is",
    re.IGNORECASE,
)
"""Words between two marked answers that make one answer with several values of them."""


def tagged(text: str) -> str | None:
    """What the last ``<answer>`` holds; None without one."""
    return _last_of([(m.start(), m.end(), m[1]) for m in _TAG.finditer(text)], text)


def boxed(text: str) -> str | None:
    r"""What the last ``\boxed{}`` holds; None without one that is closed."""
    found = []
    start = text.find(r"\boxed{")
    while start >= 0:
        begin = start + len(r"\boxed{")
        end = _closing(text, begin)
        if end is None:
            break
        found.append((start, end + 1, text[begin:end]))
        start = text.find(r"\boxed{", end)
    return _last_of(found, text)


def _closing(text: str, begin: int) -> int | None:
    depth = 1
    for found in _BRACE.finditer(text, begin):
        depth += 1 if found[0] == "{" else -1
        if depth == 0:
            return found.start()
    return None


def _last_of(found: list[tuple[int, int, str]], text: str) -> str | None:
    """The last place; several in one text where nothing but "or" and the like stands between."""
    if not found:
        return None
    contents = [found[-1][2]]
    for (_, end, before), (start, _, _) in zip(found[-2::-1], found[:0:-1], strict=True):
        words = _WORD.findall(text, end, start)
        if not all(word.startswith("\\") or _JOINERS.fullmatch(word) for word in words):
            break
        contents.append(before)
    if len({one.strip() for one in contents}) == 1:
        return contents[0]
    return " or ".join(reversed(contents))
