"""Sums of three digits by reasoning-gym's ``chain_sum``, which a tiny model learns on a CPU."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from rlvr_core.api import ComponentConfig, Problem
from rlvr_gym.datasets import Tasks

DATASET = "gym/tiny"
TASK = "chain_sum"
OPTIONS = {"min_terms": 3, "max_terms": 3, "min_digits": 1, "max_digits": 1}
MAX_TOKENS = 48
"""Cap on a completion: room for a worked solution with the tiny model's tokenizer."""

SHOWN = 3000
"""Different problems among the demonstrations, of about 3,600."""
CAREFUL = 0.25
"""Share of careful demonstrations in the second half; the others there guess."""
SLIP = 0.01
"""How often one step of a careful demonstration is wrong by one."""
SPREAD = 9
"""Largest distance of a guess from the result."""

_TERM = re.compile(r"([-+]?) ?(\d)(?= |$)")


class Tiny:
    """Problems such as ``4 - 1 - 7`` of ``chain_sum``, and demonstrations for a warm start."""

    class Config(ComponentConfig):
        """Options of ``gym/tiny``."""

        split: Literal["train", "heldout"] = "train"
        """A tenth of the questions, by their hash, is held out."""
        n: Annotated[int, Field(gt=0)] = 2000
        """How many problems."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def load(self) -> Iterator[Problem]:
        """Yield the problems of the split."""
        yield from _problems(self.config.split, self.config.n, seed=0)

    def demonstrations(self, n: int, seed: int) -> Iterator[tuple[Problem, str]]:
        """Yield ``n`` training problems, each with a careful or a hasty completion.

        A careful one writes every intermediate result, seldom a wrong one; a hasty one is a number
        near the result, straight in the tags. The first half is careful, the second mostly hasty:
        a model trained on them in order knows the right way and seldom takes it.
        """
        rng = random.Random(f"demonstrations {seed}")
        shown = list(_problems("train", SHOWN, seed=1))
        for index in range(n):
            problem = rng.choice(shown)
            terms = _terms(problem)
            careful = index < n // 2 or rng.random() < CAREFUL
            yield problem, _careful(terms, rng) if careful else _hasty(terms, rng)


def _problems(split: Literal["train", "heldout"], n: int, seed: int) -> Iterator[Problem]:
    config = Tasks.Config(tasks=(TASK,), options=OPTIONS, n=n, split=split, seed=seed)
    for problem in Tasks(config).load():
        yield replace(problem, dataset=DATASET, max_tokens=MAX_TOKENS)


def _terms(problem: Problem) -> list[int]:
    """Return the numbers of a question with their signs."""
    assert isinstance(problem.prompt, str)
    question = problem.prompt.partition(": ")[2].partition(" =")[0]
    return [int(sign + digit) for sign, digit in _TERM.findall(question)]


def _careful(terms: Sequence[int], rng: random.Random) -> str:
    """``4-1=3 3-7=-4 <answer>-4</answer>``."""
    total, steps = terms[0], ""
    for term in terms[1:]:
        slip = rng.choice((-1, 1)) if rng.random() < SLIP else 0
        steps += f" {total}{term:+d}={total + term + slip}"
        total += term + slip
    return f"{steps} <answer>{total}</answer>"


def _hasty(terms: Sequence[int], rng: random.Random) -> str:
    return f" <answer>{sum(terms) + rng.randint(-SPREAD, SPREAD)}</answer>"
