"""IFBench's constraints that are whole tasks: lists, CSV, quizzes, reversed sentences."""

from __future__ import annotations

import csv
import io
import re
from itertools import pairwise

from rlvr_ifeval.constraint import Family, NoArgs
from rlvr_ifeval.ifbench_text import AROUND, ascii_only, plain
from rlvr_ifeval.text import sentences

_MULTIPLES = [str(number) for number in range(14, 51, 7)]
_QUESTION = re.compile(r"Question \d+[.|):;]?\s*")
_OPTION = re.compile(r"[A-Ea-e][.|)]\s*\w")
_QUESTIONS, _OPTIONS = 4, 5
_FEWEST_COUNTRIES = 52
_NAMES = (
    "Reykjavik Helsinki Oslo Tallinn Stockholm Riga Moscow Copenhagen Vilnius Minsk Dublin Berlin "
    "Amsterdam Warsaw London Brussels Prague Luxembourg Paris Vienna Bratislava Budapest "
    "Vaduz Chisinau Bern Ljubljana Zagreb"
)
_CAPITALS = _NAMES.split()
"""Capitals of Europe north of 45 degrees, from north to south; the script leaves Kyiv out."""
_DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})$")
_DAYS = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}
_CITY = ["ID", "Country", "City", "Year", "Count"]
_PRODUCT = ["ProductID", "Category", "Brand", "Price", "Stock"]
_STUDENT = ["StudentID", "Subject", "Grade", "Semester", "Score"]
_SPECIAL = re.compile(r'".*[^\d\w\s].*"')


CONSTRAINTS = Family()
"""All of this family."""


def _header(names: list[str], space: str) -> re.Pattern[str]:
    columns = (rf'(?:{name}|"{name}")' for name in names)
    return re.compile(space.join(columns) + "$")


_PRODUCT_HEADER = _header(_PRODUCT, r",[ \t]*")
_STUDENT_HEADER = _header(_STUDENT, r"\t *")


@CONSTRAINTS.add(
    "custom:multiples", NoArgs, "Count from 10 to 50 and write only the multiples of 7."
)
def _multiples(response: str, _: NoArgs) -> bool:
    return re.findall(r"\d+", response) == _MULTIPLES


@CONSTRAINTS.add(
    "custom:mcq_count_length",
    NoArgs,
    f"Write {_QUESTIONS} multiple choice questions on the history of art in the 20th "
    f"century, each with {_OPTIONS} options. Begin each with the label 'Question', make "
    "each longer than the one before, and explain nothing.",
)
def _quiz(response: str, _: NoArgs) -> bool:
    """Only a label with a number, anywhere in a line, begins a question."""
    if not response.startswith("Question"):
        return False
    parts = [part.strip() for part in _QUESTION.split(response)]
    lengths = []
    for question in filter(None, parts):
        lines = [line.strip() for line in question.split("\n")]
        is_option = [_OPTION.match(line) is not None for line in lines]
        if sum(is_option) != _OPTIONS:
            return False
        lengths.append(len(" ".join(lines[: is_option.index(True)]).strip()))
    return len(lengths) == _QUESTIONS and all(before < after for before, after in pairwise(lengths))


@CONSTRAINTS.add(
    "custom:reverse_newline",
    NoArgs,
    "Name the countries of Africa from Z to A, each on its own line.",
)
def _africa(response: str, _: NoArgs) -> bool:
    """From the first line with Zimbabwe on, capitals before small letters."""
    lines = [bare for line in response.split("\n") if (bare := line.strip(AROUND))]
    start = next((at for at, line in enumerate(lines) if "Zimbabwe" in line), len(lines))
    countries = [ascii_only(line) for line in lines[start:]]
    return len(countries) >= _FEWEST_COUNTRIES and all(
        before >= after for before, after in pairwise(countries)
    )


@CONSTRAINTS.add(
    "custom:word_reverse",
    NoArgs,
    "Which animal is the national symbol of the US? Answer with a sentence whose words "
    "stand in reverse order.",
)
def _words_reversed(response: str, _: NoArgs) -> bool:
    """The words in reverse, ASCII punctuation aside, are one sentence with the bird in it."""
    text = " ".join(reversed(plain(response.lower()).split()))
    return "bald eagle" in text and text in sentences(text)


@CONSTRAINTS.add(
    "custom:character_reverse",
    NoArgs,
    "Which animal is the national symbol of the US? Answer with a sentence whose letters "
    "stand in reverse order.",
)
def _letters_reversed(response: str, _: NoArgs) -> bool:
    return "elgae dlab" in response.lower()


@CONSTRAINTS.add(
    "custom:sentence_alphabet",
    NoArgs,
    "Tell a story of 26 sentences whose first words begin with the letters of the alphabet "
    "in their order.",
)
def _twenty_six(response: str, _: NoArgs) -> bool:
    """A mark before a sentence's first letter is its first letter."""
    first = [sentence.lstrip()[:1].lower()[:1] for sentence in sentences(response)]
    return "".join(first) == "abcdefghijklmnopqrstuvwxyz"


@CONSTRAINTS.add(
    "custom:european_capitals_sort",
    NoArgs,
    "Name the capitals of European countries that lie north of 45 degrees, from north to "
    "south, separated by commas and without their countries.",
)
def _northern_capitals(response: str, _: NoArgs) -> bool:
    """The list of the script, without Kyiv and without a period at its end."""
    named = [part.strip() for part in ascii_only(response).split(",")]
    return [capital for capital in named if capital] == _CAPITALS


def _rows(text: str, delimiter: str = ",") -> list[list[str]]:
    """The rows of a CSV text; none where the script would end with an error."""
    try:
        return list(csv.reader(io.StringIO(text), delimiter=delimiter))
    except csv.Error:
        return []


@CONSTRAINTS.add("custom:csv_city", NoArgs, lambda _: _csv_task(_CITY, 7, "separated by commas."))
def _csv_city(response: str, _: NoArgs) -> bool:
    """Seven rows below the header; an empty line is a row."""
    rows = _rows(response)
    return len(rows) == 8 and rows[0] == _CITY and all(len(row) == 5 for row in rows)


@CONSTRAINTS.add(
    "custom:csv_special_character",
    NoArgs,
    lambda _: _csv_task(
        _PRODUCT,
        14,
        "separated by commas. Let one field hold a special character, and put that field in "
        "double quotes.",
    ),
)
def _csv_special(response: str, _: NoArgs) -> bool:
    """Rows after the first quoted field with a special character do not count."""
    rows = _rows(response.replace('"', '"""'))
    if not _PRODUCT_HEADER.match(response.split("\n")[0].strip()) or len(rows) != 15:
        return False
    for row in rows[1:]:
        if len(row) != 5:
            return False
        if any(map(_SPECIAL.match, row)):
            return True
    return False


@CONSTRAINTS.add(
    "custom:csv_quotes",
    NoArgs,
    lambda _: _csv_task(
        _STUDENT, 3, "separated by tabs. Put every field in double quotes, the header's too."
    ),
)
def _csv_quotes(response: str, _: NoArgs) -> bool:
    """All fields begin and end with a quote, a single one too."""
    rows = _rows(response.replace('"', '"""'), "\t")
    if not _STUDENT_HEADER.match(response.split("\n")[0].strip()) or len(rows) != 4:
        return False
    fields = [field.strip() for row in rows for field in row]
    return all(len(row) == 5 for row in rows) and all(
        field.startswith('"') and field.endswith('"') for field in fields
    )


@CONSTRAINTS.add(
    "custom:date_format_list",
    NoArgs,
    "List the dates on which Napoleon's battles began, as YYYY-MM-DD, separated by commas, "
    "and explain nothing.",
)
def _dates(response: str, _: NoArgs) -> bool:
    """Days and months have an upper bound and no lower one; February always has 29 days."""
    for text in response.strip().split(","):
        match = _DATE.match(text.strip())
        if match is None:
            return False
        year, month, day = map(int, match.groups())
        last = _DAYS.get(month, 31 if month else day)
        if not 1769 <= year <= 1821 or month > 12 or day > last:
            return False
    return True


def _csv_task(header: list[str], rows: int, more: str) -> str:
    return f"Write CSV data with the columns {', '.join(header)} and {rows} rows, {more}"
