"""Checks of what data and instructions say: odd characters, markup, a form that nobody reads."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable

from rlvr_core.builtin.doctor.report import Answer, Check, share
from rlvr_core.builtin.doctor.subject import Subject, passes, stated, text_of

FEW = 0.01
"""Share of texts up to which an odd character is part of the subject, and no fault of the data."""
MOST = 0.8
"""Share of prompts that have to ask for a form, for it to be an instruction."""

_JOINERS = "\u200c\u200d\u200e\u200f"
"""Invisible characters that scripts and emojis need."""
_ENTITY = re.compile(r"&(?:nbsp|amp|lt|gt|quot|apos|#\d{2,5}|#x[0-9a-fA-F]{2,5});")
_DOCUMENT = re.compile(
    r"<(?:!doctype|html|head|body|div|table|ul|ol|section|script)\b|```|HTML", re.I
)
_MOJIBAKE = re.compile(
    "\u00e2\u20ac[\u2122\u0153\u017e\u201c\u02dc\x9d\u2013\u00a6]|\u00c3[\u00a0-\u00bf]|\u00c2[\u00a0-\u00bf]"
)
FORMS = {
    "\\boxed{...}": re.compile(r"\\boxed\b"),
    "<answer>...</answer>": re.compile(r"</?answer>"),
    "#### ...": re.compile(r"####"),
}
"""Forms of an answer that prompts ask for and verifiers read."""


def odd_characters(text: str) -> list[str]:
    """Name what is in a text that its author cannot have meant to be there."""
    found = []
    if not text.isascii():
        for character in dict.fromkeys(text):
            invisible = unicodedata.category(character) == "Cf" and character not in _JOINERS
            if invisible or character == "\ufffd":
                found.append(f"invisible or lost characters (U+{ord(character):04X})")
        if _MOJIBAKE.search(text):
            found.append("text that was decoded in a wrong encoding")
    if (entity := _ENTITY.search(text)) and not _DOCUMENT.search(text):
        found.append(f"HTML entities ({entity[0]})")
    control = next((c for c in text if ord(c) < 32 and c not in "\t\n\r"), None)
    if control is not None:
        found.append(f"control characters (U+{ord(control):04X})")
    return found


def _characters(subject: Subject) -> list[Answer]:
    found = []
    for what, texts in (
        ("prompts", [text_of(one) for one in subject.problems]),
        ("references", [stated(one) or "" for one in subject.problems]),
        ("eval prompts", [text_of(one) for some in subject.held_out.values() for one in some]),
    ):
        if (answer := _odd(what, texts)) is not None:
            found.append(answer)
    return found or [Answer("ok", "no invisible characters, entities or wrong encodings")]


def _odd(what: str, texts: Iterable[str]) -> Answer | None:
    counts: Counter[str] = Counter()
    n = 0
    for text in texts:
        n += 1
        counts.update(odd_characters(text))
    if not counts:
        return None
    name, count = counts.most_common(1)[0]
    if count <= FEW * n:
        return None
    others = "" if len(counts) == 1 else f", and {len(counts) - 1} other kinds"
    return Answer(
        "warn",
        f"{share(count, n)} {what} hold {name}{others}: the model reads other tokens than those "
        "of plain text",
        "clean the data: html.unescape, unicodedata.normalize, the encoding they are read with",
        weight=108,
    )


def _asked(subject: Subject) -> Answer | None:
    """Check whether prompts ask for the form of answer that the verifier reads."""
    by_set: dict[str, list[tuple[str, str]]] = {}
    for one in subject.references:
        if one.response:
            prompt = "\n".join(
                filter(None, [subject.config.data.prompt.system, text_of(one.problem)])
            )
            by_set.setdefault(one.problem.dataset, []).append((prompt, one.response))
    for name, pairs in by_set.items():
        if len(pairs) < 4:
            continue
        asked, read = (
            {
                form: sum(bool(pattern.search(pair[side])) for pair in pairs)
                for form, pattern in FORMS.items()
            }
            for side in (0, 1)
        )
        wanted = [form for form, n in asked.items() if n >= MOST * len(pairs)]
        used = [form for form, n in read.items() if n >= MOST * len(pairs)]
        if not wanted or not used or set(wanted) & set(used):
            continue
        # another form may be read as well
        if _reads(subject, name, wanted[0]):
            continue
        return Answer(
            "warn",
            f"{name}: the prompt asks for {wanted[0]}, and the verifier reads {used[0]}",
            "correct the instruction (template, data.prompt.system), or choose the verifier that "
            "reads what it asks for",
            weight=126,
        )
    return Answer("ok", "no instruction contradicts the verifier") if by_set else None


def _reads(subject: Subject, dataset: str, form: str) -> bool:
    """Whether the verifier passes right answers in a form."""
    some = [one for one in subject.references if one.problem.dataset == dataset and one.answer][:4]
    waiting = [
        (
            subject.main(one.problem),
            subject.verdicts(one.problem, [form.replace("...", one.answer)]),
        )
        for one in some
    ]
    return any(passes(future.result(subject.patience)[0][name]) for name, future in waiting)


WORDING: tuple[Check[Subject], ...] = (
    Check("data/characters", "Is the text of the data clean?", _characters),
    Check("prompt/form", "Do prompts ask for the form that is read?", _asked),
)
