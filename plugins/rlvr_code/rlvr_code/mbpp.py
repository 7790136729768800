"""MBPP: short functions described in a sentence, tested by assertions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Annotated, Literal

from pydantic import Field

from rlvr_code.rows import DONE, INSTRUCT, Common, Located, Row, field, located, whole
from rlvr_core.api import DataError, Problem

VERIFIER = "code/mbpp"
REPO = "google-research-datasets/mbpp"
SPLITS = {
    "prompt": range(1, 11),
    "test": range(11, 511),
    "validation": range(511, 601),
    "train": range(601, 975),
}
"""Task ids of each split; they are the same in the sanitised version, where some are missing."""
SHOTS = (2, 3, 4)
"""Task ids of the worked examples, of the split ``prompt``."""
STOP = (DONE,)


class Mbpp:
    """MBPP: 974 short functions, or the 427 of them that were checked by hand."""

    class Config(Common):
        """Options of MBPP."""

        split: Literal["train", "validation", "test", "prompt"] = "train"
        """Split, by task id: 374 to train on, 90, 500 to test on, 10 for examples."""
        sanitized: bool = False
        """The version checked by hand; ``path`` then names its file."""
        shots: Annotated[int, Field(ge=0, le=3)] = 0
        """Worked examples in front, from the split ``prompt`` of the same data."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def load(self) -> Iterator[Problem]:
        """Yield the problems in the order of the source.

        Raises:
            DataError: If a row lacks something; names file and line.
            MachineError: If the hub cannot be reached.
        """
        examples = self._examples()
        yield from islice(self._problems(examples), self.config.limit)

    def _problems(self, examples: str) -> Iterator[Problem]:
        for where, row in self._rows(self.config.split):
            id_ = whole(row, "task_id", where)
            if id_ in SPLITS[self.config.split]:
                yield self._problem(id_, examples, where, row)

    def _problem(self, id_: int, examples: str, where: str, row: Row) -> Problem:
        question = _question(row, where)
        base = self.config.style == "base"
        return Problem(
            id=f"mbpp_{id_}",
            prompt=examples + question + "[BEGIN]\n" if base else f"{question}\n{INSTRUCT}",
            verifier=VERIFIER,
            spec=dict(row),
            dataset="code/mbpp",
            stop=STOP if base else (),
        )

    def _rows(self, split: str) -> Iterator[Located]:
        name = "sanitized" if self.config.sanitized else "full"
        return located(self.config.path, (REPO, name, split))

    def _examples(self) -> str:
        wanted = SHOTS[: self.config.shots]
        if not wanted:
            return ""
        examples: dict[int, str] = {}
        for where, row in self._rows("prompt"):
            id_ = whole(row, "task_id", where)
            if id_ in wanted:
                code = field(row, ("code",), where).replace("\r\n", "\n").rstrip()
                examples[id_] = f"{_question(row, where)}[BEGIN]\n{code}\n{DONE}\n\n"
        if len(examples) < len(wanted):
            missing = ", ".join(str(id_) for id_ in wanted if id_ not in examples)
            raise DataError(
                f"the worked examples, tasks {missing}, are not in the data",
                where=str(self.config.path or REPO),
                remedy="set shots: 0, or give a file that has them",
            )
        return "".join(examples[id_] for id_ in wanted)


def _question(row: Row, where: str) -> str:
    """The task and all its tests, however many there are."""
    task = field(row, ("text", "prompt"), where).replace("\r\n", "\n").strip()
    tests = row.get("test_list")
    if not isinstance(tests, list) or not tests:
        raise DataError("field 'test_list' must be a list of assertions", where=where)
    return (
        f"You are an expert Python programmer, and here is your task: {task} Your code should pass "
        f"these tests:\n\n{_lines(row)}\n"
    )


def _lines(row: Mapping[str, list[str]]) -> str:
    return "\n".join(test.replace("\r\n", "\n") for test in row["test_list"])
