r"""Deciding whether two final answers are the same: as text, then as exact numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from rlvr_math.notation import date
from rlvr_math.spelling import MAX_CHARACTERS, unify
from rlvr_math.units import canonical, change_number, factor, without_money

MAX_DIGITS = 1000
"""Longer numbers are compared as text only: Python refuses to convert very long ones."""
_MAX_EXPONENT = 300

_DROPPED = re.compile(
    r"\\[!,;:()\[\]$%]|[$%]|\\ |\\(?:left|right)(?![A-Za-z])\.?"
    r"|\\(?:quad|qquad|displaystyle|textstyle)(?![A-Za-z])"
)
_DEGREES = re.compile(r"\^ ?\{?\\circ ?\}? ?$")
_STYLES = r"\\(?:text|textbf|textit|textrm|textnormal|mbox|mathrm|mathbf|mathsf|mathit)"
_STYLED = re.compile(rf"{_STYLES}[ ]?\{{([^{{}}]*)\}}")
_UNIT = re.compile(
    rf"(?<=[\d}}])[ ]?{_STYLES}[ ]?\{{([^{{}}]*)\}}(\^\{{?-?\d\}}?)?$"
    r"|(?<=[\d}]) ([A-Za-z][A-Za-z.]+(?: [A-Za-z.]+){0,3})$"
    r"|(?<=[\d}]) ((?:k?m|cm|k?g|mi|ft)/(?:s|h|hr|min))$"
)
_HALF_DAY = re.compile(
    rf"(?<=\d) ?(?:{_STYLES}[ ]?\{{ ?)?([AaPp])\. ?[Mm](?:\.|(?![A-Za-z])) ?\}}?"
    rf"|(?<=:\d\d) ?(?:{_STYLES}[ ]?\{{ ?)?([AaPp])[Mm](?![A-Za-z]) ?\}}?"
)
_CLOCK = re.compile(r"(\d{1,2}:\d\d) ?([ap]m)")
_LEADING_ZERO = re.compile(r"0(?=\d:\d\d)")
_SHORT_FRACTION = re.compile(r"\\[dtc]?frac(?![A-Za-z])")
_BARE_ARGUMENTS = re.compile(r"\\frac ?(\d) ?(\d)")
_BARE_BOTTOM = re.compile(r"\\frac(\{[^{}]*\}) ?(\w)")
_BARE_TOP = re.compile(r"\\frac ?(\d)\{")
_BARE_ROOT = re.compile(r"\\sqrt ?(\w)")
_MIXED = re.compile(r"(?<![\d.])(\d++) (\d++)/(\d++)")
_THOUSANDS = re.compile(r"(?<=\d)(?:,|\{,\}| )(?=\d{3}(?!\d))")
_GROUPED = re.compile(r"-?\d{1,3}(?:(?:,|\{,\}| )\d{3})++(?:\.\d*+)?")
_SPACE = re.compile(r" +(?!(?<=\d )\d)")
_NAMED = re.compile(r"([A-Za-z]) ?= ?(?=[^=]+$)")
_BRACED = re.compile(r"(\{+)([^{}]*)(\}+)")

_BELOW_ONE = re.compile(r"-?(?:0?\.\d|\\frac)")
_DECIMAL = r"[-+]?(?:\d++(?:\.\d*+)?|\.\d++)"
_PLAIN = re.compile(_DECIMAL)
_RATIO = re.compile(
    rf"(?P<sign>[-+]?)(?P<whole>\d++)?\\frac\{{(?P<top>{_DECIMAL})\}}\{{(?P<bottom>{_DECIMAL})\}}"
)
_SLASH = re.compile(rf"(?P<top>{_DECIMAL})/(?P<bottom>{_DECIMAL})")
_SCIENTIFIC = re.compile(
    rf"(?P<factor>{_DECIMAL})(?:\\(?:times|cdot)10\^\{{?|[eE])(?P<power>[-+]?\d{{1,3}})\}}?"
)


@dataclass(frozen=True, slots=True)
class Normal:
    """An answer without what does not change its meaning.

    Attributes:
        text: The answer without layout, styles, spacing, currency and percent signs.
        name: The variable in front of ``=``; "" when there was none.
        unit: The words after a number, singular; "" when there were none.
    """

    text: str
    name: str = ""
    unit: str = ""

    def factor(self, other: Normal) -> Fraction | None:
        """Return the factor from the other's unit to this one's.

        None if the variables or the units contradict each other; either may be left out.
        """
        if self.name and other.name and self.name != other.name:
            return None
        if other.unit == "%" and not self.unit and _BELOW_ONE.match(self.text):
            return None  # 0.25 is not 0.25%
        if other.unit == "degree" and not self.unit and "\\pi" in self.text:
            return None  # \pi is said to be one in radians
        return factor(other.unit, self.unit)


def same_text(gold: Normal, answer: Normal) -> bool:
    """Equal as normalised text."""
    if gold.text == answer.text:
        return gold.factor(answer) == 1
    if gold.text.startswith("date ") and gold.text.endswith("-"):
        return answer.text.startswith(gold.text)  # it brings a year that the reference leaves out
    return {gold.unit, answer.unit} in ({"am", ""}, {"pm", ""}) and _hour(gold) == _hour(answer)


def _hour(clock: Normal) -> str:
    """A time of day in 24 hours."""
    hour, colon, rest = clock.text.partition(":")
    if not colon or not hour.isdecimal() or not clock.unit:
        return clock.text
    return f"{int(hour) % 12 + 12 * (clock.unit == 'pm')}{colon}{rest}"


def same_number(gold: Normal, answer: Normal) -> bool:
    """Equal exactly as numbers, in the reference's unit."""
    value, wanted = number(answer), number(gold)
    if value is None or wanted is None:
        return False
    times = gold.factor(answer)
    return times is not None and value * times == wanted


def agree(gold: str, answer: str) -> str | None:
    """Return how the answers are equal, as ``text`` or ``number``; None if they differ."""
    left, right = normalise(gold), normalise(answer)
    if not right.text:
        return None
    if same_text(left, right):
        return "text"
    return "number" if same_number(left, right) else None


def normalise(text: str) -> Normal:
    """Take apart an answer as written in a box."""
    return _normalised(text) if len(text) <= MAX_CHARACTERS else _normalise(text)


def _normalise(text: str) -> Normal:
    if _PLAIN.fullmatch(text):
        return Normal(text.removeprefix("+"))
    percent = "%" in text
    text, currency = without_money(unify(text).replace("\\!", ""))
    text = " ".join(_DROPPED.sub(" ", text).split()).rstrip(".,;: ")
    if whole := _STYLED.fullmatch(text):
        text = whole[1].strip()
    if day := date(text):
        return Normal(day)
    text = _HALF_DAY.sub(lambda match: f"{(match[1] or match[2]).lower()}m", text)
    if _LEADING_ZERO.match(text):
        text = text[1:]
    text, unit = _cut_unit(text)
    if degrees := _DEGREES.search(text):
        text, unit = text[: degrees.start()], " ".join(filter(None, ("degree", unit)))
    if currency or currency is None:
        unit = currency if currency and not unit else f"{currency or 'money'} {unit}"
    if percent and not unit:
        unit = "%"
    if half := _CLOCK.fullmatch(text):
        text, unit = half[1], half[2]
    text = _STYLED.sub(r"\1", text).strip()
    text = _SHORT_FRACTION.sub(r"\\frac", text)
    text = _BARE_ARGUMENTS.sub(r"\\frac{\1}{\2}", text)
    text = _BARE_TOP.sub(r"\\frac{\1}{", text)
    text = _BARE_BOTTOM.sub(r"\\frac\1{\2}", text)
    text = _BARE_ROOT.sub(r"\\sqrt{\1}", text)
    text = _MIXED.sub(r"\1\\frac{\2}{\3}", text)
    name = _NAMED.match(text)
    text = text[name.end() :] if name else text
    if _GROUPED.fullmatch(text):
        text = _THOUSANDS.sub("", text)
    text = _SPACE.sub("", text)
    braced = _BRACED.fullmatch(text)
    if braced and len(braced[1]) == len(braced[3]):
        text = braced[2]
    return Normal(text.removeprefix("+"), name[1] if name else "", unit)


_normalised = lru_cache(maxsize=4096)(_normalise)


def number(answer: Normal) -> Fraction | None:
    r"""The exact value of an integer, decimal, ``a/b``, ``\frac{a}{b}`` or ``a \times 10^b``.

    Returns:
        The value, or None if the text is anything else, has no value or is too long.
    """
    return _number(answer.text) if len(answer.text) <= MAX_DIGITS else None


@lru_cache(maxsize=4096)
def _number(text: str) -> Fraction | None:
    if _PLAIN.fullmatch(text):
        return Fraction(text) if "." in text else Fraction(int(text))
    if match := _RATIO.fullmatch(text) or _SLASH.fullmatch(text):
        return _ratio(match.groupdict())
    if match := _SCIENTIFIC.fullmatch(text):
        power = int(match["power"])
        if abs(power) <= _MAX_EXPONENT:
            return Fraction(match["factor"]) * Fraction(10) ** power
    return None


def _cut_unit(text: str) -> tuple[str, str]:
    match = _UNIT.search(text)
    if not match:
        return text, ""
    unit = (match[1] or match[3] or match[4] or "").strip().lower()
    if not unit or change_number(unit.split()):
        return text, ""
    if any(character.isdigit() for character in unit):
        return text, ""
    return text[: match.start()].rstrip(), canonical(unit, match[2] or "")


def _ratio(parts: dict[str, str | None]) -> Fraction | None:
    top, bottom = Fraction(parts["top"] or "0"), Fraction(parts["bottom"] or "0")
    if bottom == 0:
        return None
    value = top / bottom + int(parts.get("whole") or "0")
    return -value if parts.get("sign") == "-" else value
