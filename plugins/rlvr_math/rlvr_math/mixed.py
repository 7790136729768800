"""The mathematics of the mixed set of grade-school, competition and instruction problems."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from rlvr_core.api import ComponentConfig, DataError, Problem
from rlvr_math.competition import Row, located

HUB = ("allenai/RLVR-GSM-MATH-IF-Mixed-Constraints", None, "train")
Part = Literal["gsm8k", "math"]
_STOP = {"gsm8k": ("Question:", "Q:"), "math": ("Question:", "Problem:")}
_VERIFIER = {"gsm8k": "math/gsm8k", "math": "math/answer"}


class Mixed:
    """The GSM8K and MATH rows of the set, with the few-shot prompts they come with."""

    class Config(ComponentConfig):
        """Options of the mixed set's maths part."""

        parts: Annotated[tuple[Part, ...], Field(min_length=1)] = ("gsm8k", "math")
        """Which rows, by their field ``dataset``."""
        path: str | None = None
        """A local file of the same rows; from the hub if absent."""
        limit: Annotated[int, Field(gt=0)] | None = None
        """Take only so many problems, from the start, after the filter."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def load(self) -> Iterator[Problem]:
        """Yield the problems; ids are by row of the whole set, whatever is filtered.

        Raises:
            DataError: If a row lacks its messages or its answer; names file and row.
            MachineError: If the hub cannot be reached.
        """
        given = 0
        for index, where, row in located(HUB, self.config.path):
            part = str(row.get("dataset", "")).lower()
            if part not in self.config.parts:
                continue
            if given == self.config.limit:
                return
            given += 1
            yield _problem(index, where, row, part)


def _problem(index: int, where: str, row: Row, part: str) -> Problem:
    messages, truth = row.get("messages"), row.get("ground_truth")
    turns = messages if isinstance(messages, list) else []
    prompt = next((turn.get("content") for turn in turns if isinstance(turn, dict)), None)
    if not isinstance(prompt, str) or not prompt.strip():
        raise DataError("field 'messages' must begin with a turn of text", where=where)
    if not isinstance(truth, str) or not truth.strip():
        raise DataError("field 'ground_truth' must be text and not empty", where=where)
    field = "answer" if part == "gsm8k" else "gold_answer"
    return Problem(
        id=f"mixed_{part}_{index}",
        prompt=prompt,
        verifier=_VERIFIER[part],
        spec={"ground_truth": truth, field: truth},
        dataset="math/mixed",
        stop=_STOP[part],
        tags={"part": part},
        where=where,
    )
