"""Multiple-choice data sets for the verifier ``checks/choice``: GPQA, MMLU-Pro and SuperGPQA.

Options are shuffled by an order that the problem's id decides, so that the place of the right one
tells nothing and every run shows the same prompt; ``spec["order"]`` holds the order. The published
rows have oddities, which are met here: questions with one option, options padded with "N/A", equal
options, rows that occur twice.
"""

from __future__ import annotations

import ast
import hashlib
import io
import logging
import random
import re
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from rlvr_core.api import ComponentConfig, DataError, Json, Problem
from rlvr_core.data.hub import hub_rows
from rlvr_core.data.rows import fill
from rlvr_core.data.tables import file_rows
from rlvr_core.data.uri import local_path

_log = logging.getLogger(__name__)

LETTERS = "ABCDEFGHIJ"
TEMPLATE = """{question}

{options}

Think step by step, then end with "The answer is (X).", where X is the letter of one option."""

_REFERS = re.compile(
    r"\b(?:(?i:above|below|preceding|following|all of these|none of these)|"
    r"(?i:options?|choices?|answers?) \(?[A-J]\)?|[A-J]\)?,? (?:and|or|nor) \(?[A-J]|"
    r"(?:I|II|III|IV) (?:and|or) (?:I|II|III|IV)|(?i:only) [A-J]|[A-J] (?i:only))\b"
)
"""An option that speaks of others by their place."""


class _CommonConfig(ComponentConfig):
    """Options that the multiple-choice data sets share."""

    path: str | None = None
    """A local file with the published columns: JSON lines or array, CSV or Parquet; from the hub
    if absent."""
    limit: Annotated[int, Field(gt=0)] | None = None
    """Take only so many problems, from the start."""
    seed: int = 0
    """Another seed gives other orders of the options; ids stay."""
    template: str = TEMPLATE
    """The prompt, with placeholders ``{question}`` and ``{options}``."""


class _OrderedConfig(_CommonConfig):
    """Options of data sets whose rows have their options in an order."""

    shuffle: bool = True
    """Shuffle the options of each problem, unless one speaks of others by place ("all of the
    above")."""


class _MultipleChoice:
    """Base of the data sets; a subclass reads a row."""

    NAME: str

    def __init__(self, config: Any) -> None:
        self.config = config

    def load(self) -> Iterator[Problem]:
        """Yield the problems in the order of the source.

        Raises:
            DataError: If a row lacks its question, its options or its answer.
            MachineError: If the hub cannot be reached.
        """
        left = self.config.limit
        seen: Counter[str] = Counter()
        single: list[str] = []
        for where, row in self._rows():
            if left is not None and seen.total() == left:
                break
            question, options, right, tags = self._read(row, where)
            if len(set(options)) == 1:
                single.append(where)
                continue
            digest = _hash(question, options)
            seen[digest] += 1
            copy = f"-{seen[digest]}" if seen[digest] > 1 else ""
            yield self._problem(
                f"{self._name()}_{digest}{copy}", question, options, right, tags, where
            )
        if single:
            _log.warning(
                "core/%s left out %d rows with a single option, the first of them %s",
                self.NAME,
                len(single),
                single[0],
            )
        if not seen:
            raise DataError("there are no rows", where=self.config.path or self._hub()[0])

    def _name(self) -> str:
        return self.NAME

    def _hub(self) -> tuple[str, str | None, str]:
        """Repository, configuration and split."""
        raise NotImplementedError

    def _read(
        self, row: Mapping[str, Json], where: str
    ) -> tuple[str, list[str], int, dict[str, Json]]:
        """Question, options, index of the right one, and tags."""
        raise NotImplementedError

    def _rows(self) -> Iterator[tuple[str, Mapping[str, Json]]]:
        if self.config.path is not None:
            yield from file_rows(local_path(self.config.path))
            return
        repo, config, split = self._hub()
        for number, row in hub_rows(repo, config, split):
            yield f"{repo} {split}, row {number}", row

    def _shuffled(self, options: Sequence[str]) -> bool:
        return self.config.shuffle and not any(_REFERS.search(option) for option in options)

    def _problem(
        self,
        name: str,
        question: str,
        options: Sequence[str],
        right: int,
        tags: dict[str, Json],
        where: str,
    ) -> Problem:
        order = list(range(len(options)))
        if self._shuffled(options):
            random.Random(f"{self.config.seed} {name}").shuffle(order)
        shown = [options[index] for index in order]
        lines = "\n".join(f"({LETTERS[i]}) {option}" for i, option in enumerate(shown))
        return Problem(
            id=name,
            prompt=fill(self.config.template, {"question": question, "options": lines}, where),
            verifier="checks/choice",
            spec={"options": shown, "answer": LETTERS[order.index(right)], "order": order},
            dataset=f"core/{self.NAME}",
            tags=tags,
            where=where,
        )


class Gpqa(_MultipleChoice):
    """GPQA: expert questions in biology, physics and chemistry, with four options each.

    The rows tell right and wrong answers and no order of them, so they are always shuffled.
    """

    class Config(_CommonConfig):
        """Options of GPQA."""

        subset: Literal["main", "diamond", "extended"] = "diamond"
        """Which of the three nested sets of 448, 198 and 546 questions."""

    NAME = "gpqa"

    def _name(self) -> str:
        return f"gpqa_{self.config.subset}"

    def _shuffled(self, options: Sequence[str]) -> bool:
        return True

    def _hub(self) -> tuple[str, str | None, str]:
        return "Idavidrein/gpqa", f"gpqa_{self.config.subset}", "train"

    def _read(
        self, row: Mapping[str, Json], where: str
    ) -> tuple[str, list[str], int, dict[str, Json]]:
        fields = ("Correct Answer", *(f"Incorrect Answer {n}" for n in (1, 2, 3)))
        options = [_text(row, field, where) for field in fields]
        return _text(row, "Question", where), options, 0, _tags(row, subject="High-level domain")


class MmluPro(_MultipleChoice):
    """MMLU-Pro: 12,032 questions of 14 subjects, with up to ten options.

    Five of them have one option, and are left out.
    """

    class Config(_OrderedConfig):
        """Options of MMLU-Pro."""

        split: Literal["test", "validation"] = "test"
        """``validation`` has the 70 questions that few-shot examples are taken from."""

    NAME = "mmlu_pro"

    def _name(self) -> str:
        return f"mmlu_pro_{self.config.split}"

    def _hub(self) -> tuple[str, str | None, str]:
        return "TIGER-Lab/MMLU-Pro", None, self.config.split

    def _read(
        self, row: Mapping[str, Json], where: str
    ) -> tuple[str, list[str], int, dict[str, Json]]:
        options = _options(row, where)
        right = _right(row, "answer", len(options), where)
        # the first edition filled the list up with N/A
        while len(options) > right + 1 and options[-1] == "N/A":
            options.pop()
        index = row.get("answer_index")
        if index is not None and str(index) != str(right):  # text in a CSV file
            raise DataError(f"'answer' is {LETTERS[right]}, 'answer_index' {index!r}", where=where)
        return _text(row, "question", where), options, right, _tags(row, subject="category")


class SuperGpqa(_MultipleChoice):
    """SuperGPQA: 26,529 questions of 285 fields, with up to ten options."""

    class Config(_OrderedConfig):
        """Options of SuperGPQA."""

    NAME = "supergpqa"

    def _hub(self) -> tuple[str, str | None, str]:
        return "m-a-p/SuperGPQA", None, "train"

    def _read(
        self, row: Mapping[str, Json], where: str
    ) -> tuple[str, list[str], int, dict[str, Json]]:
        options = _options(row, where)
        right = _right(row, "answer_letter", len(options), where)
        answer = row.get("answer")
        if answer is not None and str(answer).strip() != options[right]:
            raise DataError(f"'answer' is not the text of option {LETTERS[right]}", where=where)
        tags = _tags(row, subject="discipline", level="difficulty")
        return _text(row, "question", where), options, right, tags


_LIST_TOKENS = {
    tokenize.OP,
    tokenize.STRING,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def _hash(question: str, options: Sequence[str]) -> str:
    """Twelve hexadecimal digits of question and options, whatever order these have."""
    content = "\n".join([question.strip(), *sorted(options)])
    return hashlib.sha256(content.encode()).hexdigest()[:12]


def _text(row: Mapping[str, Json], field: str, where: str) -> str:
    value = row.get(field)
    if not isinstance(value, str) or not value.strip():
        raise DataError(
            f"field '{field}' must be text and not empty; it is {value!r:.60}",
            where=where,
            remedy=f"fields there are: {', '.join(map(str, row)) or 'none'}",
        )
    return value.strip()


def _options(row: Mapping[str, Json], where: str) -> list[str]:
    given = row.get("options")
    value = _listed(given) if isinstance(given, str) else given
    if (
        not isinstance(value, list)
        or not 1 <= len(value) <= len(LETTERS)
        or not all(isinstance(option, str) and option.strip() for option in value)
    ):
        raise DataError(
            f"field 'options' must be a list of up to {len(LETTERS)} texts; it is {given!r:.60}",
            where=where,
            remedy="in a CSV file, a list as JSON or as Python prints it",
        )
    return [str(option).strip() for option in value]


def _listed(text: str) -> list[str] | None:
    """Parse a list in a table's cell: as JSON, as Python prints it, or as NumPy prints it."""
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text.strip()).readline))
    except (tokenize.TokenError, SyntaxError):
        return None
    marks = [token.string for token in tokens if token.type == tokenize.OP]
    texts = [token.string for token in tokens if token.type == tokenize.STRING]
    other = {token.type for token in tokens} - _LIST_TOKENS
    if other or marks[:1] != ["["] or marks[-1:] != ["]"] or set(marks[1:-1]) - {","}:
        return None
    try:
        # between the texts of an array there is no comma, and Python would join them
        return [str(ast.literal_eval(text)) for text in texts]
    except (ValueError, SyntaxError):
        return None


def _right(row: Mapping[str, Json], field: str, n: int, where: str) -> int:
    letter = _text(row, field, where)
    if len(letter) != 1 or letter not in LETTERS[:n]:
        raise DataError(
            f"field '{field}' must be a letter from A to {LETTERS[n - 1]}, not {letter!r:.20}",
            where=where,
        )
    return LETTERS.index(letter)


def _tags(row: Mapping[str, Json], **fields: str) -> dict[str, Json]:
    return {tag: row[field] for tag, field in fields.items() if isinstance(row.get(field), str)}
