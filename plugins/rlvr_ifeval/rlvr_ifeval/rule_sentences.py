"""Sentences by a fixed list of rules, as the multi-constraint training set counts them.

Cruder than ``text.sentences``: every ``.``, ``?`` and ``!`` ends a sentence unless a rule protects
it. The rules are applied in order, each to the whole text.
"""

from __future__ import annotations

import re

_KEPT, _END = "\ue000", "\ue001"
"""Stand for a period that ends nothing, and for the end of a sentence."""

_L = "([A-Za-z])"
_BEGINS = (
    r"(Mr|Mrs|Ms|Dr|Prof|Capt|Cpt|Lt|He\s|She\s|It\s|They\s|Their\s|Our\s|We\s|But\s|However\s|"
    r"That\s|This\s|Wherever)"
)
_COMPANY = "(Inc|Ltd|Jr|Sr|Co)"


def _dots(match: re.Match[str]) -> str:
    return _KEPT * len(match[0]) + _END


_RULES = (
    (re.compile(r"(Mr|St|Mrs|Ms|Dr)[.]"), rf"\1{_KEPT}"),
    (re.compile(r"[.](com|net|org|io|gov|edu|me)"), rf"{_KEPT}\1"),
    (re.compile(r"([0-9])[.]([0-9])"), rf"\1{_KEPT}\2"),
    (re.compile(r"\.{2,}"), _dots),
    (re.compile(r"Ph\.D\."), f"Ph{_KEPT}D{_KEPT}"),
    (re.compile(rf"\s{_L}[.] "), rf" \1{_KEPT} "),
    (re.compile(rf"([A-Z][.][A-Z][.](?:[A-Z][.])?) {_BEGINS}"), rf"\1{_END} \2"),
    (re.compile(rf"{_L}[.]{_L}[.]{_L}[.]"), rf"\1{_KEPT}\2{_KEPT}\3{_KEPT}"),
    (re.compile(rf"{_L}[.]{_L}[.]"), rf"\1{_KEPT}\2{_KEPT}"),
    (re.compile(rf" {_COMPANY}[.] {_BEGINS}"), rf" \1{_END} \2"),
    (re.compile(rf" {_COMPANY}[.]"), rf" \1{_KEPT}"),
    (re.compile(rf" {_L}[.]"), rf" \1{_KEPT}"),
)
_QUOTES_AFTER = ((".”", "”."), ('."', '".'), ('!"', '"!'), ('?"', '"?'))


def rule_sentences(text: str) -> list[str]:
    """The sentences, stripped; text after the last end counts as one unless it is blank."""
    text = f" {text}  ".replace("\n", " ").replace(_KEPT, "").replace(_END, "")
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    for inside, outside in _QUOTES_AFTER:
        text = text.replace(inside, outside)
    for end in ".?!":
        text = text.replace(end, end + _END)
    sentences = [part.strip() for part in text.replace(_KEPT, ".").split(_END)]
    return sentences if sentences[-1] else sentences[:-1]
