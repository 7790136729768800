"""Wrong answers close to the reference."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rlvr_core.api import Json
from rlvr_doctor.datacheck.forms import Form, leaves, with_leaves

_NUMBER = re.compile(r"(?<![\d.])\d+(?!\d)")


def corruptions(form: Form) -> Iterator[tuple[str, str]]:
    """Yield wrong responses derived from a reference, each with the kind of change."""
    for path, value in leaves(form.answer):
        place = f"{path[-1]}: " if path else ""
        for how, wrong in _wrong(value):
            yield place + how, form.write(with_leaves(form.answer, {path: wrong}))


def _wrong(value: Json) -> Iterator[tuple[str, Json]]:
    if isinstance(value, bool):
        yield "the other truth value", not value
    elif isinstance(value, (int, float)):
        yield "one more", value + 1
        if value:
            yield "other sign", -value
            yield "ten times as much", value * 10
    elif isinstance(value, list) and value:
        yield "last entry left out", value[:-1]
        yield "first entry twice", [value[0], *value]
        yield "empty list", []
    elif isinstance(value, str) and value.strip():
        yield from _wrong_text(value)


def _wrong_text(text: str) -> Iterator[tuple[str, str]]:
    numbers = list(_NUMBER.finditer(text))
    for name, chosen in (("first", numbers[:1]), ("last", numbers[-1:])):
        for number in chosen:
            more = str(int(number[0]) + 1)
            yield f"{name} number one more", text[: number.start()] + more + text[number.end() :]
    if numbers and len(numbers[0][0]) == len(text.strip()):
        yield "a digit appended", text + "7"
        yield "other sign", "-" + text if int(text) else text + "1"
    words = text.split()
    if not numbers and len(words) == 1 and len(text.strip()) > 2:
        yield "last letter left out", text.rstrip()[:-1]
        yield "two letters more", text.rstrip() + "qx"
    if len(words) > 3:
        yield "second half left out", " ".join(words[: len(words) // 2])
        yield "first word left out", " ".join(words[1:])
