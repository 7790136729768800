"""IFBench's constraints that are whole tasks, as its own script judges them."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from rlvr_ifeval.constraint import NoArgs
from rlvr_ifeval.ifbench_tables import NORTHERN_CAPITALS
from rlvr_ifeval.official_text import AROUND, ascii_only, plain, sentences

_CAPITALS = [capital for capital in NORTHERN_CAPITALS.split() if capital != "Kyiv"]
_QUESTION = re.compile(r"Question \d+[.|):;]?\s*")
_OPTION = re.compile(r"[A-Ea-e][.|)]\s*\w")
_DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})$")
_DAYS = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}
_FEWEST_COUNTRIES = 52
_SPECIAL = re.compile(r'".*[^\d\w\s].*"')


def _header(names: str, space: str) -> re.Pattern[str]:
    columns = (rf'(?:{name}|"{name}")' for name in names.split())
    return re.compile(space.join(columns) + "$")


_PRODUCT = _header("ProductID Category Brand Price Stock", r",[ \t]*")
_STUDENT = _header("StudentID Subject Grade Semester Score", r"\t *")
_CITY = ["ID", "Country", "City", "Year", "Count"]


def quiz(response: str, _: NoArgs) -> bool:
    """Only a label with a number, anywhere in a line, begins a question."""
    if not response.startswith("Question"):
        return False
    parts = [part.strip() for part in _QUESTION.split(response)]
    lengths = []
    for question in filter(None, parts):
        lines = [line.strip() for line in question.split("\n")]
        found = [_OPTION.match(line) is not None for line in lines]
        if sum(found) != 5:
            return False
        lengths.append(len(" ".join(lines[: found.index(True)]).strip()))
    return len(lengths) == 4 and all(one < two for one, two in pairwise(lengths))


def africa(response: str, _: NoArgs) -> bool:
    """From the first line with Zimbabwe on, capitals before small letters."""
    lines = [bare for line in response.split("\n") if (bare := line.strip(AROUND))]
    start = next((at for at, line in enumerate(lines) if "Zimbabwe" in line), len(lines))
    found = [ascii_only(line) for line in lines[start:]]
    return len(found) >= _FEWEST_COUNTRIES and all(one >= two for one, two in pairwise(found))


def words_reversed(response: str, _: NoArgs) -> bool:
    """The words in reverse, ASCII punctuation aside, are one sentence with the bird in it."""
    text = " ".join(reversed(plain(response.lower()).split()))
    return "bald eagle" in text and text in sentences(text)


def twenty_six(response: str, _: NoArgs) -> bool:
    """A mark before a sentence's first letter is its first letter."""
    first = [sentence.lstrip()[:1].lower()[:1] for sentence in sentences(response)]
    return "".join(first) == "abcdefghijklmnopqrstuvwxyz"


def northern_capitals(response: str, _: NoArgs) -> bool:
    """The list of the script, without Kyiv and without a period at its end."""
    named = [part.strip() for part in ascii_only(response).split(",")]
    return [capital for capital in named if capital] == _CAPITALS


def _rows(text: str, delimiter: str = ",") -> list[list[str]]:
    """The rows of a CSV text; none where the script would end with an error."""
    try:
        return list(csv.reader(io.StringIO(text), delimiter=delimiter))
    except csv.Error:
        return []


def csv_city(response: str, _: NoArgs) -> bool:
    """Seven rows below the header; an empty line is a row."""
    rows = _rows(response)
    return len(rows) == 8 and rows[0] == _CITY and all(len(row) == 5 for row in rows)


def csv_special(response: str, _: NoArgs) -> bool:
    """Rows behind the first quoted field with a special character are not looked at."""
    rows = _rows(response.replace('"', '"""'))
    if not _PRODUCT.match(response.split("\n")[0].strip()) or len(rows) != 15:
        return False
    for row in rows[1:]:
        if len(row) != 5:
            return False
        if any(map(_SPECIAL.match, row)):
            return True
    return False


def csv_quotes(response: str, _: NoArgs) -> bool:
    """All fields begin and end with a quote, a single one too."""
    rows = _rows(response.replace('"', '"""'), "\t")
    if not _STUDENT.match(response.split("\n")[0].strip()) or len(rows) != 4:
        return False
    fields = [field.strip() for row in rows for field in row]
    return all(len(row) == 5 for row in rows) and all(
        field.startswith('"') and field.endswith('"') for field in fields
    )


def dates(response: str, _: NoArgs) -> bool:
    """Days and months have an upper bound and no lower one; February always has 29 days."""
    for text in response.strip().split(","):
        found = _DATE.match(text.strip())
        if found is None:
            return False
        year, month, day = map(int, found.groups())
        last = _DAYS.get(month, 31 if month else day)
        if not 1769 <= year <= 1821 or month > 12 or day > last:
            return False
    return True


OFFICIAL: dict[str, Callable[[str, Any], bool]] = {
    "custom:mcq_count_length": quiz,
    "custom:reverse_newline": africa,
    "custom:word_reverse": words_reversed,
    "custom:sentence_alphabet": twenty_six,
    "custom:european_capitals_sort": northern_capitals,
    "custom:csv_city": csv_city,
    "custom:csv_special_character": csv_special,
    "custom:csv_quotes": csv_quotes,
    "custom:date_format_list": dates,
}
"""The checks of this family that differ from a strict reading of the instruction."""
