r"""Notations of whole answers in one form: bases, dates, ratios, residues, labels, styles."""

from __future__ import annotations

import re
from collections.abc import Callable

_STYLE = (
    r"\\(?:text(?:bf|it|rm|sf|tt|normal)?|math(?:rm|bf|it|sf|tt)|mbox|operatorname|boldsymbol)\s?"
)
_NESTED = re.compile(rf"{_STYLE}\{{\s*({_STYLE}\{{[^{{}}]*\}})\s*\}}")
_THOUSANDS = re.compile(r"(?<=\d)(?:,\s*\\!|\{,\}\s*\\!)\s*(?=\d{3}(?!\d))")
_COLON = re.compile(
    rf"\s*(?:\\colon(?![A-Za-z])|\\!:\\!|\{{:\}}|(?:{_STYLE}|\\math(?:bin|rel)\s?)\{{\s*:\s*\}})\s*"
)
_TO = re.compile(rf"(?<=\d)\s*(?:{_STYLE}\{{\s*to\s*\}}|\bto\b)\s*(?=\d)")
_NAME = rf"{_STYLE}\{{\s*([A-Za-z ]+)\}}"
_RATE = re.compile(rf"\\[dt]?frac\s?\{{\s*{_NAME}\s*\}}\{{\s*{_NAME}\s*\}}|{_NAME}\s*/\s*{_NAME}")
_LABEL = re.compile(
    rf"\A\s*(?:{_STYLE}\{{)?\s*(?:the )?(?:final )?answer\s*[:=]\s*(?P<close>\}})?", re.IGNORECASE
)
_EXCLUDED = re.compile(r"(?:,\s*(?:\\text\s?\{\s*)?|\\text\s?\{\s*,\s*)not\b.*\Z", re.DOTALL)
_TAIL = re.compile(r"(?<=\d)\{\}\s*\Z")
_BIG = re.compile(r"\\big(cup|cap)(?![A-Za-z])")
_BASES = (
    *("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
)
_BASE = re.compile(
    rf"\A\s*(?P<open>\()?(?P<digits>\d[\dA-F]*(?:\.[\dA-F]+)?|\d*{_STYLE}\{{[\dA-F]+\}}[\dA-F]*)"
    rf"(?(open)\))\s*(?:_\s?\{{?\s*\(?\s*(?:{_STYLE}\{{\s*)?(?:base )?(?P<sub>\d+|[a-z]+)"
    rf"[\s}})]*|(?:{_STYLE}\{{\s*)?\s*(?:in )?base[ -]?\}}?\s*(?P<word>\d+|[a-z]+)\s*\}}?)\s*\Z"
)
_UNSTYLED = re.compile(rf"{_STYLE}\{{([^{{}}]*)\}}")
_RESIDUE = re.compile(
    r"\A(?:(?P<name>[A-Za-z])\s*\\equiv\s*)?(?P<value>-?\d+)\s*"
    r"(?:\\[pb]?mod\s?\{?|\(\s*\\?(?:text\{)?(?:b?mod)\}?\s*)(?P<modulus>\d+)\s*[})]?\Z"
)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = (
    r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    r"|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
_DATES = [
    re.compile(rf"(?:(?:on )?\w+day,? )?(?:the )?{form}\.?\Z", re.IGNORECASE)
    for form in (
        rf"{_MONTH} (?:the )?(?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?:,? ?(?P<year>\d{{4}}))?",
        rf"(?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?: day)?(?: of)? {_MONTH}(?:,? ?(?P<year>\d{{4}}))?",
        r"(?P<year>\d{4})-(?P<number>\d\d)-(?P<day>\d\d)",
    )
]
_A_DATE = re.compile("|".join(_MONTHS) + r"|\d{4}-\d\d-\d\d", re.IGNORECASE)


def standard(text: str) -> str:
    """An answer with these notations in one form; the rest as it is."""
    for needs, rewrite in _RULES:
        if any(need in text for need in needs):
            text = rewrite(text)
    return text


def _nested(text: str) -> str:
    for _ in range(4):
        inner = _NESTED.sub(r"\1", text)
        if inner == text:
            break
        text = inner
    return text


def _rate(match: re.Match[str]) -> str:
    top, bottom = match[1] or match[3], match[2] or match[4]
    return rf"\text{{ {top.strip()} per {bottom.strip()}}}"


def _label(text: str) -> str:
    match = _LABEL.match(text)
    if not match:
        return text
    rest = text[match.end() :]
    return (
        rest if match["close"] or not rest.endswith("}") or "\\text" not in match[0] else rest[:-1]
    )


def _base(text: str) -> str:
    match = _BASE.match(text)
    if not match:
        return text
    base = match["sub"] or match["word"]
    if base in _BASES:
        base = str(_BASES.index(base) + 2)
    if not base.isdecimal():
        return text
    digits = _UNSTYLED.sub(r"\1", match["digits"])
    return f"{digits}_{{{base}}}"


def _residue(text: str) -> str:
    match = _RESIDUE.match(text.strip())
    if not match:
        return text
    name = f"{match['name']} = " if match["name"] else ""
    modulus = int(match["modulus"][:18]) or 1
    return rf"{name}{int(match['value'][:18]) % modulus}\text{{ modulo {modulus}}}"


def date(text: str) -> str | None:
    """``date 5-5-2020`` of a day, with or without year, in one of the usual ways; else None."""
    if len(text) > 60 or not _A_DATE.search(text):
        return None
    text = " ".join(_UNSTYLED.sub(r"\1", text).replace("\\", " ").split()).replace(" ,", ",")
    for form in _DATES:
        if match := form.match(text):
            parts = match.groupdict()
            month = parts.get("number") or str(_MONTHS.index(parts["month"][:3].lower()) + 1)
            return f"date {int(month)}-{int(parts['day'])}-{parts['year'] or ''}"
    return None


_RULES: tuple[tuple[tuple[str, ...], Callable[[str], str]], ...] = (
    (("{\\", "{ \\"), _nested),
    ((",",), lambda text: _THOUSANDS.sub(",", text)),
    ((":", "\\colon"), lambda text: _COLON.sub(":", text)),
    (("to",), lambda text: _TO.sub(":", text)),
    (("frac", "/"), lambda text: _RATE.sub(_rate, text)),
    (("nswer", "NSWER"), _label),
    (("not",), lambda text: _EXCLUDED.sub("", text)),
    (("{}",), lambda text: _TAIL.sub("", text)),
    (("\\big",), lambda text: _BIG.sub(r"\\\1", text)),
    (("_", "base"), _base),
    (("mod", "equiv"), _residue),
)
"""Conditions on a text for each rule, and the rule."""
