"""Generated two-digit additions: a task that a tiny model learns on a CPU in minutes."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from rlvr_core.api import ComponentConfig, Problem

DATASET = "math/arithmetic"
VERIFIER = "math/boxed"
MAX_TOKENS = 44
"""Cap on a completion: room for a worked solution with the tiny model's tokenizer."""

CAREFUL = 0.25
"""Share of careful demonstrations in the second half; the others there guess."""
SLIP = 0.05
"""How often a careful demonstration drops a carry."""
SPREAD = 15
"""Largest distance of a guess from the sum."""

_LOWEST, _HIGHEST = 10, 99


class Arithmetic:
    """Problems ``What is 37+48?`` with answer ``85``, and demonstrations for a warm start.

    A pair of operands belongs to one split by a hash of the unordered pair, so that neither
    37+48 nor 48+37 is trained on when the other is held out.
    """

    class Config(ComponentConfig):
        """Options of the generated additions."""

        split: Literal["train", "heldout"] = "train"
        """``train`` has about nine tenths of the operand pairs, ``heldout`` the rest."""
        n: Annotated[int, Field(gt=0)] | None = None
        """How many problems; null gives all of the split."""
        seed: Annotated[int, Field(ge=0)] = 0
        """Order of the problems, hence which ``n`` are taken."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def load(self) -> Iterator[Problem]:
        """Yield the problems of the split in an order given by the seed."""
        pairs = [pair for pair in _all_pairs() if _is_heldout(*pair) == self._heldout]
        random.Random(f"order {self.config.seed}").shuffle(pairs)
        for a, b in pairs[: self.config.n]:
            yield _problem(a, b)

    def demonstrations(self, n: int, seed: int) -> Iterator[tuple[Problem, str]]:
        """Yield ``n`` training problems, each with a careful or a hasty completion.

        A careful one works digit by digit with the carry and sometimes drops it; a hasty one is a
        number near the sum, straight in the box. The first half is careful, the second mostly
        hasty: a model trained on them in order knows the right way and seldom takes it, which
        leaves something to reinforce.
        """
        pairs = [pair for pair in _all_pairs() if not _is_heldout(*pair)]
        rng = random.Random(f"demonstrations {seed}")
        for index in range(n):
            a, b = rng.choice(pairs)
            careful = index < n // 2 or rng.random() < CAREFUL
            yield _problem(a, b), _careful(a, b, rng) if careful else _hasty(a, b, rng)

    @property
    def _heldout(self) -> bool:
        return self.config.split == "heldout"


def _all_pairs() -> list[tuple[int, int]]:
    operands = range(_LOWEST, _HIGHEST + 1)
    return [(a, b) for a in operands for b in operands]


def _is_heldout(a: int, b: int) -> bool:
    low, high = sorted((a, b))
    return hashlib.sha256(f"{low}+{high}".encode()).digest()[0] % 10 == 0


def _problem(a: int, b: int) -> Problem:
    return Problem(
        id=f"arithmetic_{a}+{b}",
        prompt=f"What is {a}+{b}?",
        verifier=VERIFIER,
        spec={"answer": str(a + b)},
        dataset=DATASET,
        max_tokens=MAX_TOKENS,
        tags={"carry": a % 10 + b % 10 >= 10},
    )


def _careful(a: int, b: int, rng: random.Random) -> str:
    r"""`` 7+8=15, 3+4+1=8, \boxed{85}``; a dropped carry gives ``3+4=7`` and ``75``."""
    ones = a % 10 + b % 10
    carry = ones >= 10 and rng.random() >= SLIP
    tens = a // 10 + b // 10 + carry
    with_carry = "+1" if carry else ""
    work = f" {a % 10}+{b % 10}={ones}, {a // 10}+{b // 10}{with_carry}={tens},"
    return f"{work} \\boxed{{{tens}{ones % 10}}}"


def _hasty(a: int, b: int, rng: random.Random) -> str:
    return f" \\boxed{{{a + b + rng.randint(-SPREAD, SPREAD)}}}"
