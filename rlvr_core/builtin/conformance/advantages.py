"""Promises of advantage estimators. N completions of a step."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

from rlvr_core.api import (
    AdvantageOutput,
    AdvantageTraits,
    Completion,
    Group,
    Judged,
    JudgedStep,
    Problem,
    Verdict,
    traits_of,
)
from rlvr_core.builtin.conformance.subject import Check, Subject, demand


def judged_step(traits: AdvantageTraits, order: Sequence[int] = (0, 1)) -> JudgedStep:
    """Return two groups of four completions in ``order``; one completion has no reward."""
    import numpy as np

    rewards = ((1.0, 0.0, 0.25, 1.0), (0.0, math.nan, 1.0, 0.5))
    groups = []
    for place in order:
        problem = Problem(f"p{place}", "?", "v", {}, "conformance")
        members = []
        for index, reward in enumerate(rewards[place]):
            n = 2 + index
            completion = Completion((1,), (5,) * n, (-1.0,) * n, (True,) * n, "x" * n, "stop")
            known = None if math.isnan(reward) else reward
            status: Any = "ok" if known is not None else "unscorable"
            verdict = Verdict(known, status, passed=None if known is None else known == 1.0)
            members.append(Judged(completion, {"v": verdict}, known, verdict.passed))
        groups.append(Group(problem, tuple(members), 0))
    reward_N = np.array([reward for place in order for reward in rewards[place]])
    lengths = [len(m.completion.token_ids) for group in groups for m in group.members]
    return JudgedStep(
        groups=tuple(groups),
        group_N=np.repeat(np.arange(2), 4),
        reward_N=reward_N,
        score_NK=reward_N[:, None].copy(),
        weights=(1.0,),
        kl_N=tuple(np.full(n, 0.1) for n in lengths) if traits.needs_reference_kl else None,
    )


def _advantages(subject: Subject, order: Sequence[int] = (0, 1)) -> list[list[float]]:
    """Return the advantages of the scored completions, one list of numbers each."""
    estimator = subject.build()
    traits = traits_of(estimator, AdvantageTraits)
    step = judged_step(traits, order)
    output = estimator(step)
    what = f"return an AdvantageOutput, not {type(output).__name__}"
    demand(isinstance(output, AdvantageOutput), what)
    advantages = list(output.advantages)
    demand(
        len(advantages) == 8,
        f"{len(advantages)} advantages for 8 completions: give one each, in order",
    )
    scored = []
    for value, member in zip(advantages, step.members, strict=True):
        numbers = [float(x) for x in value] if traits.per_token else [float(value)]
        n = len(member.completion.token_ids)
        if traits.per_token:
            demand(len(numbers) == n, f"{len(numbers)} advantages for a completion of {n} tokens")
        if member.reward is None:
            continue
        what = f"the advantage of reward {member.reward} is {numbers}: leave NaN rewards out"
        demand(all(map(math.isfinite, numbers)), what)
        scored.append(numbers)
    return scored


def advantages_fit(subject: Subject) -> None:
    """Check number, shape and finiteness, with one completion without a reward."""
    numbers = [x for row in _advantages(subject) for x in row]
    demand(any(x != 0 for x in numbers), "every advantage is 0, though rewards differ")


def advantages_ignore_order(subject: Subject) -> None:
    """Check that advantages do not depend on the order of the groups."""
    forward, backward = _advantages(subject), _advantages(subject, (1, 0))
    for a, b in zip(forward, [*backward[3:], *backward[:3]], strict=True):
        close = all(math.isclose(x, y, abs_tol=1e-9) for x, y in zip(a, b, strict=True))
        demand(close, f"a completion has advantage {a}, and {b} when the groups are swapped")


def advantages_are_pure(subject: Subject) -> None:
    """Check that the step is not modified and a second call returns the same."""
    import numpy as np

    estimator = subject.build()
    step = judged_step(traits_of(estimator, AdvantageTraits))
    before = copy.deepcopy(step)
    first, second = (list(map(str, estimator(step).advantages)) for _ in range(2))
    demand(first == second, "two calls on one step differ: draw no random numbers, keep no state")
    for name in ("group_N", "reward_N", "score_NK"):
        now, then = getattr(step, name), getattr(before, name)
        same = np.array_equal(now, then, equal_nan=name != "group_N")
        demand(same, f"step.{name} is changed in place: copy it first")


ADVANTAGE_CHECKS: tuple[Check, ...] = (
    Check("fit", "one finite advantage per completion or token", advantages_fit),
    Check("order", "the order of groups changes nothing", advantages_ignore_order),
    Check("pure", "it keeps no state and changes no input", advantages_are_pure),
)
