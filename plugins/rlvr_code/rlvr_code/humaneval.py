"""HumanEval: the bodies of 164 functions, given by signature and docstring."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from rlvr_code.rows import INSTRUCT, Common, field, located
from rlvr_core.api import Problem

HUB = ("openai/openai_humaneval", None, "test")
STOP = ("\nif __name__", "\nprint(", "\nassert ")
"""Text that follows an answer of a base model. A new ``def`` may be a helper."""

WHOLE = ("instruction", "question", "text", "description")
"""Where a row whose prompt is empty says what is asked for."""


class HumanEval:
    """HumanEval, to evaluate on; never train on it."""

    class Config(Common):
        """Options of HumanEval."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def load(self) -> Iterator[Problem]:
        """Yield the problems in the order of the source.

        Raises:
            DataError: If a row lacks something; names file and line.
            MachineError: If the hub cannot be reached.
        """
        for where, row in islice(located(self.config.path, HUB), self.config.limit):
            base = self.config.style == "base"
            if row.get("prompt") == "":  # the response is the whole program
                prompt = f"{field(row, WHOLE, where).rstrip()}\n\n"
                request = prompt + INSTRUCT
            else:
                prompt = field(row, ("prompt",), where)
                request = f"Complete this function.\n\n```python\n{prompt}```\n\n{INSTRUCT}"
            yield Problem(
                id=field(row, ("task_id",), where).lower().replace("/", "_"),
                prompt=prompt if base else request,
                verifier="code/humaneval",
                spec=dict(row),
                dataset="code/humaneval",
                stop=STOP if base else (),
                max_tokens=512 if base else None,
            )
