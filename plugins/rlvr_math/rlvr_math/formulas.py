r"""Formulas between delimiters: ``$...$``, ``\(...\)``, ``\[...\]``, ``\begin{align}``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_ALIGNED = r"(?:align(?:ed|at)?|equation|gather(?:ed)?|multline|eqnarray|split|flalign|displaymath)"
_DELIMITER = re.compile(rf"\\(?P<edge>begin|end)\s?\{{{_ALIGNED}\*?\}}|\\.|\$\$|\$|\n", re.DOTALL)
_FORMULA_END = {"\\(": "\\)", "\\[": "\\]", "$": "$", "$$": "$$"}
_OPENINGS = ("$", "\\(", "\\[", "\\begin")
PROSE = re.compile(
    r"(?<![\\A-Za-z{ ])[a-z]{2,}+ [a-z]{2,}+(?!\})|(?<=\d) [a-z]{2,}+ [a-z]{2,}+ "
    r"|[-+*/=]\s*\Z|\A\s*[*/=] |\A\s*[\d.,]+[^\\^_=+*/{}]*[a-z]{2,}[^\\^_=+*/{}]*\Z"
)
"""Text between two prices rather than in a formula."""
_ROW = re.compile(r"\\(begin|end)\s?\{([a-zA-Z]+)\*?\}(?:\[[a-z]\])?|\\\\(?:\[[^\]]*\])?|(?<!\\)&")
_ENVIRONMENT = re.compile(_ALIGNED + r"\Z")
_RELATED = re.compile(r"\s*(?:=|<|>|\\(?:le|ge|approx|leq|geq)(?![A-Za-z]))")
_LABELS = re.compile(r"\\(?:tag|label)\*?\s?\{[^{}]*\}|\\(?:nonumber|notag)(?![A-Za-z])")


@dataclass(frozen=True, slots=True)
class Formula:
    """A formula: ``text[start:end]`` with its delimiters, ``content`` without them."""

    start: int
    end: int
    content: str


def formulas(text: str) -> Iterator[Formula]:
    """Formulas in order; a single dollar does not reach past its line, and may be a price."""
    if not any(opening in text for opening in _OPENINGS):
        return
    opener, start, inside, depth = "", 0, 0, 0
    for token in _DELIMITER.finditer(text):
        piece = token.group()
        edge = token["edge"]
        if opener == "env":
            depth += (edge == "begin") - (edge == "end")
            if not depth:
                yield Formula(start, token.end(), flat(text[start : token.end()]))
                opener = ""
        elif opener and piece == _FORMULA_END[opener]:
            content = text[inside : token.start()].strip()
            if opener == "$" and _is_money(text, token, content):
                start, inside = token.start(), token.end()
                continue
            if content:
                yield Formula(start, token.end(), flat(content))
            opener = ""
        elif piece == "\n":
            opener = "" if opener == "$" else opener
        elif edge == "begin" and not opener:
            opener, start, depth = "env", token.start(), 1
        elif piece in _FORMULA_END and opener not in ("\\(", "\\[", "$$"):
            if piece == "$" and _is_behind_price(text, token):
                continue
            opener, start, inside = piece, token.start(), token.end()


def flat(content: str) -> str:
    """A formula as one line; of several aligned ones, the last with what it goes on from."""
    content = _LABELS.sub(" ", content)
    if "\\begin" not in content and "\\\\" not in content:
        return content.strip()
    rows, row, depth, at = [], "", 0, 0
    for token in _ROW.finditer(content):
        edge, name = token[1], token[2]
        aligned = bool(name and _ENVIRONMENT.match(name))
        row += content[at : token.start()]
        at = token.end()
        if edge and not aligned:
            depth += 1 if edge == "begin" else -1
            row += token[0]
        elif depth:
            row += token[0]
        elif not edge and token[0] != "&":
            rows.append(row)
            row = ""
        else:
            row += " "
    rows = [line.strip() for line in [*rows, row + content[at:]] if line.strip(" .,;\n")]
    last = ""
    for line in rows:
        last = f"{last.rstrip(' ,;')} {line}" if last and _RELATED.match(line) else line
    return last


def _is_behind_price(text: str, token: re.Match[str]) -> bool:
    """Whether a dollar sign belongs to the number before it, as in ``45$ - 5$``."""
    return text[token.start() - 1 : token.start()].isdigit() and text[token.end() :][:1].isspace()


def _is_money(text: str, token: re.Match[str], content: str) -> bool:
    """Whether what stands between two dollars is prose, and the second one opens a price."""
    return bool(PROSE.search(content)) or text[token.end() : token.end() + 1].isdigit()
