"""Promises of advantage estimators. N completions of a step."""

from __future__ import annotations

import copy
import math

from rlvr_core.api import AdvantageOutput, AdvantageTraits, JudgedStep, traits_of
from rlvr_devkit.conformance.made import group
from rlvr_devkit.conformance.subject import Check, Subject, demand


def judged_step(traits: AdvantageTraits) -> JudgedStep:
    """Return two groups of four completions, of which one has no reward."""
    import numpy as np

    groups = group((1.0, 0.0, 0.25, 1.0)), group((0.0, None, 1.0, 0.5))
    members = [member for group in groups for member in group.members]
    reward_N = np.array([math.nan if m.reward is None else m.reward for m in members])
    lengths = [len(member.completion.token_ids) for member in members]
    return JudgedStep(
        groups=groups,
        group_N=np.repeat(np.arange(2), 4),
        reward_N=reward_N,
        score_NK=reward_N[:, None].copy(),
        weights=(1.0,),
        kl_N=tuple(np.full(n, 0.1) for n in lengths) if traits.needs_reference_kl else None,
    )


def advantages_fit(subject: Subject) -> None:
    """Check number, shape and finiteness, with one completion without a reward."""
    estimator = subject.build()
    traits = traits_of(estimator, AdvantageTraits)
    step = judged_step(traits)
    output = estimator(step)
    what = f"return an AdvantageOutput, not {type(output).__name__}"
    demand(isinstance(output, AdvantageOutput), what)
    advantages = list(output.advantages)
    demand(
        len(advantages) == 8,
        f"{len(advantages)} advantages for 8 completions: give one each, in order",
    )
    scored: list[float] = []
    for value, member in zip(advantages, step.members, strict=True):
        numbers = [float(x) for x in value] if traits.per_token else [float(value)]
        n = len(member.completion.token_ids)
        if traits.per_token:
            demand(len(numbers) == n, f"{len(numbers)} advantages for a completion of {n} tokens")
        if member.reward is None:
            continue
        what = f"the advantage of reward {member.reward} is {numbers}: leave NaN rewards out"
        demand(all(map(math.isfinite, numbers)), what)
        scored += numbers
    demand(any(x != 0 for x in scored), "every advantage is 0, though rewards differ")


def advantages_are_pure(subject: Subject) -> None:
    """Check that the step is not modified and a second call returns the same."""
    import numpy as np

    estimator = subject.build()
    step = judged_step(traits_of(estimator, AdvantageTraits))
    before = copy.deepcopy(step)
    first, second = (list(map(str, estimator(step).advantages)) for _ in range(2))
    demand(first == second, "two calls on one step differ: draw no random numbers, keep no state")
    for name in ("group_N", "reward_N", "score_NK"):
        same = np.array_equal(getattr(step, name), getattr(before, name), equal_nan=name[0] != "g")
        demand(same, f"step.{name} is changed in place: copy it first")


ADVANTAGE_CHECKS: tuple[Check, ...] = (
    Check("fit", "one finite advantage per completion or token", advantages_fit),
    Check("pure", "it keeps no state and changes no input", advantages_are_pure),
)
