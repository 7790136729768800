r"""Units after a number and currencies before it: which are the same, and by what factor.

Names are compared in their short singular form; what differs by name is looked up with pint, whose
registry is loaded when two units first differ. Words that are no unit (``5 apples``) have no other
names.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any

NOT_UNITS = {
    *("am", "pm", "a.m.", "p.m.", "pi", "or", "and", "to", "base", "mod", "half"),
    *("dozens", "tens", "hundreds", "thousands", "millions", "billions", "trillions"),
    *("dozen", "hundred", "thousand", "million", "billion", "trillion"),
    *("lakh", "lakhs", "crore", "crores", "halves", "thirds", "fourths", "fifths", "sixths"),
    *("sevenths", "eighths", "ninths", "tenths", "hundredths", "thousandths", "millionths"),
    *("plus", "minus", "times", "factorial", "not", "than", "least", "most", "more", "less"),
}
"""Words after a number that change it, so that they are never removed."""

_SHORT = {
    **dict.fromkeys(("millimeter", "millimetre"), "mm"),
    **dict.fromkeys(("centimeter", "centimetre"), "cm"),
    **dict.fromkeys(("meter", "metre"), "m"),
    **dict.fromkeys(("kilometer", "kilometre"), "km"),
    **dict.fromkeys(("inche", "in"), "inch"),
    **dict.fromkeys(("foot", "feet"), "ft"),
    **dict.fromkeys(("second", "sec"), "s"),
    **dict.fromkeys(("hour", "hr"), "h"),
    **dict.fromkeys(("liter", "litre"), "l"),
    **dict.fromkeys(("usd", "buck", "us$"), "dollar"),
    **dict.fromkeys(("eur",), "euro"),
    **dict.fromkeys(("degree", "deg", "\N{DEGREE SIGN}"), "degree"),
    **dict.fromkeys(("radian",), "rad"),
    **dict.fromkeys(("percent", "\\%"), "%"),
    **dict.fromkeys(("men", "man"), "man"),
    **dict.fromkeys(("people", "person"), "person"),
    **dict.fromkeys(("children", "child"), "child"),
    "yard": "yd",
    "mile": "mi",
    "gram": "g",
    "kilogram": "kg",
    "pound": "lb",
    "ounce": "oz",
    "minute": "min",
    "penny": "cent",
    "pennie": "cent",
    "unit": "unit",
}
_POWERS = {"square": "2", "squared": "2", "sq": "2", "cubic": "3", "cubed": "3"}
_SCALED = {
    ("cent", "dollar"): Fraction(1, 100),
    ("cent", "euro"): Fraction(1, 100),
    ("sterling", "lb"): Fraction(1),
    ("degree", "celsius"): Fraction(1),
    ("degree", "fahrenheit"): Fraction(1),
    ("degree", "degree celsius"): Fraction(1),
    ("degree", "degree fahrenheit"): Fraction(1),
    ("degree", "degree c"): Fraction(1),
    ("degree", "degree f"): Fraction(1),
    ("celsius", "degree c"): Fraction(1),
    ("fahrenheit", "degree f"): Fraction(1),
}
_ALONE = {"degree", "%", "dollar", "euro", "cent", "sterling", "yen", "rupee", "rad"}
"""Units that pint does not know, or not as they are meant here."""
UNIT_WORDS = frozenset(
    (
        *("mm", "cm", "m", "km", "inch", "inches", "foot"),
        *("feet", "ft", "yard", "yards", "mile", "miles", "mi"),
        *("mg", "g", "kg", "gram", "grams", "kilogram", "kilograms"),
        *("pound", "pounds", "lb", "lbs", "ounce", "ounces", "oz"),
        *("ton", "tons", "tonne", "tonnes", "second", "seconds", "sec"),
        *("s", "minute", "minutes", "min", "hour", "hours", "hr"),
        *("hrs", "h", "day", "days", "week", "weeks", "month"),
        *("months", "year", "years", "liter", "liters", "litre", "litres"),
        *("ml", "l", "gallon", "gallons", "quart", "quarts", "pint"),
        *("pints", "cup", "cups", "meter", "meters", "metre", "metres"),
        *(
            "centimeter",
            "centimeters",
            "centimetre",
            "centimetres",
            "millimeter",
            "millimeters",
            "kilometer",
        ),
        *("kilometers", "kilometre", "kilometres", "mph", "kph", "kmh", "joule"),
        *("joules", "watt", "watts", "newton", "newtons", "volt", "volts"),
        *("kj", "kw", "kwh", "hz", "degree", "degrees", "radian"),
        *("radians", "rad", "cent", "cents", "dollar", "dollars", "euro"),
        *("euros", "usd", "eur", "square", "cubic", "sq", "per"),
        *("percent", "unit", "units"),
    )
)
"""Words that are a unit after a number in running text."""

_CURRENCY = re.compile(
    r"(?P<dollar>(?:US|USD)? ?\\?\$)|(?P<euro>\N{EURO SIGN}|\\euro(?![A-Za-z]))"
    r"|(?P<sterling>\N{POUND SIGN}|\\pounds(?![A-Za-z]))|(?P<yen>\N{YEN SIGN})"
    r"|(?P<rupee>\N{INDIAN RUPEE SIGN})|(?P<cent>\N{CENT SIGN}|\\cent(?![A-Za-z]))"
)
_FORMULA_DOLLARS = re.compile(r"\s*(\$\$?)([^$]*(?:\\\$[^$]*)*)(?<!\\)\1([.,;\s]*)\Z", re.DOTALL)
_LOOKED_UP = re.compile(
    r"[A-Za-z\N{MICRO SIGN}][A-Za-z /*().]*(?:\^?-?\d(?!\d)[A-Za-z /*().]*){0,3}"
)
_LONGEST = 40


def change_number(words: list[str]) -> bool:
    """Whether words after a number are not a unit but change it: ``5 million``, ``5 squared``.

    In ``5 squared units`` they are a unit.
    """
    return words in (["squared"], ["cubed"]) or any(word in NOT_UNITS for word in words)


def without_money(text: str) -> tuple[str, str | None]:
    """An answer without its currency signs, and the currency; None if there are several.

    The dollars around a formula are no currency.
    """
    if "$" in text and (match := _FORMULA_DOLLARS.match(text)) and "$" in match[1]:
        text = match[2] + match[3]
    kinds = set()

    def note(sign: re.Match[str]) -> str:
        kinds.add(sign.lastgroup or "")
        return " "

    bare = _CURRENCY.sub(note, text)
    if len(kinds) > 1:
        return bare, None
    return bare, next(iter(kinds), "")


@lru_cache(maxsize=4096)
def canonical(words: str, power: str = "") -> str:
    """A unit in its short, singular form, ``square`` and ``cubic`` as powers.

    Args:
        words: The unit as written.
        power: The exponent after it.
    """
    names = []
    for word in words.replace("/", " per ").split():
        word = (word if _is_symbol(word) else word.lower()).removesuffix(".")
        if word in _POWERS and not power:
            power = _POWERS[word]
            continue
        if word == "us":
            continue
        single = word if word in _SHORT or len(word) < 3 else word.removesuffix("s")
        names.append(_SHORT.get(single, single))
    unit = " ".join(names).replace(" per ", "/").replace(" / ", "/")
    return unit + re.sub(r"[{}^ ]", "", power) if unit else ""


def _is_symbol(word: str) -> bool:
    """Whether its capital letters count: ``J``, ``kWh``."""
    inner = len(word) <= 4 and not word.isupper() and word[1:] != word[1:].lower()
    return inner or (len(word) == 1 and word in "JNVWKA")


@lru_cache(maxsize=4096)
def factor(first: str, other: str) -> Fraction | None:
    """How many of the other unit one of the first is; 1 where either is left out.

    Returns:
        The factor, or None if they measure different things.
    """
    if not first or not other or first == other:
        return Fraction(1)
    if (first, other) in _SCALED:
        return _SCALED[first, other]
    if (other, first) in _SCALED:
        return 1 / _SCALED[other, first]
    if first.rpartition(" ")[2] == other or other.rpartition(" ")[2] == first:
        return Fraction(1)  # red apples are apples
    if _ALONE & {first, other} or "base" in first or "base" in other:
        return None
    return _converted(first, other)


def _converted(first: str, other: str) -> Fraction | None:
    if any(len(unit) > _LONGEST or not _LOOKED_UP.fullmatch(unit) for unit in (first, other)):
        return None
    import pint

    registry = _registry()
    try:
        left, right = (_parsed(registry, unit) for unit in (first, other))
        if left is None or right is None or left.dimensionality != right.dimensionality:
            return None
        ratio = registry.Quantity(1, left).to(right).magnitude
    except (pint.PintError, ValueError, TypeError, LookupError, ArithmeticError):
        return None
    return _exact(ratio) if ratio > 1 else 1 / _exact(1 / ratio)


def _exact(ratio: float) -> Fraction:
    """The simplest fraction that a float stands for."""
    for limit in (10**4, 10**6):
        near = Fraction(ratio).limit_denominator(limit)
        if abs(near - Fraction(ratio)) <= Fraction(ratio) / 10**13:
            return near
    return Fraction(ratio).limit_denominator(10**9)


def _parsed(registry: Any, unit: str) -> Any:
    """The unit as pint has it; ``m2`` is what ``canonical`` makes of square metres."""
    return registry.parse_units(re.sub(r"(?<=[A-Za-z])\^?(-?\d)", r"**\1", unit))


@cache
def _registry() -> Any:
    from pint import UnitRegistry

    return UnitRegistry()
