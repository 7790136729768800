"""Multiple-choice data sets for the verifier ``core/choice``: GPQA, MMLU-Pro and SuperGPQA.

Options are shuffled by an order that the problem's id decides, so that the place of the right one
tells nothing and every run shows the same prompt; ``spec["order"]`` holds the order.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from rlvr_core.api import ComponentConfig, DataError, Json, Problem
from rlvr_core.api.services import fill, hub_rows, local_path
from rlvr_core.builtin.datasets.tables import file_rows

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
    """A local file with the published columns: JSON lines, CSV or Parquet; from the hub if
    absent."""
    limit: Annotated[int, Field(gt=0)] | None = None
    """Take only so many problems, from the start."""
    shuffle: bool = True
    """Shuffle the options of each problem, unless one speaks of others by place ("all of the
    above")."""
    seed: int = 0
    """Another seed gives other orders of the options; ids stay."""
    template: str = TEMPLATE
    """The prompt, with placeholders ``{question}`` and ``{options}``."""


class _MultipleChoice:
    """What the data sets share; a subclass reads a row."""

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
        for where, row in self._rows():
            if left is not None and sum(seen.values()) == left:
                return
            question, options, right, tags = self._read(row, where)
            digest = _hash(question, options)
            seen[digest] += 1
            copy = f"-{seen[digest]}" if seen[digest] > 1 else ""
            yield self._problem(
                f"{self._name()}_{digest}{copy}", question, options, right, tags, where
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
        if self.config.shuffle and not any(_REFERS.search(option) for option in options):
            random.Random(f"{self.config.seed} {name}").shuffle(order)
        shown = [options[index] for index in order]
        lines = "\n".join(f"({LETTERS[i]}) {option}" for i, option in enumerate(shown))
        return Problem(
            id=name,
            prompt=fill(self.config.template, {"question": question, "options": lines}, where),
            verifier="core/choice",
            spec={"options": shown, "answer": LETTERS[order.index(right)], "order": order},
            dataset=f"core/{self.NAME}",
            tags=tags,
            where=where,
        )


class Gpqa(_MultipleChoice):
    """GPQA: questions of experts in biology, physics and chemistry, four options each."""

    class Config(_CommonConfig):
        """Options of GPQA."""

        subset: Literal["main", "diamond", "extended"] = "diamond"
        """Which of the three nested sets of 448, 198 and 546 questions."""

    NAME = "gpqa"

    def _name(self) -> str:
        return f"gpqa_{self.config.subset}"

    def _hub(self) -> tuple[str, str | None, str]:
        return "Idavidrein/gpqa", f"gpqa_{self.config.subset}", "train"

    def _read(
        self, row: Mapping[str, Json], where: str
    ) -> tuple[str, list[str], int, dict[str, Json]]:
        fields = ("Correct Answer", *(f"Incorrect Answer {n}" for n in (1, 2, 3)))
        options = [_text(row, field, where) for field in fields]
        return _text(row, "Question", where), options, 0, _tags(row, subject="High-level domain")


class MmluPro(_MultipleChoice):
    """MMLU-Pro: 12,032 questions of 14 subjects, with up to ten options."""

    class Config(_CommonConfig):
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
        # the first edition filled the list up with N/A
        options = [one for one in _options(row, where) if one != "N/A"]
        right = _right(row, "answer", len(options), where)
        index = row.get("answer_index")
        if index is not None and index != right:
            raise DataError(f"'answer' is {LETTERS[right]}, 'answer_index' {index!r}", where=where)
        return _text(row, "question", where), options, right, _tags(row, subject="category")


class SuperGpqa(_MultipleChoice):
    """SuperGPQA: 26,529 questions of 285 fields, with up to ten options."""

    class Config(_CommonConfig):
        """Options of SuperGPQA."""

    NAME = "supergpqa"

    def _hub(self) -> tuple[str, str | None, str]:
        return "m-a-p/SuperGPQA", None, "train"

    def _read(
        self, row: Mapping[str, Json], where: str
    ) -> tuple[str, list[str], int, dict[str, Json]]:
        options = _options(row, where)
        right = _right(row, "answer_letter", len(options), where)
        if row.get("answer") not in (None, options[right]):
            raise DataError(f"'answer' is not the text of option {LETTERS[right]}", where=where)
        tags = _tags(row, subject="discipline", level="difficulty")
        return _text(row, "question", where), options, right, tags


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
    value = row.get("options")
    if (
        not isinstance(value, list)
        or not 2 <= len(value) <= len(LETTERS)
        or not all(isinstance(one, str) and one.strip() for one in value)
    ):
        raise DataError(
            f"field 'options' must be a list of 2 to {len(LETTERS)} texts; it is {value!r:.60}",
            where=where,
        )
    return [one.strip() for one in value]


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
