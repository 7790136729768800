r"""Answers to multiple choice: the letter alone, or with the text of the choice after it."""

from __future__ import annotations

import re

MAX_CHARACTERS = 1000

_STYLE = re.compile(r"\\(?:text(?:bf|it|rm)?|mathrm|mathbf|mbox) ?|[{}$*]")
_CHOICE = re.compile(
    r"(?:\(?([A-J])\)[.:]?|(?:[Oo]ption|[Cc]hoice|[Aa]nswer:?) \(?([A-J])\)?(?![A-Za-z]))(.*)",
    re.DOTALL,
)
_SEVERAL = re.compile(r"\([A-J]\)|(?<![A-Za-z])(?:[A-J]|or|and|not|nor|but)(?![A-Za-z(])")


def same_choice(gold: str, answer: str) -> bool:
    """Whether the reference is a letter and the answer that choice, with its text: ``(C) 12``."""
    if len(gold) != 1 or not "A" <= gold <= "J" or len(answer) > MAX_CHARACTERS:
        return False
    match = _CHOICE.match(_STYLE.sub("", answer).strip())
    if match is None or (match[1] or match[2]) != gold:
        return False
    return not _SEVERAL.search(match[3] or "")
