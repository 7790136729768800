"""The place of the answer in a response, found in the reference, for inserting other answers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from rlvr_core.api import Json

Path = tuple[str | int, ...]

_PLACES = (
    re.compile(r"(?s)(.*\\boxed\{)(.*)(\}.*)"),
    re.compile(r"(?s)(.*<answer>\s*)(.*?)(\s*</answer>.*)"),
    re.compile(r"(?s)(.*####\s*)(.*?)(\s*)"),
)
LONGEST_FRAME = 80
"""Longer text before an answer counts as working, of which only the last line is kept."""


@dataclass(frozen=True, slots=True)
class Form:
    """A reference split into parts: a response is ``before + answer + after``, or a JSON object.

    Attributes:
        before: Text before the answer.
        after: Text after it.
        answer: The answer: text, or the object if the whole response is one.
    """

    before: str
    after: str
    answer: Json

    def write(self, answer: Json) -> str:
        """Return the response with another answer in the same form."""
        text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
        return f"{self.before}{text}{self.after}"


def form_of(gold: str, extracted: str | None) -> Form:
    """Split a reference into parts.

    Args:
        gold: The reference from the verifier.
        extracted: The answer that the verifier extracts from it.
    """
    whole = _object(gold)
    if whole is not None:
        return Form("", "", whole)
    for place in _PLACES:
        if match := place.fullmatch(gold):
            return Form(_short(match[1]), match[3], match[2])
    if extracted and extracted in gold:
        before, _, after = gold.rpartition(extracted)
        return Form(_short(before), after, extracted)
    return Form("", "", gold)


def _object(text: str) -> Json | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) and value else None


def _short(before: str) -> str:
    return before if len(before) <= LONGEST_FRAME else before.rpartition("\n")[2]


def leaves(value: Json, path: Path = ()) -> Iterator[tuple[Path, Json]]:
    """Yield the leaf values of an answer, with their paths.

    A list is one value: its entries and their number are part of the answer.
    """
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, (*path, key))
    else:
        yield path, value


def with_leaves(value: Json, changes: dict[Path, Json], path: Path = ()) -> Json:
    """Return an answer with some of its leaves replaced."""
    if path in changes:
        return changes[path]
    if isinstance(value, dict):
        return {key: with_leaves(inner, changes, (*path, key)) for key, inner in value.items()}
    return value
