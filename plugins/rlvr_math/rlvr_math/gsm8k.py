"""GSM8K, the grade-school problems: the one place that knows their prompt, stops and verifier."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Literal

from rlvr_core.api import Problem
from rlvr_math import styles
from rlvr_math.competition import SourceConfig, located, text
from rlvr_math.verifiers import QUESTION

DATASET = "math/gsm8k"
VERIFIER = "math/gsm8k"
HUB = ("openai/gsm8k", "main")
PROMPT = (
    QUESTION
    + " {question}\nReason step by step, then write the final number inside \\boxed{{}}.\nAnswer:"
)
"""The style ``plain``, in training and evaluation alike; base models continue it on their own."""
STOP = (QUESTION,)
"""Ends a completion that goes on to invent the next problem."""


class Gsm8k:
    """Grade-school word problems whose answer is one number."""

    class Config(SourceConfig):
        """Options of GSM8K."""

        split: Literal["train", "test"] = "train"
        """Split; part of the problems' ids. Evaluate on ``test``, never train on it."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def load(self) -> Iterator[Problem]:
        """Yield the problems in the order of the file.

        Raises:
            DataError: If a row lacks ``question`` or ``answer``; names file and line.
            MachineError: If the hub cannot be reached.
        """
        rows = located((*HUB, self.config.split), self.config.path)
        for index, where, row in islice(rows, self.config.limit):
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

    def _prompt(self, question: str) -> tuple[str, tuple[str, ...]]:
        config = self.config
        if config.style == "plain":
            return PROMPT.format(question=question), STOP
        return styles.render(config.style, question, styles.WORD_PROBLEMS, config.shots)
