"""The tokens of running text, and which of them are mathematics."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise

from rlvr_math import number_words
from rlvr_math.formulas import formulas
from rlvr_math.units import UNIT_WORDS

NUMBER = r"(?:\d{1,3}+(?:(?:,|\{,\}|\\,|,\\!)\d{3}(?!\d))++|\d++)(?:\.\d++)?|(?<![\w.])\.\d++"
_MONTH = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?"
    r"|Sept?(?:ember)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)\b\.?"
)
_TOKEN = re.compile(
    r"(?P<space>[ \t\r]+|<<[^<>\n]*>>|\\[,;:! ]|\\q?quad(?![A-Za-z])|~|</?[A-Za-z]+>|\*\*|__|`)"
    rf"|(?P<date>{_MONTH}\ \d{{1,2}}(?:st|nd|rd|th)?(?:,?\ \d{{4}})?(?!\d)|{_MONTH}\ \d{{4}}"
    rf"|\d{{1,2}}(?:st|nd|rd|th)?\ (?:of\ )?{_MONTH}(?:,?\ \d{{4}})?"
    r"|\d{1,2}:\d\d:\d\d(?:\ ?[ap]\.?m\b\.?)?|\d{1,2}(?::\d\d)?\ ?[apAP]\.?[mM]\b\.?)"
    rf"|(?P<num>(?:\\?\$|[€£¥₹])?\ ?(?:{NUMBER})(?:(?<=\d)(?:st|nd|rd|th)\b)?)"
    r"|(?P<styled>\\(?:text(?:bf|it|rm)?|math(?:rm|bf|it|sf)|mbox|operatorname)\s?\{[^{}]*\})"
    r"|(?P<cmd>\\(?:begin|end)\s?\{[a-zA-Z]+\*?\}|\\[A-Za-z]++|\\[{}|%$\\])"
    r"|(?P<rate>(?:km|mi|m|ft|cm|kg|g|miles|words)/(?:h(?:r|our)?|s(?:ec)?|min(?:ute)?)\b)"
    r"|(?P<word>(?:[^\W\d_]++(?:['\u2019-](?=[^\W\d_]))?)++)"
    r"|(?P<open>[(\[{])|(?P<close>[)\]}])"
    r"|(?P<sep>[,;])"
    r"|(?P<end>[=-]>|[\u2192\u21d2\u2234]|[.?](?=\s|\Z|[*_`\"')\]])|\n)"
    r"|(?P<op>\.\.\.|[-+*/^_=<>|!%':&$\u00b0\u00b1\u2213\u00d7\u00f7\u00b7\u22c5\u2264\u2265\u2260"
    r"\u2248\u221a\u221e\u222a\u2229\u2208\u2212\u2013\u2026\u2205\u20ac\u00a2"
    r"\u00b2\u00b3\u00b9\u2070-\u2079\u2080-\u2089\u00bc-\u00be\u2150-\u215e])"
    r"|(?P<other>.)",
    re.DOTALL | re.VERBOSE,
)
_BREAKS = {"\\boxed", "\\fbox", "\\to", "\\Rightarrow", "\\implies", "\\therefore", "\\rightarrow"}
_PHRASES = {("out", "of"): "/", ("divided", "by"): "/", ("multiplied", "by"): "*"}
_BETWEEN = {"mod": r" \bmod ", "modulo": r" \bmod ", "choose": r" \choose ", "over": "/"}
_NAMES = {"sqrt", "pi", "infinity", "sin", "cos", "tan", "log", "ln", "exp", "arctan", "theta"}
_SIGNS = {"minus": "-", "negative": "-", "plus": "+", "positive": "+", "times": "*"}
_BEFORE_ONLY = {"negative", "positive"}
_BEHIND = {"factorial": "!", "squared": "^2", "cubed": "^3", "percent": r"\%"}
JOINS = {"and", "or", "to"}
_LABELS = {
    *("step", "equation", "eq", "problem", "question", "case", "figure", "table", "section"),
    *("part", "line", "theorem", "lemma", "chapter", "page", "exercise", "option", "method", "no"),
}


@dataclass(slots=True)
class Token:
    """A token of running text.

    Attributes:
        kind: The group of the pattern that it matched, ``formula`` or ``other``.
        text: As it stands there.
        start: Where it begins.
        end: Where it ends.
        maths: Whether it belongs to an expression.
        reading: What it is in that expression; "" where an earlier token stands for it.
    """

    kind: str
    text: str
    start: int
    end: int
    maths: bool = False
    reading: str = field(default="")


def tokenised(text: str, starts_line: bool = True) -> list[Token]:
    """The tokens of a text; ``maths`` says which belong to an expression."""
    tokens = _tokens(text)
    _mark(tokens, starts_line)
    return tokens


def _tokens(text: str) -> list[Token]:
    tokens: list[Token] = []
    at = 0
    for formula in [*formulas(text), None]:
        end = formula.start if formula else len(text)
        for match in _TOKEN.finditer(text, at, end):
            kind = match.lastgroup or "other"
            if match[0] in _BREAKS:
                kind = "end"
            if kind == "op" and match[0] == "!" and _exclaims(text, match.end()):
                kind = "end"
            if match[0] == "|" and _is_cell(text, match.start()):
                kind = "end"
            if kind == "op" and match[0] in "*-" and _is_bullet(text, match.start(), match.end()):
                kind = "space"
            tokens.append(Token(kind, match[0], match.start(), match.end(), reading=match[0]))
        if formula:
            content = formula.content
            tokens.append(
                Token("formula", content, formula.start, formula.end, bool(content), content)
            )
            at = formula.end
    return tokens


def _exclaims(text: str, end: int) -> bool:
    return bool(re.match(r"\s*\Z|\s+[A-Za-z\n]", text[end : end + 3]))


def _is_cell(text: str, at: int) -> bool:
    """Whether a bar stands between the cells of a table."""
    start, end = text.rfind("\n", 0, at) + 1, text.find("\n", at)
    line = text[start : end if end >= 0 else len(text)].strip()
    return line[:1] == "|" and line[-1:] == "|" and line.count("|") > 2


def _is_bullet(text: str, start: int, end: int) -> bool:
    line = text.rfind("\n", 0, start) + 1
    return not text[line:start].strip() and bool(re.match(r"[ \t]+[^\d\s$\\]", text[end : end + 9]))


def _mark(tokens: list[Token], starts_line: bool) -> None:
    """Say which tokens are mathematics."""
    solid = [token for token in tokens if token.kind != "space"]
    for at, token in enumerate(solid):
        before = solid[at - 1] if at else None
        after = solid[at + 1] if at + 1 < len(solid) else None
        match token.kind:
            case "num" | "date" | "styled" | "cmd" | "op":
                further = at + 2 < len(solid) and solid[at + 2].text != "\n"
                further = further and (at > 0 or starts_line)
                token.maths = not _is_label(token, before, after, further)
            case "rate":
                token.maths = before is not None and before.maths
                token.reading = rf"\text{{ {token.text}}}"
            case "word":
                _mark_word(solid, at, token, before, after)
    _mark_brackets(solid)
    for left, right in pairwise(tokens):
        if right.kind == "space" and left.maths:
            right.maths, right.reading = True, " "


def _is_label(token: Token, before: Token | None, after: Token | None, further: bool) -> bool:
    """Whether it counts something else than the answer: ``Step 4``, ``1.`` before a list item."""
    if token.kind == "op":
        return token.text == ":" and not (
            before is not None and after is not None and {before.kind, after.kind} == {"num"}
        )
    if token.kind != "num":
        return False
    if before is not None and before.kind == "word" and before.text.casefold() in _LABELS:
        return True
    starts_line = before is None or before.text == "\n"
    item = after is not None and after.text == "." and after.start == token.end
    return starts_line and item and token.text.strip().isdecimal() and further


def _mark_word(
    solid: list[Token], at: int, token: Token, before: Token | None, after: Token | None
) -> None:
    word = token.text.casefold()
    operand = before is not None and before.maths and before.kind not in ("op", "open")
    if word in _NAMES:
        token.maths, token.reading = True, f" {word} "
    elif number_words.is_number_word(word) or (word == "a" and _scales(after)):
        _mark_spelt(solid, at, token, operand)
    elif word in _SIGNS and after is not None and (word in _BEFORE_ONLY or at + 1 < len(solid)):
        if _is_operand(after):
            token.maths, token.reading = True, f" {_SIGNS[word]} "
    elif operand and after is not None and (word, after.text.casefold()) in _PHRASES:
        if at + 2 < len(solid) and _is_operand(solid[at + 2]):
            token.maths, token.reading = True, _PHRASES[word, after.text.casefold()]
            after.maths, after.reading = True, ""
    elif operand and word in _BETWEEN and after is not None and _is_operand(after):
        token.maths, token.reading = True, _BETWEEN[word]
    elif word in _BEHIND and operand:
        token.maths, token.reading = True, _BEHIND[word]
    elif len(token.text) == 1:
        _mark_letter(token, before, after, operand)
    elif operand and before is not None and _is_unit(word, before):
        token.maths, token.reading = True, rf"\text{{ {token.text}}}"
    elif token.text.isupper() and len(token.text) <= 3:
        token.maths = after is not None and after.text == "="


def _scales(token: Token | None) -> bool:
    return token is not None and token.text.casefold() in number_words.SCALES


def _is_operand(token: Token) -> bool:
    if token.kind == "word":
        word = token.text.casefold()
        return number_words.is_number_word(word) or word in _NAMES or len(word) == 1
    return token.kind in ("num", "formula", "cmd", "open") or token.text in "-+\u221a\u221e"


def _mark_spelt(solid: list[Token], at: int, token: Token, operand: bool) -> None:
    """Read a number in words that begins here; its first token says all of it."""
    if token.maths:
        return
    before = solid[at - 1] if at else None
    stop = at
    while stop < len(solid) and solid[stop].kind == "word" and _goes_on(solid, stop):
        stop += 1
    words = [part.text for part in solid[at:stop]]
    if operand and before is not None and before.kind != "word" and words[0] in number_words.SCALES:
        value = number_words.value(words)
        if value is not None:
            token.maths, token.reading = True, rf"\cdot {value}"
    elif (value := number_words.value(words)) is not None and words != ["half"]:
        lone = words[0].casefold() in ("one", "a") and len(words) == 1
        if lone and not _is_lone_value(before, solid[at + 1] if at + 1 < len(solid) else None):
            return
        token.maths, token.reading = True, str(value)
    if token.maths:
        for part in solid[at + 1 : stop]:
            part.maths, part.reading = True, ""


def _goes_on(solid: list[Token], at: int) -> bool:
    word = solid[at].text.casefold()
    if number_words.is_number_word(word) or word in number_words.PARTS or word == "a":
        return True
    after = solid[at + 1].text.casefold() if at + 1 < len(solid) else ""
    return (
        word == "and"
        and (after == "a" or number_words.is_number_word(after))
        and at > 0
        and (_scales(solid[at - 1]) or after == "a")
    )


def _is_lone_value(before: Token | None, after: Token | None) -> bool:
    """Whether ``one`` counts, rather than stands for a thing."""
    if after is not None and after.kind == "word" and after.text.casefold() not in ("or", "and"):
        return before is not None and before.maths
    if before is None or before.kind != "word":
        return True
    return before.text.casefold() in ("is", "are", "equals", "be", "answer", "minus", "negative")


def _mark_letter(token: Token, before: Token | None, after: Token | None, operand: bool) -> None:
    """A letter is a variable next to an operator, and a unit behind a number."""
    behind = before is not None and before.maths and before.end == token.start
    beside = after is not None and after.kind == "num" and after.start == token.end
    glued = behind and before is not None and before.kind in ("num", "op", "close", "cmd")
    joined = before is not None and before.kind == "op" and before.maths and before.text != "%"
    if beside or glued or joined:
        token.maths = True
    elif after is not None and after.kind in ("op", "open") and after.text not in ("'", ":"):
        near = after.end - token.end <= 1
        token.maths = after.kind == "op" or near
        if token.text in "xX" and before is not None and before.kind == "num":
            token.reading = r"\times "
    elif token.text in "xX" and operand and after is not None and after.kind == "num":
        token.maths, token.reading = True, r"\times "
    elif operand and token.text in "mgshlLNJWVK" and before is not None and before.kind == "num":
        token.maths, token.reading = True, rf"\text{{ {token.text}}}"


def _is_unit(word: str, before: Token) -> bool:
    if before.kind == "word" and before.reading.startswith(r"\text"):
        return word in UNIT_WORDS or word == "per"
    return word in UNIT_WORDS and before.kind in ("num", "formula", "close", "word", "op")


def _mark_brackets(solid: list[Token]) -> None:
    """Brackets are mathematics where all between them is; a brace always."""
    stack: list[int] = []
    for at, token in enumerate(solid):
        if token.kind == "open":
            stack.append(at)
        elif token.kind == "close" and stack:
            start = stack.pop()
            inside = solid[start + 1 : at] if at - start < 200 else []
            braces = token.text == "}" and start > 0 and solid[start - 1].maths
            if braces:
                for inner in inside:
                    inner.maths = True
            plain = bool(inside) and all(
                inner.maths or inner.kind == "sep" or inner.kind in ("open", "close")
                for inner in inside
            )
            single = len(inside) == 1 and len(inside[0].text) == 1 and inside[0].kind == "word"
            if braces or plain or single:
                for inner in (solid[start], *inside, token):
                    inner.maths = True
        elif token.kind == "end" or len(stack) > 60:
            stack.clear()
