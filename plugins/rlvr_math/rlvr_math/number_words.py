"""Small numbers that are spelt out in English."""

from __future__ import annotations

_UNITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_TEENS = (
    *("ten", "eleven", "twelve", "thirteen", "fourteen"),
    *("fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_VALUES = {name: value for value, name in enumerate([*_UNITS, *_TEENS])}
_VALUES |= {name: 10 * place for place, name in enumerate(_TENS, 2)} | {"onehundred": 100}
_VALUES |= {
    f"{tens}{joint}{_UNITS[unit]}": 10 * place + unit
    for place, tens in enumerate(_TENS, 2)
    for unit in range(1, 10)
    for joint in ("", "-")
}


def spelt(text: str) -> int | None:
    """The number, at most 100, that a text without spaces spells; None if it is none."""
    digits = text.lstrip("-")
    value = _VALUES.get(digits)
    if value is None or len(text) == len(digits):
        return value
    return -value
