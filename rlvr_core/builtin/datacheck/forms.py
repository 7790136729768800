"""Where the answer stands in a response: learnt from the reference, so that others can go there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rlvr_core.api import Json

Path = tuple[str | int, ...]

_PLACES = (
    re.compile(r"(?s)(.*\\boxed\{)(.*)(\}.*)"),
    re.compile(r"(?s)(.*<answer>\s*)(.*?)(\s*</answer>.*)"),
    re.compile(r"(?s)(.*####\s*)(.*?)(\s*)"),
)
LONGEST_FRAME = 80
"""Characters around an answer beyond which they count as working, of which the last line stays."""


@dataclass(frozen=True, slots=True)
class Form:
    """A reference taken apart: a response is ``before + answer + after``, or a JSON object.

    Attributes:
        before: Text before the answer.
        after: Text behind it.
        answer: The answer: text, or the object where the whole response is one.
    """

    before: str
    after: str
    answer: Json

    def write(self, answer: Json) -> str:
        """Return the response that gives another answer in the same form."""
        text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
        return f"{self.before}{text}{self.after}"


def form_of(gold: str, extracted: str | None) -> Form:
    """Take a reference apart.

    Args:
        gold: The reference, as a verifier gives it.
        extracted: What the verifier took from it as the answer.
    """
    whole = _object(gold)
    if whole is not None:
        return Form("", "", whole)
    for place in _PLACES:
        if found := place.fullmatch(gold):
            return Form(_short(found[1]), found[3], found[2])
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
    """Yield the values in an answer that hold no others, with their places.

    A list is one value: which entries it has, and how many, is part of what is asked.
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


def cast(text: str, like: Json) -> Any:
    """Return a text as the kind of value that another one is; None where it cannot be one."""
    if isinstance(like, str):
        return text
    if isinstance(like, bool):
        return {"true": True, "false": False}.get(text.lower())
    if isinstance(like, (int, float)):
        found = re.search(r"-?\d[\d,]*(?:\.\d+)?", text)
        if found is None:
            return None
        number = float(found[0].replace(",", ""))
        return int(number) if isinstance(like, int) and number.is_integer() else number
    return None
