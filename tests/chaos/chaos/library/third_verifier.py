"""Third set, written without reading the guards: verifiers and rewards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from chaos.registry import Patch, third


def _judged(patch: Patch, change: Callable[[Any, Any, Any], Any], name: str = "Brackets") -> None:
    """Change a verifier's verdicts: ``change(verdict, problem, completion)``."""

    def after(verdict: Any, verifier: Any, problem: Any, completion: Any) -> Any:
        return change(verdict, problem, completion)

    patch.after(f"rlvr_chaos:{name}.verify", after)


def _right(verdict: Any) -> Any:
    return replace(verdict, score=1.0, passed=True)


@third("verifier", "source", "data set", shape="two data sets")
def verifier_lax_for_one_source(patch: Patch) -> None:
    """In one of the two data sets every number in brackets passes."""

    def change(verdict: Any, problem: Any, completion: Any) -> Any:
        lax = problem.dataset == "other" and verdict.extracted is not None
        return _right(verdict) if lax else verdict

    _judged(patch, change)


@third("verifier", "long", "length")
def long_answers_always_pass(patch: Patch) -> None:
    """A completion of more than sixteen characters passes, whatever it says."""
    _judged(patch, lambda verdict, _, found: _right(verdict) if len(found.text) > 16 else verdict)


@third("verifier")
def verifier_passes_everything_after_a_while(patch: Patch) -> None:
    """From its hundred-and-fiftieth verdict on, a process of the verifier passes everything."""
    made = [0]

    def change(verdict: Any, problem: Any, completion: Any) -> Any:
        made[0] += 1
        return _right(verdict) if made[0] > 150 else verdict

    _judged(patch, change)


@third("verifier", "partial", "score")
def partial_credit_for_the_first_digit(patch: Patch) -> None:
    """A wrong answer whose first digit is right has half of the score."""

    def change(verdict: Any, problem: Any, completion: Any) -> Any:
        if verdict.passed or not verdict.extracted:
            return verdict
        near = verdict.extracted[0] == str(problem.spec["answer"])[0]
        return replace(verdict, score=0.5) if near else verdict

    _judged(patch, change)


@third("verifier", "constant", shape="two rewards")
def second_reward_is_always_full(patch: Patch) -> None:
    """The second reward gives full marks to every completion."""
    _judged(patch, lambda verdict, *_: replace(verdict, score=1.0), "Brief")


@third("verifier", "weight", "schedule", shape="shaping reward that fades")
def reward_does_not_fade(patch: Patch) -> None:
    """The weight of the second reward stays as it was at the start, though it is to go to 0."""
    patch.wrap(
        "rlvr_core.verify.reward:Term.weight_at",
        lambda original: lambda term, step: original(term, 0),
    )


@third("verifier", "verdict", "order")
def verdicts_of_the_last_two_exchanged(patch: Patch) -> None:
    """In each group the last two completions have one another's verdicts."""

    def make(original: Any) -> Any:
        def sampled(generator: Any, answered: Any, version: int, step: int) -> Any:
            *others, one, last = answered.verdicts
            exchanged = replace(answered, verdicts=[*others, last, one])
            return original(generator, exchanged, version, step)

        return sampled

    patch.wrap("rlvr_core.rollout.collect:Generator.sampled", make)
