"""The rows that verifiers are timed and compared on: a reference, a response, what is right.

They are made from the folder that the environment variable ``RLVR_DATA`` names: GSM8K's labelled
model solutions, and MATH's 12,500 gold solutions with answers corrupted from theirs.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rlvr_core.api import Completion, Problem
from rlvr_math.competition import Math

DATA = Path(os.environ.get("RLVR_DATA", "data"))
SETS = ("gsm8k", "math-gold", "math-corrupted")
_ZERO = re.compile(r"(?:[a-z] ?= ?)?0(?![.\d])|(?=.*matrix)[^1-9]*\Z")
_PAIR = re.compile(r"(?:\\left)?\(([^,()]*),([^,()]*?)(?:\\right)?\)")


@dataclass(frozen=True, slots=True)
class Row:
    """One response to judge.

    Attributes:
        id: Unique and stable.
        gold: The reference answer.
        response: What is judged.
        expected: Whether it is right: the label, or how the row was made.
    """

    id: str
    gold: str
    response: str
    expected: bool

    @property
    def problem(self) -> Problem:
        """What our verifiers get beside the response; responses to one problem share it."""
        return Problem(self.id.partition("/")[0], "", "math/answer", {"answer": self.gold}, "rows")

    @property
    def completion(self) -> Completion:
        """The response as our verifiers get it."""
        return Completion.from_text(self.response)


def rows(name: str) -> list[Row]:
    """One of ``SETS``."""
    if name == "gsm8k":
        return list(_labelled())
    problems = [(one.id, one.spec) for one in _problems()]
    if name == "math-gold":
        return [Row(i, str(s["gold_answer"]), str(s["gold_solution"]), True) for i, s in problems]
    return [
        Row(f"{id}/{kind}", str(spec["gold_answer"]), f"\\boxed{{{text}}}", False)
        for id, spec in problems
        for kind, text in corrupted(str(spec["gold_answer"]), id)
    ]


def _labelled() -> Iterator[Row]:
    with gzip.open(DATA / "gsm8k" / "example_model_solutions.jsonl.gz", "rt") as lines:
        for number, line in enumerate(lines):
            row = json.loads(line)
            gold = row["ground_truth"].rpartition("A: ")[2]
            for model, said in row.items():
                if isinstance(said, dict):
                    yield Row(
                        f"gsm8k_test_{number}/{model}", gold, said["solution"], said["is_correct"]
                    )


def _problems() -> Iterator[Problem]:
    for split, name in (("train", "train_7500.jsonl.gz"), ("test", "test_5000.jsonl.gz")):
        yield from Math(Math.Config(split=split, path=str(DATA / "math" / name))).load()


def corrupted(answer: str, seed: str) -> Iterator[tuple[str, str]]:
    """The answer with a digit changed, its sign flipped, the ends of a pair swapped."""
    rng = random.Random(seed)
    digits = [found.start() for found in re.finditer(r"\d", answer)]
    if digits:
        at = rng.choice(digits)
        digit = str((int(answer[at]) + rng.randint(1, 9)) % 10)
        yield "digit", answer[:at] + digit + answer[at + 1 :]
    if not _ZERO.match(answer):  # -0 is 0
        yield "sign", answer[1:] if answer.startswith("-") else f"-{answer}"
    pair = _PAIR.fullmatch(answer)
    if pair and pair[1].strip() != pair[2].strip():
        yield "swap", f"({pair[2]},{pair[1]})"
