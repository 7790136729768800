r"""Taking the LaTeX of final answers apart into tokens, within fixed bounds."""

from __future__ import annotations

import re

from rlvr_math.spelling import MAX_CHARACTERS

MAX_TOKENS = 500
MAX_DEPTH = 30

Token = tuple[str, str]
"""Kind (``num``, ``cmd``, ``sym``, ``word``, ``begin``, ``end``, ``chr``) and text."""

OPENERS = {"(", "[", "{", "\\{", "\\langle", "\\lfloor", "\\lceil"}
CLOSERS = {")", "]", "}", "\\}", "\\rangle", "\\rfloor", "\\rceil"}

_LAYOUT = re.compile(
    r"\\(?:left|right|[bB]igg?[lrm]?|displaystyle|textstyle|limits|quad|qquad)"
    r"(?![A-Za-z])\.?|\\[,;:! $%()\[\]]|[$%]"
    r"|\\(?:[lr]vert|[lr]Vert|vert)(?![A-Za-z])"
)
_BARS = re.compile(r"\\[lr]?[vV]ert(?![A-Za-z])")
_LATEX_COMMA = re.compile(r"(?<=\d)(?:,\\!|\{,\}|\\,)(?=\d{3}(?!\d))")
_COMMAS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})++(?![\d,]|, ?\d)")
_STYLES = (
    r"\\(?:text|textbf|textit|textrm|textnormal|mbox|mathrm|mathbf|mathsf|mathit|operatorname"
    r"|boldsymbol|bold|vec|overrightarrow)"
)
_SCIENTIFIC = re.compile(r"(?<=\d)[eE](?=[-+]?\d{1,3}(?![\d.]))")
_FRENCH = re.compile(r"(?P<open>[\[\]])(?P<ends>[^\[\]]*[,;][^\[\]]*)(?P<close>[\[\]])")
"""An interval whose open ends have brackets that face outwards."""
_TOKEN = re.compile(
    r"\s+"
    r"|(?P<num>\d++(?:\.\d++)?|\.\d++)"
    r"|\\begin\s?\{(?P<begin>[a-z]+)\*?\}(?:(?<=array\})\s?\{[^{}]*\})?"
    r"|\\end\s?\{(?P<end>[a-z]+)\*?\}"
    rf"|{_STYLES}\s?\{{(?P<styled>[^{{}}]*)\}}"
    r"|(?P<reals>\\mathbb ?(?:\{R\}|R))"
    r"|(?P<row>\\cr\b)"
    r"|(?P<cmd>\\[A-Za-z]++|\\[{}|])"
    r"|(?P<letters>[A-Za-z]++)"
    r"|(?P<chr>.)",
    re.DOTALL,
)
_ORDINAL = re.compile(r"\A(\d{1,9})(?:st|nd|rd|th)\Z")
_JOINT = re.compile(r"\b(and|or)\b")
_SPELLINGS = {
    "\\frac": "\\dfrac \\tfrac \\cfrac \\nicefrac \\sfrac",
    "\\binom": "\\dbinom \\tbinom",
    "*": "\\times \\cdot \\ast",
    "/": "\\div",
    "\\{": "\\lbrace",
    "\\}": "\\rbrace",
    "[": "\\lbrack",
    "]": "\\rbrack",
    "|": "\\mid \\|",
    "\\le": "\\leq \\leqslant",
    "\\ge": "\\geq \\geqslant",
    "<": "\\lt",
    ">": "\\gt",
    "\\ne": "\\neq",
    "\\phi": "\\varphi",
    "\\epsilon": "\\varepsilon",
    "\\varnothing": "\\emptyset",
    "\\asin": "\\arcsin",
    "\\acos": "\\arccos",
    "\\atan": "\\arctan",
    "\\log": "\\lg",
    "\\infty": "\\infin",
}
"""Commands that mean the same, by the one that is read."""
_SYNONYMS = {
    spelling: command for command, others in _SPELLINGS.items() for spelling in others.split()
}
_PLAIN_NAMES = {
    name: f"\\{name}"
    for name in ["sqrt", "pi", "sin", "cos", "tan", "cot", "sec", "csc", "log", "ln", "exp"]
} | {
    **dict.fromkeys(("infinity", "inf", "oo"), "\\infty"),
    **{f"arc{name}": f"\\a{name}" for name in ("sin", "cos", "tan")},
}
_UNITS = {"mm", "cm", "km", "kg", "mg", "ml", "mL", "oz", "lb", "lbs", "ft", "yd", "hr", "mph"}
"""Short letter runs that are units rather than products."""


class UnreadableError(Exception):
    """The text is no expression that is understood, or is beyond the bounds."""


def split_tokens(text: str) -> list[Token]:
    """Tokens of an answer in the one spelling of ``unify``.

    Raises:
        UnreadableError: If it is too long, or nested too deeply.
    """
    if len(text) > MAX_CHARACTERS:
        raise UnreadableError("too long")
    text = _LATEX_COMMA.sub("", text).replace(r"^{\circ}", r"\deg ")
    text = _ORDINAL.sub(r"\1", text.strip())
    text = _LAYOUT.sub(" ", _BARS.sub("|", text)).strip().rstrip(".,;: ")
    if text[:1] in ("[", "]") and (match := _FRENCH.fullmatch(text)):
        opener, closer = "(["[match["open"] == "["], ")]"[match["close"] == "]"]
        text = f"{opener}{match['ends']}{closer}"
    text = _SCIENTIFIC.sub(r"*10^", text)
    text = re.sub(r"\*10\^([-+]?\d+)", r"*10^{\1}", text)
    if not any(character in text for character in "([") and "\\{" not in text:
        text = _COMMAS.sub(lambda match: match[0].replace(",", ""), text)
    tokens: list[Token] = []
    for match in _TOKEN.finditer(text):
        tokens.extend(_tokens(match))
        if len(tokens) > MAX_TOKENS:
            raise UnreadableError("too many symbols")
    _check_depth(tokens)
    return tokens


def _tokens(match: re.Match[str]) -> list[Token]:
    kind = match.lastgroup
    if kind is None:
        return []
    piece = match[kind]
    if kind == "cmd":
        piece = _SYNONYMS.get(piece, piece)
        return [("cmd" if piece.startswith("\\") else "chr", piece)]
    if kind == "letters":
        if piece in ("and", "or"):
            return [("word", piece)]
        if piece in _PLAIN_NAMES:
            return [("cmd", _PLAIN_NAMES[piece])]
        words = len(piece) > 3 or piece in _UNITS
        return [("word", piece)] if words else [("sym", letter) for letter in piece]
    if kind == "reals":
        return [("cmd", "\\reals")]
    if kind == "styled":
        return _styled(piece)
    return [("num" if kind == "num" else kind, piece)]


def _styled(content: str) -> list[Token]:
    spaced, content = content.startswith(" "), content.strip()
    if len(content) == 1 and content.isalpha():
        return [("word" if spaced else "sym", content)]
    if re.fullmatch(r"\d+(\.\d+)?", content):
        return [("num", content)]
    if content in _PLAIN_NAMES:
        return [("cmd", _PLAIN_NAMES[content])]
    if content[:1].isdigit() or content[:2].lstrip("-")[:1].isdigit():
        token_lists = [_tokens(match) for match in _TOKEN.finditer(content)]
        return [token for tokens in token_lists for token in _as_words(tokens)]
    parts = [part.strip(" ,") for part in _JOINT.split(content)]
    return [("word", part) for part in parts if part]


def _as_words(tokens: list[Token]) -> list[Token]:
    """The letters between braces of text as one word, not as variables."""
    if len(tokens) > 1 and all(kind == "sym" for kind, _ in tokens):
        return [("word", "".join(piece for _, piece in tokens))]
    return [("word" if kind == "sym" else kind, piece) for kind, piece in tokens]


def _check_depth(tokens: list[Token]) -> None:
    depth = 0
    for _, piece in tokens:
        depth += (piece in OPENERS) - (piece in CLOSERS)
        if depth > MAX_DEPTH:
            raise UnreadableError("nested too deeply")
