"""Units behind a number, as they are compared."""

from __future__ import annotations

import re

NOT_UNITS = {
    "am",
    "pm",
    "a.m.",
    "p.m.",
    "pi",
    "or",
    "and",
    "to",
    "base",
    "mod",
    "half",
    "dozen",
    "hundred",
    "thousand",
    "million",
    "billion",
    "trillion",
    "dozens",
    "tens",
    "hundreds",
    "thousands",
    "millions",
    "billions",
    "trillions",
    "lakh",
    "lakhs",
    "crore",
    "crores",
    "halves",
    "thirds",
    "fourths",
    "fifths",
    "sixths",
    "sevenths",
    "eighths",
    "ninths",
    "tenths",
    "hundredths",
    "thousandths",
    "millionths",
    "plus",
    "minus",
    "factorial",
}
"""Words behind a number that change it, so that they are never taken off."""

_SHORT = {
    "millimeter": "mm",
    "millimetre": "mm",
    "centimeter": "cm",
    "centimetre": "cm",
    "meter": "m",
    "metre": "m",
    "kilometer": "km",
    "kilometre": "km",
    "inche": "inch",
    "in": "inch",
    "foot": "ft",
    "feet": "ft",
    "yard": "yd",
    "mile": "mi",
    "gram": "g",
    "kilogram": "kg",
    "pound": "lb",
    "ounce": "oz",
    "second": "s",
    "sec": "s",
    "minute": "min",
    "hour": "h",
    "hr": "h",
    "liter": "l",
    "litre": "l",
    "usd": "dollar",
    "degree": "",
    "percent": "",
}
_POWERS = {"square": "2", "squared": "2", "cubic": "3", "cubed": "3"}


_DOLLARS = re.compile(r"\$(?=\s?-?[\d.])")
_CENTS = re.compile(
    r"(?<![A-Za-z])cents?(?![A-Za-z])|\N{CENT SIGN}|\\cent(?![A-Za-z])", re.IGNORECASE
)


def change_number(words: list[str]) -> bool:
    """Whether words behind a number are no unit but change it: ``5 million``, ``5 squared``.

    In ``5 squared units`` they are a unit.
    """
    return words in (["squared"], ["cubed"]) or any(word in NOT_UNITS for word in words)


def other_money(one: str, other: str) -> bool:
    """Whether one amount is written with a dollar sign and the other in cents."""
    return any(
        _CENTS.search(cents) and _DOLLARS.search(dollars) and not _CENTS.search(dollars)
        for cents, dollars in ((one, other), (other, one))
    )


def canonical(words: str, power: str = "") -> str:
    """A unit in its short, singular form, ``square`` and ``cubic`` as powers.

    Args:
        words: The unit as written.
        power: The exponent behind it.
    """
    found = []
    for word in words.lower().split():
        word = word.removesuffix(".")
        word = "square" if word == "sq" else word
        if word in _POWERS and not power:
            power = _POWERS[word]
            continue
        single = word if word in _SHORT or len(word) < 3 else word.removesuffix("s")
        found.append(_SHORT.get(single, single))
    unit = " ".join(word for word in found if word)
    return unit + re.sub(r"[{}^ ]", "", power) if unit else ""
