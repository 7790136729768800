"""Checks of how rows became prompts: the wrong column, lost line breaks, escapes that were left."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from rlvr_core.builtin.doctor.report import Answer, share
from rlvr_core.builtin.doctor.subject import Subject, text_of

FEWEST = 3
"""Prompts of one kind below which it may be chance."""
MANY = 0.02
"""Share of prompts of one kind above which it is no part of the subject."""
TOGETHER = 0.1
"""The same of prompts that hold another than the next one: Minerva's tasks come with others."""
TRIED = 2000
"""Prompts that are searched for others, at most, evenly spread over the data."""
BEGIN = 12
"""Characters that a prompt has at least to be looked for in others."""

DIGITS, KINDS = 60, 6
"""Digits of all prompts, and different ones, from which on it is odd that one never comes."""
LOOKALIKES = {"0": "Oo", "1": "lI", "5": "S", "8": "B"}
"""Letters that are taken for a digit, or it for them."""
_DIGITS = frozenset("0123456789")

_ESCAPE = re.compile(r"\\(?:r\\n|[nrt])(?![a-z\\\"'`)])(?!(?:Left|Right|V[dD]ash))")
"""A written escape that no LaTeX command begins with, and no string of a program ends in."""


def rows(subject: Subject) -> list[Answer]:
    """Say whether each prompt is the text of one row, as its author wrote it."""
    texts = [text_of(problem) for problem in subject.problems]
    ids = [problem.id for problem in subject.problems]
    found = [_names(texts, ids), _escapes(texts), _several(texts, ids), _letters(texts)]
    return [one for one in found if one] or [Answer("ok", "each prompt is the text of one row")]


def _many(count: int, n: int, most: float = MANY) -> bool:
    return count >= max(FEWEST, most * n)


def _names(texts: Sequence[str], ids: Sequence[str]) -> Answer | None:
    """Prompts that are their own ids, where these are names and not the questions themselves."""
    same = [
        id_ for text, id_ in zip(texts, ids, strict=True) if text.strip() == id_ and " " not in id_
    ]
    if not _many(len(same), len(texts)):
        return None
    return Answer(
        "warn",
        f"{share(len(same), len(texts))} prompts are the ids of their rows, such as {same[0]!r}",
        "name the column that has the question (option prompt of the source)",
        weight=125,
    )


def _escapes(texts: Sequence[str]) -> Answer | None:
    """Prompts with written line breaks and no real one: whoever wrote the text had only the latter.

    A program in a prompt, whose strings have such escapes, has real line breaks as well.
    """
    left = [text for text in texts if "\\" in text and "\n" not in text and _ESCAPE.search(text)]
    if not _many(len(left), len(texts)):
        return None
    match = _ESCAPE.search(left[0])
    assert match is not None, "it was found before"
    around = left[0][max(0, match.start() - 20) : match.end() + 10]
    return Answer(
        "warn",
        f"{share(len(left), len(texts))} prompts have a backslash and a letter in the place of a "
        f"line break or tab, such as {around!r} (escaped once too often)",
        "decode the text when the data are made: it was written as JSON, or quoted, twice",
        weight=108,
    )


def _letters(texts: Sequence[str]) -> Answer | None:
    """Numbers with a letter in the place of a digit that no prompt has, as a scan is misread."""
    digits = Counter(one for text in texts for one in text if one in _DIGITS)
    if digits.total() < DIGITS or len(digits) < KINDS:
        return None
    for missing in sorted(_DIGITS - digits.keys()):
        letters = LOOKALIKES.get(missing, "")
        number = re.compile(rf"\b[\d{letters}]*(?:\d[{letters}]|[{letters}]\d)[\d{letters}]*\b")
        found = [match for text in texts if letters and (match := number.search(text))]
        if _many(len(found), len(texts)):
            return Answer(
                "warn",
                f"no prompt has the digit {missing} (of {digits.total()} digits), and "
                f"{share(len(found), len(texts))} have a letter that looks like it within a "
                f"number, such as {found[0].group()!r}",
                "the text was misread, by a scan or a conversion: put the digits back where the "
                "data are made",
                weight=110,
            )
    return None


def _several(texts: Sequence[str], ids: Sequence[str]) -> Answer | None:
    """Prompts in which the whole prompt of another problem stands behind something else."""
    stripped = [text.strip() for text in texts]
    whole = {text: id_ for text, id_ in zip(stripped, ids, strict=True) if len(text) >= BEGIN}
    by_begin: dict[str, set[int]] = defaultdict(set)
    for text in whole:
        by_begin[text[:BEGIN]].add(len(text))
    tried = range(0, len(stripped), max(1, len(stripped) // TRIED))
    found = {n: next(_within(stripped[n], whole, by_begin), "") for n in tried}
    held = {n: other for n, other in found.items() if other}
    # one that stands in many is an example that a template shows
    after = [n for n, other in held.items() if other in stripped[n + 1 : n + 3]]
    many = _many(len(after), len(found)) or _many(len(held), len(found), TOGETHER)
    if not many or 2 * len(set(held.values())) < len(held):
        return None
    n, other = next(iter(held.items()))
    return Answer(
        "warn",
        f"{share(len(held), len(found))} prompts hold the whole prompt of another problem behind "
        f"their own question, such as {ids[n]} that of {whole[other]}",
        "if these are no examples on purpose, rows have run together: a line break or a quote was "
        "lost where the data were made or read",
        weight=124,
    )


def _within(text: str, whole: Mapping[str, str], by_begin: Mapping[str, set[int]]) -> Iterator[str]:
    """Yield the prompts that stand in a text behind a space, up to its end or another space."""
    for space in re.finditer(r"\s(?=\S)", text):
        at = space.end()
        for length in sorted(by_begin.get(text[at : at + BEGIN], ())):
            end = at + length
            ends = end == len(text) or text[end : end + 1].isspace()
            if ends and text[at:end] in whole:
                yield text[at:end]
