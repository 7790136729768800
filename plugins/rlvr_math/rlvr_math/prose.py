r"""Whole mathematical expressions in running text.

A *run* is a number or formula with everything that belongs to it: operators, brackets, signs and
words of sign, scales (``5 million``), units, and what is joined to it by ``or`` or a comma. No
number is ever cut out of a longer expression. Linear in the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from rlvr_math import number_words
from rlvr_math.formulas import formulas
from rlvr_math.units import UNIT_WORDS

NUMBER = r"(?:\d{1,3}+(?:(?:,|\{,\}|\\,|,\\!)\d{3}(?!\d))++|\d++)(?:\.\d++)?|(?<![\w.])\.\d++"
_MONTH = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?"
    r"|Sept?(?:ember)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)\b\.?"
)
_TOKEN = re.compile(
    r"(?P<space>[ \t\r]+|\\[,;:! ]|\\q?quad(?![A-Za-z])|~|</?[A-Za-z]+>|\*\*|__|`)"
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
    r"|(?P<op>\.\.\.|[-+*/^_=<>|!%':&$\u00b0\u00b1\u2213\u00d7\u00f7\u00b7\u22c5\u2264\u2265\u2260"
    r"\u2248\u221a\u221e\u222a\u2229\u2208\u2212\u2013\u2026\u2205\u20ac\u00a2"
    r"\u00b2\u00b3\u00b9\u2070-\u2079\u2080-\u2089\u00bc-\u00be\u2150-\u215e])"
    r"|(?P<end>[.?](?=\s|\Z|[*_`\"')\]])|\n)"
    r"|(?P<other>.)",
    re.DOTALL | re.VERBOSE,
)
_NAMES = {"sqrt", "pi", "infinity", "sin", "cos", "tan", "log", "ln", "exp", "arctan", "theta"}
_SIGNS = {"minus": "-", "negative": "-", "plus": "+", "positive": "+", "times": "*"}
_BEFORE_ONLY = {"negative", "positive"}
_BEHIND = {"factorial": "!", "squared": "^2", "cubed": "^3", "percent": r"\%"}
_JOINS = {"and", "or", "to"}
_LABELS = {
    *("step", "equation", "eq", "problem", "question", "case", "figure", "table", "section"),
    *("part", "line", "theorem", "lemma", "chapter", "page", "exercise", "option", "method", "no"),
}
_CLAUSES = {"in", "for", "when", "if", "with", "at", "after", "by", "since", "as", "from", "given"}
_LAYOUT = {"\\left", "\\right", "\\item", "\\boxed", "\\fbox", "\\begin", "\\end"}
_EDGE_LEFT = "...*/^_!%':&=\u00d7\u00f7\u00b7\u22c5\u2248\u2026 "
_EDGE_RIGHT = "...*/^_=<>:&+-\u2212\u2013\u00d7\u00f7\u00b7\u22c5\u2248\u2264\u2265' |"
_DENIED = re.compile(
    r"(?:\b(?:not|never|cannot|neither|nor|except|excluding|false|impossible|wrong|unlike"
    r"|rather than|instead of|other than|anything but|differs? from|different from"
    r"|apart from)|n['\u2019]t)\b",
    re.IGNORECASE,
)
_REFUTED = re.compile(
    r"\W*(?:(?:is|was|are|would be|must be) (?:\w+ ){0,2}?(?:not|wrong|incorrect|false|impossible)"
    r"|(?:is|are|was|ca|wo)n['\u2019]t|cannot|fails)\b",
    re.IGNORECASE,
)
_PART_OF = re.compile(
    r"\b(?:than|at (?:least|most)|up to|between|beyond|twice|thrice|double|triple"
    r"|under|over|above|below|differs? from"
    r"|(?:half|third|quarter|root|square|cube|multiple|factor|power|logarithm|log|reciprocal"
    r"|inverse|opposite|negative|times|percent|modulo|factorial) of(?: the)?)\W*\Z",
    re.IGNORECASE,
)
_MORE = re.compile(
    r"\W{0,3}(?:more|less|fewer|greater|smaller|larger|bigger) than\b|\W{0,3}times as\b"
    r"|\ or (?:more|less|fewer)\b",
    re.IGNORECASE,
)
_MAYBE = re.compile(r"\b(?:might|may|could|perhaps|maybe|possibly)\b", re.IGNORECASE)
_OR = re.compile(r"(?:\W|\b(?:either|maybe|perhaps|possibly|even|else)\b)*\Z", re.IGNORECASE)


@dataclass(slots=True)
class Run:
    """One whole expression of a text.

    Attributes:
        text: The expression, words of sign and scale as symbols.
        start: Where it begins.
        end: Where it ends.
        sentence: Number of the sentence that it stands in.
        before: The text between what comes before it in the sentence and it.
        after: The rest of the sentence.
        formula: Whether a part of it is set as mathematics.
        denied: Whether the text says that it is not so.
        partial: Whether words around it make another value of it: ``more than 5``.
    """

    text: str
    start: int
    end: int
    sentence: int
    before: str = ""
    after: str = ""
    formula: bool = False
    denied: bool = False
    partial: bool = False


@dataclass(slots=True)
class _Token:
    kind: str
    text: str
    start: int
    end: int
    maths: bool = False
    said: str = field(default="")


def runs(text: str) -> list[Run]:
    """All whole expressions of a text, in order."""
    tokens = _tokens(text)
    _mark(tokens)
    found: list[Run] = []
    sentence, begin = 0, 0
    at = 0
    while at < len(tokens):
        token = tokens[at]
        if token.kind == "end":
            _close(found, text, sentence, token.start)
            sentence, begin = sentence + 1, token.end
            at += 1
        elif token.maths:
            stop = at
            while stop < len(tokens) and not _parts(tokens, at, stop):
                stop += 1
            run = _run(tokens[at:stop], sentence)
            if run:
                run.before = text[max(begin, 0) : run.start]
                _context(found, run)
                found.append(run)
                begin = run.end
            at = stop
        else:
            at += 1
    _close(found, text, sentence, len(text))
    return _joined(found)


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    at = 0
    for formula in [*formulas(text), None]:
        end = formula.start if formula else len(text)
        for found in _TOKEN.finditer(text, at, end):
            kind = found.lastgroup or "other"
            if kind == "op" and found[0] == "!" and _exclaims(text, found.end()):
                kind = "end"
            if found[0] == "|" and _is_cell(text, found.start()):
                kind = "end"
            if kind == "op" and found[0] in "*-" and _is_bullet(text, found.start(), found.end()):
                kind = "space"
            tokens.append(_Token(kind, found[0], found.start(), found.end(), said=found[0]))
        if formula:
            content = formula.content
            tokens.append(
                _Token("formula", content, formula.start, formula.end, bool(content), content)
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


def _mark(tokens: list[_Token]) -> None:
    """Say which tokens are mathematics."""
    solid = [token for token in tokens if token.kind != "space"]
    for at, token in enumerate(solid):
        before = solid[at - 1] if at else None
        after = solid[at + 1] if at + 1 < len(solid) else None
        match token.kind:
            case "num" | "date" | "styled" | "cmd" | "op":
                further = at + 2 < len(solid) and solid[at + 2].text != "\n"
                token.maths = not _is_label(token, before, after, further)
            case "rate":
                token.maths = before is not None and before.maths
                token.said = rf"\text{{ {token.text}}}"
            case "word":
                _mark_word(solid, at, token, before, after)
    _mark_brackets(solid)
    for left, right in zip(tokens, tokens[1:], strict=False):
        if right.kind == "space" and left.maths:
            right.maths, right.said = True, " "


def _is_label(token: _Token, before: _Token | None, after: _Token | None, further: bool) -> bool:
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
    solid: list[_Token], at: int, token: _Token, before: _Token | None, after: _Token | None
) -> None:
    word = token.text.casefold()
    operand = before is not None and before.maths and before.kind not in ("op", "open")
    if word in _NAMES:
        token.maths, token.said = True, f" {word} "
    elif number_words.is_number_word(word) or (word == "a" and _scales(after)):
        _mark_spelt(solid, at, token, operand)
    elif word in _SIGNS and after is not None and (word in _BEFORE_ONLY or at + 1 < len(solid)):
        if _is_operand(after):
            token.maths, token.said = True, f" {_SIGNS[word]} "
    elif word in _BEHIND and operand:
        token.maths, token.said = True, _BEHIND[word]
    elif len(token.text) == 1:
        _mark_letter(token, before, after, operand)
    elif operand and before is not None and _is_unit(word, before):
        token.maths, token.said = True, rf"\text{{ {token.text}}}"
    elif token.text.isupper() and len(token.text) <= 3:
        token.maths = after is not None and after.text == "="


def _scales(token: _Token | None) -> bool:
    return token is not None and token.text.casefold() in number_words.SCALES


def _is_operand(token: _Token) -> bool:
    if token.kind == "word":
        word = token.text.casefold()
        return number_words.is_number_word(word) or word in _NAMES or len(word) == 1
    return token.kind in ("num", "formula", "cmd", "open") or token.text in "-+\u221a\u221e"


def _mark_spelt(solid: list[_Token], at: int, token: _Token, operand: bool) -> None:
    """Read a number in words that begins here; its first token says all of it."""
    if token.maths:
        return
    before = solid[at - 1] if at else None
    stop = at
    while stop < len(solid) and solid[stop].kind == "word" and _goes_on(solid, stop):
        stop += 1
    words = [one.text for one in solid[at:stop]]
    if operand and before is not None and before.kind != "word" and words[0] in number_words.SCALES:
        value = number_words.value(words)
        if value is not None:
            token.maths, token.said = True, rf"\cdot {value}"
    elif (value := number_words.value(words)) is not None and words != ["half"]:
        lone = words[0].casefold() in ("one", "a") and len(words) == 1
        if lone and not _is_lone_value(before, solid[at + 1] if at + 1 < len(solid) else None):
            return
        token.maths, token.said = True, str(value)
    if token.maths:
        for one in solid[at + 1 : stop]:
            one.maths, one.said = True, ""


def _goes_on(solid: list[_Token], at: int) -> bool:
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


def _is_lone_value(before: _Token | None, after: _Token | None) -> bool:
    """Whether ``one`` counts, rather than stands for a thing."""
    if after is not None and after.kind == "word" and after.text.casefold() not in ("or", "and"):
        return before is not None and before.maths
    if before is None or before.kind != "word":
        return True
    return before.text.casefold() in ("is", "are", "equals", "be", "answer", "minus", "negative")


def _mark_letter(token: _Token, before: _Token | None, after: _Token | None, operand: bool) -> None:
    """A letter is a variable next to an operator, and a unit behind a number."""
    behind = before is not None and before.maths and before.end == token.start
    beside = after is not None and after.kind == "num" and after.start == token.end
    if beside or (behind and before is not None and before.kind in ("num", "op", "close", "cmd")) or (before is not None and before.kind == "op" and before.maths and before.text != "%"):
        token.maths = True
    elif after is not None and after.kind in ("op", "open") and after.text not in ("'", ":"):
        near = after.end - token.end <= 1
        token.maths = after.kind == "op" or near
        if token.text in "xX" and before is not None and before.kind == "num":
            token.said = r"\times "
    elif token.text in "xX" and operand and after is not None and after.kind == "num":
        token.maths, token.said = True, r"\times "
    elif operand and token.text in "mgshlLNJWVK" and before is not None and before.kind == "num":
        token.maths, token.said = True, rf"\text{{ {token.text}}}"


def _is_unit(word: str, before: _Token) -> bool:
    if before.kind == "word" and before.said.startswith(r"\text"):
        return word in UNIT_WORDS or word == "per"
    return word in UNIT_WORDS and before.kind in ("num", "formula", "close", "word", "op")


def _mark_brackets(solid: list[_Token]) -> None:
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
                for one in inside:
                    one.maths = True
            plain = bool(inside) and all(
                one.maths or one.kind == "sep" or one.kind in ("open", "close") for one in inside
            )
            single = len(inside) == 1 and len(inside[0].text) == 1 and inside[0].kind == "word"
            if braces or plain or single:
                for one in (solid[start], *inside, token):
                    one.maths = True
        elif token.kind == "end" or len(stack) > 60:
            stack.clear()


def _bridges(tokens: list[_Token], start: int, at: int) -> bool:
    """Whether a comma or a joining word between two expressions makes them one answer."""
    token = tokens[at]
    joins = token.kind == "word" and token.text.casefold() in _JOINS
    if not (token.kind == "sep" or joins or token.kind == "space"):
        return False
    rest = at
    words = 0
    while rest < len(tokens) and not tokens[rest].maths:
        one = tokens[rest]
        joining = one.kind == "word" and one.text.casefold() in _JOINS
        if not (one.kind in ("sep", "space") or joining) or rest - at > 5:
            return False
        words += joining
        rest += 1
    if rest == len(tokens) or words > 1 or (tokens[rest].kind == "op" and not _leads(tokens[rest])):
        return False
    if token.kind == "sep" and token.text == "," and not words:
        opener = _word_before(tokens, start)
        if opener in _CLAUSES:
            return False
    if joins:
        token.said = f" {token.text.casefold()} " if token.text != "to" else ":"
    return True


def _parts(tokens: list[_Token], start: int, at: int) -> bool:
    """Whether a token is no part of the expression before it."""
    token = tokens[at]
    if not token.maths:
        return not _bridges(tokens, start, at)
    if at == start or token.kind not in ("formula", "num"):
        return False
    before = next((one for one in reversed(tokens[start:at]) if one.kind != "space"), token)
    if token.kind == "formula":
        joined = before.kind in ("formula", "num", "close") and token.said[:1] not in "\\-+=<>"
        return joined and not token.said.startswith("%")
    return before.kind == "formula"


def _leads(token: _Token) -> bool:
    return token.text in ("-", "\u2212", "\u2013", "+", "\u00b1", "\u221a", "|", "\u221e", "$")


def _word_before(tokens: list[_Token], at: int) -> str:
    for token in reversed(tokens[max(0, at - 3) : at]):
        if token.kind == "word":
            return token.text.casefold()
        if token.kind != "space":
            return ""
    return ""


def _run(tokens: list[_Token], sentence: int) -> Run | None:
    """The expression that tokens make, without what hangs loose at its ends; None if none."""
    tokens = _trimmed(tokens)
    if not tokens or not any(_carries(token) for token in tokens):
        return None
    pieces = [f" {one.said} " if one.kind == "formula" else one.said for one in tokens]
    text = "".join(pieces).strip()
    formula = any(one.kind in ("formula", "cmd") for one in tokens)
    return Run(text, tokens[0].start, tokens[-1].end, sentence, formula=formula)


def _trimmed(tokens: list[_Token]) -> list[_Token]:
    start, stop = 0, len(tokens)
    while True:
        depth = least = 0
        for token in tokens[start:stop]:
            depth += (token.kind == "open") - (token.kind == "close")
            least = min(least, depth)
        before = start, stop
        if start == stop:
            return []
        first, last = tokens[start], tokens[stop - 1]
        if (
            first.kind in ("space", "sep", "close")
            or (first.kind == "op" and first.text in _EDGE_LEFT)
            or (first.kind == "open" and depth > 0)
        ):
            start += 1
        elif (
            last.kind in ("space", "sep", "open")
            or (last.kind == "op" and last.text in _EDGE_RIGHT)
            or (last.kind == "close" and least < 0)
        ):
            stop -= 1
        if (start, stop) == before:
            return tokens[start:stop]


def _carries(token: _Token) -> bool:
    """Whether a token has a value, so that an expression may consist of it."""
    if token.kind in ("num", "formula", "date"):
        return True
    if token.kind == "cmd":
        return token.text[1:2].isalpha() and token.text not in _LAYOUT
    return (
        (token.kind in ("word", "styled")
        and bool(token.said.strip()))
        or token.text in ("\u221e", "\u2205")
    )


def _context(found: list[Run], run: Run) -> None:
    """Read from the words in front whether a run is denied, or only a part of a value."""
    clause = re.split(r"[,;:]|(?<!anything )\b(?:but|so|hence|thus|therefore)\b", run.before)[-1]
    run.denied = bool(_DENIED.search(clause))
    run.partial = bool(_PART_OF.search(run.before))
    if found and found[-1].sentence == run.sentence:
        found[-1].after = run.before
        _refute(found[-1])


def _close(found: list[Run], text: str, sentence: int, end: int) -> None:
    if found and found[-1].sentence == sentence and not found[-1].after:
        found[-1].after = text[found[-1].end : end]
        _refute(found[-1])


def _refute(run: Run) -> None:
    run.denied = run.denied or bool(_REFUTED.match(run.after))
    run.partial = run.partial or bool(_MORE.match(run.after))


def _joined(found: list[Run]) -> list[Run]:
    """Runs with ``or`` between them as one, whatever they are said to count."""
    joined: list[Run] = []
    for run in found:
        last = joined[-1] if joined else None
        if last is not None and last.sentence == run.sentence:
            head, word, tail = run.before.rpartition("or")
            alone = not head[-1:].isalpha() and bool(_OR.match(tail))
            either = bool(_MAYBE.search(run.before) and _MAYBE.search(last.before))
            if ((word and alone) or either) and not run.denied and not last.denied:
                last.text = f"{last.text} or {run.text}"
                last.end, last.after = run.end, run.after
                last.partial = last.partial or run.partial
                last.formula = last.formula or run.formula
                continue
        joined.append(run)
    return joined


def iterate(text: str) -> Iterator[Run]:
    """The runs of a text from its end, line by line; a displayed formula counts as one line."""
    end = len(text)
    while end > 0:
        start = _line_start(text, end)
        if _PROMISING.search(text, start, end):
            yield from reversed(runs(text[start:end]))
        end = start


def _line_start(text: str, end: int) -> int:
    start = text.rfind("\n", 0, end - 1) + 1
    if start and (closer := _CLOSER.search(text, start, end)):
        opener = _OPENERS.get(closer[0], "\\begin")
        opened = text.rfind(opener, max(0, end - WINDOW), closer.start())
        if 0 <= opened < start:
            start = text.rfind("\n", 0, opened) + 1
    return max(start, end - WINDOW)


WINDOW = 2000
"""Characters that are read at a time."""
_CLOSER = re.compile(r"\\\]|\$\$|\\end(?=\s?\{)")
_OPENERS = {"\\]": "\\[", "$$": "$$"}
_PROMISING = re.compile(
    r"[\d$\\=<>^\u221a\u221e\u03c0\u2205\u00bc-\u00be\u2150-\u215e]|\bpi\b|infinity|dozen"
    rf"|\b(?:{'|'.join(number_words.SMALL)}|hundred|thousand|million|billion|half|third)",
    re.IGNORECASE,
)
