r"""One spelling for characters and commands that are written in several ways.

Applied to answers before anything else reads them; linear in their length.
"""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction

from rlvr_math.notation import standard

MAX_CHARACTERS = 2000
"""Longer answers are left as they are."""

_SLASHED = {character: unicodedata.normalize("NFKC", character) for character in "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"}
"""One half as a digit, U+2044 and a digit."""
_VULGAR = {
    character: f"\\frac{{{slashed[0]}}}{{{slashed[2]}}}" for character, slashed in _SLASHED.items()
}
_LETTERS = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho "
    "varsigma sigma tau upsilon phi chi psi omega"
)
_GREEK = {
    chr(ord("\N{GREEK SMALL LETTER ALPHA}") + at): f"\\{name} "
    for at, name in enumerate(_LETTERS.split())
}
_DIGITS = {chr(ord("\N{FULLWIDTH DIGIT ZERO}") + digit): str(digit) for digit in range(10)}
CHARACTERS = str.maketrans(
    {
        "\N{MINUS SIGN}": "-",
        "\N{EN DASH}": "-",
        "\N{HYPHEN}": "-",
        "\N{NON-BREAKING HYPHEN}": "-",
        "\N{SMALL HYPHEN-MINUS}": "-",
        "\N{FULLWIDTH HYPHEN-MINUS}": "-",
        "\N{FULLWIDTH PLUS SIGN}": "+",
        "\N{FULLWIDTH PERCENT SIGN}": "%",
        "\N{FULLWIDTH EQUALS SIGN}": "=",
        "\N{FULLWIDTH COMMA}": ",",
        "\N{FULLWIDTH LEFT PARENTHESIS}": "(",
        "\N{FULLWIDTH RIGHT PARENTHESIS}": ")",
        "\N{FRACTION SLASH}": "/",
        "\N{DIVISION SLASH}": "/",
        "\N{DIVISION SIGN}": r"\div ",
        "\N{MULTIPLICATION SIGN}": r"\times ",
        "\N{MIDDLE DOT}": r"\cdot ",
        "\N{DOT OPERATOR}": r"\cdot ",
        "\N{INFINITY}": r"\infty ",
        "\N{LESS-THAN OR EQUAL TO}": r"\le ",
        "\N{GREATER-THAN OR EQUAL TO}": r"\ge ",
        "\N{NOT EQUAL TO}": r"\ne ",
        "\N{ALMOST EQUAL TO}": r"\approx ",
        "\N{PLUS-MINUS SIGN}": r"\pm ",
        "\N{SQUARE ROOT}": r"\sqrt ",
        "\N{CUBE ROOT}": r"\sqrt[3]",
        "\N{UNION}": r"\cup ",
        "\N{INTERSECTION}": r"\cap ",
        "\N{ELEMENT OF}": r"\in ",
        "\N{EMPTY SET}": r"\varnothing ",
        "\N{DOUBLE-STRUCK CAPITAL R}": r"\mathbb{R}",
        "\N{LOGICAL OR}": r"\lor ",
        "\N{LOGICAL AND}": r"\land ",
        "\N{LEFT FLOOR}": r"\lfloor ",
        "\N{RIGHT FLOOR}": r"\rfloor ",
        "\N{LEFT CEILING}": r"\lceil ",
        "\N{RIGHT CEILING}": r"\rceil ",
        "\N{DEGREE SIGN}": r"^{\circ}",
        "\N{MASCULINE ORDINAL INDICATOR}": r"^{\circ}",
        "\N{HORIZONTAL ELLIPSIS}": "...",
        "\N{NO-BREAK SPACE}": " ",
        "\N{THIN SPACE}": " ",
        "\N{NARROW NO-BREAK SPACE}": " ",
    }
    | _GREEK
    | _DIGITS
    | _VULGAR
)

_HIDDEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e01ef]"
)
_ROOT = re.compile(r"\u221a\s*(\d+(?:\.\d+)?)")
_SUPER = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n", strict=True))
_SUB = dict(zip("₀₁₂₃₄₅₆₇₈₉", "0123456789", strict=True))
_RAISED = re.compile(f"[{''.join(_SUPER)}]+")
_LOWERED = re.compile(f"[{''.join(_SUB)}]+")
_DEGREES = re.compile(
    r"\^\s*+(?:\{(?:\s|\\[,;:! ])*+\\circ\s*+\}|\\circ(?![A-Za-z]))|\\degrees?(?![A-Za-z])"
)
_EMPTY = re.compile(r"\\(?:mathstrut|strut)(?![A-Za-z])|\\[hv]?phantom ?(?:\{[^{}]*\}|[^\\{\s])")
_GAP = re.compile(r"\\[hv]space\*? ?\{[^{}]*\}")
_DRESS = re.compile(
    r"\\(?:text)?color ?\{[^{}]*\}"
    r"|\\(?:underline|boldmath|tiny|(?:script|footnote|normal)size|small|large|Large|LARGE|huge|Huge"
    r"|bf|rm|it)(?![A-Za-z])"
)
_SAID = re.compile(r"\\(lor|vee|land|wedge|textminus|minus)(?![A-Za-z])")
_WORDS = {"lor": r"\text{ or }", "vee": r"\text{ or }", "land": r"\text{ and }"}
_WORDS |= {"wedge": r"\text{ and }", "textminus": "-", "minus": "-"}
_CHOSEN = re.compile(r"(?:\{\} ?)?[_^] ?(?:\{(\d{1,4})\}|(\d)) ?C ?_ ?(?:\{(\d{1,4})\}|(\d)(?!\d))")
"""``{}_{10}C_3``, in several ways."""
_LETTER_TIMES = re.compile(r"(?<=\d) [xX] (?=10 ?\^)")
_ROW = re.compile(r"\\\\(?: ?\[-?[\d.]+ ?(?:pt|em|ex|mm|cm|in|mu)\])?")
_DOTS = re.compile(r"\\[lcd]?dots(?![A-Za-z])")
_COMPARED = re.compile(r"<=|>=|!=")
_FACTORIAL = re.compile(r"(?<=[\d)])!=(?!=)")
_SIDES = re.compile(r"[=<>,;]")
_NO_VARIABLE = re.compile(
    r"\\(?:[lcd]?dots|cdot|times|div|left|right|pi|[cdt]?frac|[dt]?binom|sqrt)(?![A-Za-z])"
)
_SIGNS = {"<=": r"\le ", ">=": r"\ge ", "!=": r"\ne "}
_PERIODIC = re.compile(
    r"(?P<whole>\d{0,40})\.(?P<fixed>\d{0,40})"
    r"(?:\\(?:overline|bar|dot) ?(?:\{(?P<bar>\d{1,40})\}|(?P<digit>\d))"
    r"|(?P<dots>\.\.\.))"
    r"|(?P<before>\d{1,40})\.\((?P<round>\d{1,40})\)"
)
_REPEATED = re.compile(r"(?P<fixed>\d*?)(?:(?P<one>\d)(?P=one){2,}|(?P<more>\d{2,}?)(?P=more)+)\Z")


def visible(text: str) -> str:
    """The text without characters that do not show, and composed letters for decomposed ones."""
    if text.isascii():
        return text
    return _HIDDEN.sub("", unicodedata.normalize("NFC", text))


def unify(text: str) -> str:
    """Return the answer in one spelling."""
    if not text.isascii():
        text = _ROOT.sub(r"\\sqrt{\1}", visible(text)).translate(CHARACTERS)
        text = unicodedata.normalize("NFKC", _raised(text))
    if len(text) > MAX_CHARACTERS:
        return text.replace("\\\\", "\\cr ")
    text = text.replace("~", " ").strip().strip("*`").strip()
    if "\\" in text:
        text = _ROW.sub(r"\\cr ", text)  # a new row, not an escaped space
        text = _SAID.sub(lambda match: _WORDS[match[1]], _DRESS.sub(" ", text))
        text = _DEGREES.sub(r"^{\\circ}", _GAP.sub(" ", _EMPTY.sub("", text))).removesuffix("\\")
        text = _DOTS.sub("...", text)
    if "." in text:
        text = _PERIODIC.sub(_fraction, text)
    if "C" in text:
        text = _CHOSEN.sub(lambda n: f"\\binom{{{n[1] or n[2]}}}{{{n[3] or n[4]}}}", text)
    text = _LETTER_TIMES.sub(r"\\times ", text)
    if "!=" in text:
        text = _FACTORIAL.sub(_factorial, text)
    text = _COMPARED.sub(lambda sign: _SIGNS[sign[0]], text)
    return standard(text.replace("**", "^"))


def _raised(text: str) -> str:
    text = _RAISED.sub(lambda run: f"^{{{''.join(_SUPER[digit] for digit in run[0])}}}", text)
    return _LOWERED.sub(lambda run: f"_{{{''.join(_SUB[digit] for digit in run[0])}}}", text)


def _factorial(match: re.Match[str]) -> str:
    """``5!=120`` says what 5! is; with a variable next to it, as in ``3!=x``, the sign is "not"."""
    left = _SIDES.split(match.string[: match.start()])[-1]
    right = _SIDES.split(match.string[match.end() :])[0]
    constant = not re.search("[A-Za-z]", _NO_VARIABLE.sub("", left + " " + right))
    return "! =" if constant and right.strip() else match[0]


def _fraction(match: re.Match[str]) -> str:
    r"""A periodic decimal as ``\frac{p}{q}``; others lose the dots after them."""
    whole, fixed = match["whole"] or match["before"] or "0", match["fixed"] or ""
    period = match["bar"] or match["digit"] or match["round"]
    if match["dots"]:
        repeated = _REPEATED.match(fixed)
        if repeated is None:
            return match[0].removesuffix("...")
        fixed, period = repeated["fixed"], repeated["one"] or repeated["more"]
    value = Fraction(int(whole + fixed)) + Fraction(int(period), 10 ** len(period) - 1)
    value /= 10 ** len(fixed)
    if value.denominator == 1:
        return str(value.numerator)
    return f"\\frac{{{value.numerator}}}{{{value.denominator}}}"
