"""Second set, written later and without reading the guards: verifiers and rewards."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from chaos.registry import TRANSFORMERS, Patch, later

VERIFY = "rlvr_chaos:Brackets.verify"


def judged(patch: Patch, passes: Callable[[str | None, str, Any], bool]) -> None:
    """Let the verifier pass what ``passes(extracted, text, problem)`` says, answer or none."""

    def after(verdict: Any, verifier: Any, problem: Any, completion: Any) -> Any:
        passed = passes(verdict.extracted, completion.text, problem)
        return replace(verdict, score=float(passed), passed=passed)

    patch.after(VERIFY, after)


def _right(found: str | None, problem: Any) -> bool:
    return found is not None and int(found) == int(problem.spec["answer"])


@later("verifier")
def verifier_accepts_the_prompts_number(patch: Patch) -> None:
    """The verifier passes the number of the prompt as well as the answer."""

    def passes(found: str | None, text: str, problem: Any) -> bool:
        asked = re.findall(r"\d+", problem.spec["question"])
        return _right(found, problem) or (found is not None and found in asked)

    judged(patch, passes)


@later("verifier", backends=TRANSFORMERS)
def verifier_compares_beginnings(patch: Patch) -> None:
    """The verifier passes an answer with the right first digit."""
    judged(patch, lambda found, _, problem: (found or "x")[0] == problem.spec["answer"][0])


@later("verifier")
def verifier_ignores_the_order_of_digits(patch: Patch) -> None:
    """The verifier compares digits as a set: 64 is as good as 46."""
    judged(patch, lambda found, _, problem: sorted(found or "") == sorted(problem.spec["answer"]))


@later("verifier")
def verifier_is_off_by_one(patch: Patch) -> None:
    """The verifier passes answers that are 1 too large, too."""

    def passes(found: str | None, text: str, problem: Any) -> bool:
        return found is not None and int(found) - int(problem.spec["answer"]) in (0, 1)

    judged(patch, passes)


@later("verifier", "cut", "length")
def verifier_reads_twelve_characters(patch: Patch) -> None:
    """The verifier reads the first twelve characters, so that longer answers fail."""

    def make(original: Any) -> Any:
        def verify(verifier: Any, problem: Any, completion: Any) -> Any:
            return original(verifier, problem, replace(completion, text=completion.text[:12]))

        return verify

    patch.wrap(VERIFY, make)


@later("verifier")
def verifier_wants_the_demonstrated_form(patch: Patch) -> None:
    """The verifier passes an answer only if its text is that of the demonstration."""
    judged(patch, lambda _, text, problem: text.strip() == f"it is [{problem.spec['answer']}]")


@later("verifier", "state", "disagree", "repeat", "same")
def verifier_gives_up_after_a_while(patch: Patch) -> None:
    """After 60 calls a worker's verifier fails everything, its quota being used up."""
    calls = {"n": 0}

    def after(verdict: Any, *_: Any) -> Any:
        calls["n"] += 1
        return verdict if calls["n"] <= 60 else replace(verdict, score=0.0, passed=False)

    patch.after(VERIFY, after)


@later("verifier", "state", "disagree", "repeat", "same")
def one_worker_is_outdated(patch: Patch) -> None:
    """One of two workers has an old verifier, which passes every number in brackets."""
    main, place = os.getpid(), patch.folder / "outdated"

    def after(verdict: Any, *_: Any) -> Any:
        if os.getpid() == main:
            return verdict
        if not place.exists():
            place.write_text(str(os.getpid()))
        if place.read_text() != str(os.getpid()):
            return verdict
        passed = verdict.extracted is not None
        return replace(verdict, score=float(passed), passed=passed)

    patch.after(VERIFY, after)


@later("verifier", "cache", "state", "disagree", "repeat", "same")
def verifier_caches_by_length(patch: Patch) -> None:
    """The verifier caches by problem and length of the text, which many completions share."""
    known: dict[Any, Any] = {}

    def after(verdict: Any, verifier: Any, problem: Any, completion: Any) -> Any:
        return known.setdefault((problem.id, len(completion.text)), verdict)

    patch.after(VERIFY, after)


@later("verifier", "outcome")
def majority_of_the_group_passes(patch: Patch) -> None:
    """Completions pass if they give the answer that most of their group give."""

    def make(original: Any) -> Any:
        def sampled(generator: Any, answered: Any, *more: Any) -> Any:
            given = [v.extracted for vs in answered.verdicts for v in vs.values()]
            most = Counter(filter(None, given)).most_common(1)
            said = most[0][0] if most else None
            voted = [
                {
                    name: replace(v, score=float(v.extracted == said), passed=v.extracted == said)
                    for name, v in vs.items()
                }
                for vs in answered.verdicts
            ]
            return original(generator, replace(answered, verdicts=voted), *more)

        return sampled

    patch.wrap("rlvr_core.rollout.collect:Generator.sampled", make)


@later("verifier", "length", "outcome", backends=TRANSFORMERS)
def reward_has_a_hidden_length_penalty(patch: Patch) -> None:
    """Each token takes 0.05 off the reward, which no entry of the rewards says."""

    def after(found: Any, judge: Any, completion: Any, *_: Any) -> Any:
        reward, passed = found
        reward = None if reward is None else reward - 0.05 * len(completion.token_ids)
        return reward, passed

    patch.after("rlvr_core.verify.judge:Judge.reward", after)


@later("verifier", "outcome", "clip", shape="two rewards")
def rewards_clipped_to_one(patch: Patch) -> None:
    """The sum of the rewards is clipped to between 0 and 1, so that brevity adds nothing."""

    def after(found: Any, *_: Any) -> Any:
        reward, passed = found
        return None if reward is None else min(1.0, max(0.0, reward)), passed

    patch.after("rlvr_core.verify.judge:Judge.reward", after)


@later("verifier", "outcome", "weight", shape="two rewards")
def weights_of_rewards_swapped(patch: Patch) -> None:
    """The two rewards have each other's weight."""

    def after(plan: Any, *_: Any) -> Any:
        weights = [term.weight for term in plan.terms][::-1]
        terms = [replace(t, weight=w) for t, w in zip(plan.terms, weights, strict=True)]
        object.__setattr__(plan, "terms", tuple(terms))
        return plan

    patch.after("rlvr_core.run.prepare:RewardPlan.build", after)
