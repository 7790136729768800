"""The verifier, or the way of its verdicts to the rewards, is wrong."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.together.chaos.changes import BRACKETS, verdicts
from tests.together.chaos.registry import BOTH, Patch, fault


def _passes(patch: Patch, rule: Callable[[str, str], bool]) -> None:
    """Let the verifier pass by another rule: ``rule(text, answer)``."""
    from rlvr_core.api import Verdict

    def verify(self: Any, problem: Any, completion: Any) -> Any:
        passed = bool(rule(completion.text, str(problem.spec["answer"])))
        return Verdict(float(passed), passed=passed, parts={"extracted": 1.0})

    patch.wrap(f"{BRACKETS}.verify", lambda original: verify)


def _remembered(patch: Patch, key: Callable[[Any, Any], str]) -> None:
    """Let the verifier remember its verdicts by a key that says too little."""
    known: dict[str, Any] = {}

    def make(original: Any) -> Any:
        def verify(self: Any, problem: Any, completion: Any) -> Any:
            place = key(problem, completion)
            if place not in known:
                known[place] = original(self, problem, completion)
            return known[place]

        return verify

    patch.wrap(f"{BRACKETS}.verify", make)


@fault("gold", "preflight", "canaries", backends=BOTH)
def verifier_inverted(patch: Patch) -> None:
    """Right answers fail and wrong ones pass."""
    _passes(patch, lambda text, answer: f"[{answer}]" not in text)


@fault("gold", "preflight", "canaries")
def verifier_passes_everything(patch: Patch) -> None:
    """Everything passes."""
    _passes(patch, lambda *_: True)


@fault("gold", "preflight", "canaries")
def verifier_wants_form_alone(patch: Patch) -> None:
    """Whatever has a number in brackets passes."""
    _passes(patch, lambda text, answer: bool(re.search(r"\[\d+\]", text)))


@fault("gold", "preflight", "canaries")
def verifier_is_random(patch: Patch) -> None:
    """One verdict in four is turned round at random, another one at each call."""

    def change(verdict: Any, *_: Any) -> Any:
        if os.urandom(1)[0] % 4:
            return verdict
        return replace(verdict, score=1.0 - verdict.score, passed=not verdict.passed)

    patch.after(f"{BRACKETS}.verify", change)


@fault("gold", "preflight", "canaries")
def verdicts_remembered_by_text(patch: Patch) -> None:
    """A verdict is remembered by the text alone, whatever the problem."""
    _remembered(patch, lambda problem, completion: completion.text)


@fault("gold", "preflight", "canaries")
def verdicts_in_the_wrong_order(patch: Patch) -> None:
    """The verdicts on a group come back in the order of its completions turned round."""
    verdicts(patch, lambda given: given[::-1])


@fault("canaries")
def verdict_of_the_second_for_all(patch: Patch) -> None:
    """All but the first completion of a group have the verdict on the second."""
    verdicts(patch, lambda given: [given[0], *[given[1]] * (len(given) - 1)])


@fault("canaries")
def verdicts_of_another_group(patch: Patch) -> None:
    """Each group has the verdicts on the group before."""
    before: list[Any] = []

    def late(given: list[Any]) -> list[Any]:
        old = before[:] if len(before) == len(given) else given
        before[:] = given
        return old

    verdicts(patch, late)


@fault("canaries")
def first_of_each_group_always_passes(patch: Patch) -> None:
    """A judge that compares leans to what it reads first: each group's first completion passes."""

    def change(given: list[Any]) -> list[Any]:
        if len(given) < 8:  # known answers are judged in smaller groups
            return given
        first = {k: replace(v, score=1.0, passed=True) for k, v in given[0].items()}
        return [first, *given[1:]]

    verdicts(patch, change)
