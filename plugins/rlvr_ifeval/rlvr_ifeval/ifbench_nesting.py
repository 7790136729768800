"""IFBench's constraints on brackets and quotes."""

from __future__ import annotations

import string

from rlvr_ifeval.constraint import Family, NoArgs

_CLOSES = {")": "(", "]": "[", "}": "{"}
_BRACKET_LEVELS, _QUOTE_LEVELS = 5, 3
_AROUND_QUOTES = string.digits + string.punctuation.replace('"', "")


CONSTRAINTS = Family()
"""All of this family."""


@CONSTRAINTS.add(
    "format:parentheses",
    NoArgs,
    lambda _: f"Nest brackets (round, [square {{or curly}}]) {_BRACKET_LEVELS} or more deep.",
)
def _brackets(response: str, _: NoArgs) -> bool:
    """Whether a bracket closes rightly once five are open; a wrong one starts all anew."""
    opened: list[str] = []
    deepest = 0
    for char in response:
        if char in "([{":
            opened.append(char)
            deepest = max(deepest, len(opened))
        elif char in _CLOSES and opened[-1:] == [_CLOSES[char]]:
            if deepest >= _BRACKET_LEVELS:
                return True
            opened.pop()
        elif char in _CLOSES:
            opened, deepest = [], 0
    return False


@CONSTRAINTS.add(
    "format:quotes",
    NoArgs,
    f"Put quotes inside quotes inside quotes, {_QUOTE_LEVELS} or more deep, with double "
    "and single marks in turn.",
)
def _quotes(response: str, _: NoArgs) -> bool:
    """Straight marks alone, apostrophes among them; the depth once reached is never forgotten."""
    opened: list[str] = []
    deepest = 0
    for char in response:
        if opened and char == opened[-1]:
            opened.pop()
            if deepest - len(opened) >= _QUOTE_LEVELS:
                return True
        elif char in "\"'":
            opened.append(char)
            deepest = max(deepest, len(opened))
    return False


@CONSTRAINTS.add(
    "format:quote_unquote",
    NoArgs,
    "After every quoted phrase, explain it in words that are not quoted.",
)
def _explained(response: str, _: NoArgs) -> bool:
    """Straight marks alone."""
    text = "".join(response.replace("'\"'", "").split())
    return '""' not in text and not text.strip(_AROUND_QUOTES).endswith('"')
