"""The competition data sets: MATH, AIME, AMC, Minerva, OlympiadBench, DeepScaleR and others.

Each comes from the hub, or from a local file by ``path``. ``spec`` keeps the row's own fields and
adds ``gold_answer``, the final answer alone, and ``gold_solution`` where there is one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field

from rlvr_core.api import ComponentConfig, DataError, Json, Problem
from rlvr_core.data.hub import hub_rows
from rlvr_core.data.tables import file_rows
from rlvr_core.data.uri import local_path
from rlvr_math import boxes, compare, styles
from rlvr_math.styles import StyleName

Row = Mapping[str, Json]
Located = tuple[int, str, Row]
"""Index of a row in its source, where it is for messages, and the row."""

Subject = Literal[
    "algebra",
    "counting_and_probability",
    "geometry",
    "intermediate_algebra",
    "number_theory",
    "prealgebra",
    "precalculus",
]
SUBJECTS: tuple[Subject, ...] = get_args(Subject)
Level = Annotated[int, Field(ge=1, le=5)]

KNOWN_ANSWERS = {
    "34d3b36d1c41": "0",
    "641a7ef94229": "0",
    "91daf1cb5b45": "2",
    "1d0b0f359e9e": "9",
}
"""By content hash: two MATH problems whose solution has an empty box, and two whose answer some
copies lost."""

_LEVEL = re.compile(r"\d")


class SourceConfig(ComponentConfig):
    """Where rows come from, and how problems are put."""

    path: str | None = None
    """A local file of the same rows: JSON lines or array, CSV or Parquet; from the hub if
    absent."""
    limit: Annotated[int, Field(gt=0)] | None = None
    """Take only so many problems, from the start, after any filter."""
    style: StyleName = "plain"
    """How problems are put: ``plain``, ``minerva``, ``gsm8k-cot``, ``qwen-cot`` or ``r1``."""
    shots: Annotated[int, Field(ge=0, le=4)] | None = None
    """Worked examples in front; the style's own number if absent."""


class CommonConfig(SourceConfig):
    """Options that all competition data sets share."""

    skip_unanswered: bool = False
    """Leave out rows without a final answer, instead of refusing the data set."""


class Competition:
    """Base of the competition data sets; a subclass names the place of its rows."""

    class Config(CommonConfig):
        """Options of a competition data set."""

    NAME: ClassVar[str]
    HUB: ClassVar[tuple[str, str | None, str]]
    """Repository, configuration and split."""
    VERIFIER: ClassVar[str] = "math/answer"

    def __init__(self, config: Any) -> None:
        self.config = config

    def load(self) -> Iterator[Problem]:
        """Yield the problems in the order of the source.

        Raises:
            DataError: If a row lacks its problem or its answer; names file and row.
            MachineError: If the hub cannot be reached.
        """
        left = self.config.limit
        for index, where, row in self._rows():
            if not self._wanted(row) or (self.config.skip_unanswered and not self._answered(row)):
                continue
            if left == 0:
                return
            left = None if left is None else left - 1
            yield self._problem(index, where, row)

    def _rows(self) -> Iterator[Located]:
        yield from located(self.HUB, self.config.path)

    def _problem(self, index: int, where: str, row: Row) -> Problem:
        question = text(row, ("problem", "question"), where)
        prompt, stop = styles.render(
            self.config.style, question, styles.MATHS_PROBLEMS, self.config.shots
        )
        id_ = self._id(index, row, question)
        spec = {key: value for key, value in row.items() if key not in ("problem", "question")}
        spec |= {"gold_answer": self._answer(row, where, question)}
        solution = self._solution(row)
        if solution:
            spec |= {"gold_solution": solution}
        spec |= self._extra(row, str(spec["gold_answer"]))
        return Problem(
            id=id_,
            prompt=prompt,
            verifier=self.VERIFIER,
            spec=spec,
            dataset=f"math/{self.NAME}",
            stop=stop,
            tags=self._tags(row),
            where=where,
        )

    def _wanted(self, row: Row) -> bool:
        return True

    def _id(self, index: int, row: Row, question: str) -> str:
        return f"{self.NAME}_{index}"

    def _answer(self, row: Row, where: str, question: str) -> str:
        """The final answer: the field for it, else the last box of the solution."""
        if known := KNOWN_ANSWERS.get(content_hash(question)):
            return known
        given = row.get("answer")
        if isinstance(given, int | float) and not isinstance(given, bool):
            return str(int(given) if given == int(given) else given)
        if isinstance(given, str) and compare.normalise(given).text:
            box = boxes.last_box(given)
            return (box.text if box else given).strip()
        box = boxes.last_box(self._solution(row))
        if box is None:
            raise DataError(
                "no final answer: neither 'answer' nor a \\boxed{} in 'solution'",
                where=where,
                remedy="fix the row, or set skip_unanswered: true",
            )
        return box.text

    def _answered(self, row: Row) -> bool:
        try:
            return bool(self._answer(row, "", text(row, ("problem", "question"), "")))
        except DataError:
            return False

    def _solution(self, row: Row) -> str:
        solution = row.get("solution")
        return solution if isinstance(solution, str) else ""

    def _tags(self, row: Row) -> dict[str, Json]:
        return {}

    def _extra(self, row: Row, gold: str) -> dict[str, Json]:
        """More fields of the spec."""
        return {}


class Filtered(CommonConfig):
    """Options of data sets that have MATH's subjects and levels."""

    subjects: Annotated[tuple[Subject, ...], Field(min_length=1)] = SUBJECTS
    """Which of the seven subjects."""
    levels: Annotated[tuple[Level, ...], Field(min_length=1)] = (1, 2, 3, 4, 5)
    """Which levels; the two problems of unknown level come only with all five."""


class Math(Competition):
    """The 12,500 competition problems of MATH, in seven subjects and five levels.

    The id is subject and content hash, ``math_train_geometry_1f0c...``: the same whether the
    problem comes from the hub or a file, whatever the filters.
    """

    class Config(Filtered):
        """Options of MATH."""

        split: Literal["train", "test"] = "train"
        """Split; part of the problems' ids. Evaluate on ``test``, never train on it."""

    NAME = "math"
    REPO = "EleutherAI/hendrycks_math"
    HUB = (REPO, None, "train")

    @property
    def _split(self) -> str:
        return str(self.config.split)

    def _rows(self) -> Iterator[Located]:
        if self.config.path is not None:
            yield from super()._rows()
            return
        for subject in self.config.subjects:
            for number, row in hub_rows(self.REPO, subject, self._split):
                where = f"{self.REPO} {subject} {self._split}, row {number}"
                yield number - 1, where, row

    def _wanted(self, row: Row) -> bool:
        tags = self._tags(row)
        subjects, levels = self.config.subjects, self.config.levels
        known = tags["subject"] in subjects or (
            tags["subject"] not in SUBJECTS and len(set(subjects)) == len(SUBJECTS)
        )
        return known and (tags.get("level") in levels or len(set(levels)) == 5)

    def _id(self, index: int, row: Row, question: str) -> str:
        return f"math_{self._split}_{self._tags(row)['subject']}_{content_hash(question)}"

    def _tags(self, row: Row) -> dict[str, Json]:
        level = _LEVEL.search(str(row.get("level") or row.get("difficulty") or ""))
        tags: dict[str, Json] = {"subject": slug(str(row.get("type") or row.get("subject") or ""))}
        return tags | {"level": int(level[0])} if level else tags


class Math500(Math):
    """The 500 problems of the MATH test split that are commonly evaluated on; same ids as there."""

    class Config(Filtered):
        """Options of MATH-500."""

    NAME = "math500"
    HUB = ("HuggingFaceH4/MATH-500", None, "test")

    @property
    def _split(self) -> str:
        return "test"

    def _rows(self) -> Iterator[Located]:
        yield from Competition._rows(self)


class DeepScaler(Competition):
    """DeepScaleR's 40,315 competition problems, to train on."""

    NAME = "deepscaler"
    HUB = ("agentica-org/DeepScaleR-Preview-Dataset", None, "train")

    def _tags(self, row: Row) -> dict[str, Json]:
        subject = row.get("type")
        return {"subject": slug(subject)} if isinstance(subject, str) else {}


class Aime24(Competition):
    """AIME 2024, both papers: 30 problems with whole-number answers."""

    NAME = "aime24"
    HUB = ("HuggingFaceH4/aime_2024", None, "train")


class AimeValidation(Competition):
    """The 90 problems of AIME 2022 to 2024 collected for validation."""

    NAME = "aime_validation"
    HUB = ("AI-MO/aimo-validation-aime", None, "train")


class BeyondAime(Competition):
    """BeyondAIME: 100 harder problems with whole-number answers."""

    NAME = "beyondaime"
    HUB = ("ByteDance-Seed/BeyondAIME", None, "test")


class Amc23(Competition):
    """AMC 12 2023: the 40 problems with whole-number answers."""

    NAME = "amc23"
    HUB = ("math-ai/amc23", None, "test")


class MinervaMath(Competition):
    """Minerva's 272 course problems; answers are often rounded decimals."""

    NAME = "minerva_math"
    HUB = ("math-ai/minervamath", None, "test")
    VERIFIER = "math/qwen-math"

    def _tags(self, row: Row) -> dict[str, Json]:
        subject = row.get("type")
        return {"subject": slug(subject.partition("(")[0])} if isinstance(subject, str) else {}


class OlympiadBench(Competition):
    """OlympiadBench's 674 or so open-ended English mathematics problems without pictures."""

    NAME = "olympiadbench"
    HUB = ("Hothan/OlympiadBench", "OE_TO_maths_en_COMP", "train")
    VERIFIER = "math/qwen-math"

    def _answer(self, row: Row, where: str, question: str) -> str:
        answers = row.get("final_answer")
        if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
            raise DataError("field 'final_answer' must be a list of text", where=where)
        joined = ", ".join(answer.strip().strip("$") for answer in answers)
        if not compare.normalise(joined).text:
            raise DataError("field 'final_answer' is empty", where=where)
        return joined

    def _solution(self, row: Row) -> str:
        solutions = row.get("solution")
        return str(solutions[0]) if isinstance(solutions, list) and solutions else ""

    def _tags(self, row: Row) -> dict[str, Json]:
        subject = row.get("subfield")
        return {"subject": slug(subject)} if isinstance(subject, str) else {}

    def _extra(self, row: Row, gold: str) -> dict[str, Json]:
        """The row's absolute error as a relative tolerance."""
        error, value = row.get("error"), compare.number(compare.normalise(gold))
        if not error or not value:
            return {}
        return {"tolerance": min(0.1, float(str(error)) / abs(float(value)))}


def located(hub: tuple[str, str | None, str], path: str | None) -> Iterator[Located]:
    """The rows of a local file, or of a repository, configuration and split of the hub."""
    if path is None:
        repo, name, split = hub
        for number, row in hub_rows(repo, name, split):
            yield number - 1, f"{repo} {split}, row {number}", row
        return
    for index, (where, row) in enumerate(file_rows(local_path(path))):
        yield index, where, row


def content_hash(question: str) -> str:
    """Twelve hexadecimal digits of a problem's text."""
    return hashlib.sha256(question.strip().encode()).hexdigest()[:12]


def slug(name: str) -> str:
    """A subject name as it stands in ids and tags: ``counting_and_probability``."""
    words = re.sub(r"[^a-z0-9]+", " ", name.lower().replace("&", " and ")).split()
    return "_".join(words) or "unknown"


def text(row: Row, fields: tuple[str, ...], where: str) -> str:
    """The first of some fields that the row has, as text.

    Raises:
        DataError: If it has none, or it is empty or no text.
    """
    name = next((field for field in fields if field in row), None)
    value = row[name] if name else None
    if isinstance(value, str) and value.strip():
        return value
    fault = f"field '{name or fields[0]}' " + (
        "must be text and not empty" if name else "is missing"
    )
    raise DataError(
        fault, where=where, remedy=f"fields there are: {', '.join(map(str, row)) or 'none'}"
    )
