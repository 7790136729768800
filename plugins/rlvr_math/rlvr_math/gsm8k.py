"""GSM8K, the grade-school problems: the one place that knows their prompt, stops and verifier."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Annotated, Literal

from pydantic import Field

from rlvr_core.api import ComponentConfig, Json, Problem
from rlvr_core.api.services import hub_rows, local_path, read_rows
from rlvr_math import styles
from rlvr_math.competition import text
from rlvr_math.styles import StyleName
from rlvr_math.verifiers import QUESTION

DATASET = "math/gsm8k"
VERIFIER = "math/gsm8k"
HUB = ("openai/gsm8k", "main")
PROMPT = (
    QUESTION
    + " {question}\nReason step by step, then write the final number inside \\boxed{{}}.\nAnswer:"
)
"""The style ``plain``, in training and evaluation alike; base models continue it by themselves."""
STOP = (QUESTION,)
"""Ends a completion that goes on to invent the next problem."""


class Gsm8k:
    """Grade-school word problems whose answer is one number."""

    class Config(ComponentConfig):
        """Options of GSM8K."""

        split: Literal["train", "test"] = "train"
        """Split; part of the problems' ids. Evaluate on ``test``, never train on it."""
        path: str | None = None
        """The split's official ``.jsonl``, gzipped or not; from the hub when absent."""
        limit: Annotated[int, Field(gt=0)] | None = None
        """Take only so many rows, from the start."""
        style: StyleName = "plain"
        """How problems are put: ``plain``, ``minerva``, ``gsm8k-cot``, ``qwen-cot`` or ``r1``."""
        shots: Annotated[int, Field(ge=0, le=4)] | None = None
        """Worked examples in front, in styles other than ``plain``; the style's own number if
        absent."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def load(self) -> Iterator[Problem]:
        """Yield the problems in the order of the file.

        Raises:
            DataError: If a row lacks ``question`` or ``answer``; names file and line.
            MachineError: If the hub cannot be reached.
        """
        for index, (where, row) in enumerate(islice(self._rows(), self.config.limit)):
            question, answer = text(row, ("question",), where), text(row, ("answer",), where)
            prompt, stop = self._prompt(question)
            yield Problem(
                id=f"gsm8k_{self.config.split}_{index}",
                prompt=prompt,
                verifier=VERIFIER,
                spec={"answer": answer},
                dataset=DATASET,
                stop=stop,
                where=where,
            )

    def _rows(self) -> Iterator[tuple[str, Mapping[str, Json]]]:
        """Where each row is from, and the row."""
        if self.config.path is None:
            repo, name = HUB
            for number, row in hub_rows(repo, name, self.config.split):
                yield f"{repo} {self.config.split}, row {number}", row
        else:
            path = local_path(self.config.path)
            for number, row in read_rows(path):
                yield f"{path}:{number}", row

    def _prompt(self, question: str) -> tuple[str, tuple[str, ...]]:
        config = self.config
        if config.style == "plain":
            return PROMPT.format(question=question), STOP
        return styles.render(config.style, question, styles.WORD_PROBLEMS, config.shots)
