"""Invariant ``rewards``: a reward is the weighted sum of its verdicts' scores, as configured.

Where a weight has a schedule, a completion that is sampled in its step has that step's weight. One
that was sampled ahead of training, or is trained on again, may have that of any step so far.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlvr_core.api import Metric, RlvrError
from rlvr_core.api.services import load_host
from rlvr_core.builtin.invariants.check import Invariant, StepView
from rlvr_core.builtin.invariants.moments import fresh_groups

if TYPE_CHECKING:
    from rlvr_core.api import GroupsScored, Judged, Problem, Verdict
    from rlvr_core.api.services import RunConfig

ROUNDING = 1e-9
"""Share of the terms of a reward that is rounding."""

ENVIRONMENT = "core/environment"
"""The verifier whose verdicts are those of environments."""

OVERLONG = "core/overlong"
"""The verifier whose scores follow from the number of tokens."""

AUTO = "auto"
"""Entry of ``rewards`` that stands for the verifier that a problem names."""

FULL_MARKS = 1.0
"""Score that passes where a verdict does not say whether it does."""


class Rewards(Invariant):
    """Rewards and outcomes follow from verdicts.

    Args:
        config: The run's configuration.
    """

    id, phase = "rewards", "before each step"
    reports = (
        Metric(
            "rewards/error",
            "Largest difference of a reward from the weighted sum of its verdicts' scores.",
            "",
        ),
    )

    def __init__(self, config: RunConfig) -> None:
        self._refs: Sequence[Any] = config.rewards
        self._in_turns = config.train.max_staleness == 0
        self._error = math.nan
        self._names: dict[str, str | None] = {}

    def on_groups(self, event: GroupsScored) -> None:
        """Compute each reward of a step again, dropped groups included."""
        self._error = math.nan
        so_far = [_range(ref, event.step) for ref in self._refs]
        exact = [(weight, weight) for weight in (weight_of(ref, event.step) for ref in self._refs)]
        fresh = {id(group) for group in fresh_groups(event)} if self._in_turns else set()
        for group in event.groups:
            wanted = [self._name(ref, group.problem) for ref in self._refs]
            weights = exact if id(group) in fresh else so_far
            for number, member in enumerate(group.members):
                # completions that are given rewards by something else have no verdicts to compare
                if len(member.verdicts) == len(weights):
                    what = _by_another(member, wanted) or self._wrong(member, weights)
                    if what:
                        raise self.fault(
                            event.step,
                            f"completion {number} of problem {group.problem.id}: {what}",
                            "a verdict and its reward are of different completions, a weight or "
                            "its schedule is not that of `rewards` in the config, or something "
                            "changes rewards after verifiers have judged: do it in a verifier, as "
                            "one more entry",
                        )

    def _name(self, ref: Any, problem: Problem) -> str | None:
        """Return the full name of the verifier that an entry, or else the problem, asks for."""
        asked = problem.verifier if ref.use == AUTO else ref.use
        if asked not in self._names:
            try:
                self._names[asked] = load_host().entry("verifier", asked, "rewards").name
            except RlvrError:
                self._names[asked] = None
        return self._names[asked]

    def _wrong(self, member: Judged, weights: Sequence[tuple[float, float]]) -> str:
        verdicts = list(member.verdicts.values())
        for ref, (name, verdict) in zip(self._refs, member.verdicts.items(), strict=True):
            if name == OVERLONG and (what := _other_penalty(ref.with_, member, verdict)):
                return what
        if what := _not_its_environments(member):
            return what
        first = outcome(verdicts[0])
        if member.passed != first:
            return f"passed is {member.passed}, and the first verdict says {first}"
        known = [one.score for one in verdicts]
        paid = [low != 0 or high != 0 for low, high in weights]
        unknown = [score is None for score, counts in zip(known, paid, strict=True) if counts]
        if any(unknown) and all(low == high for low, high in weights):
            given = member.reward
            return "" if given is None else f"reward is {given:g}, and a verdict has no score"
        if member.reward is None or any(unknown):
            missing = not any(unknown) and member.reward is None
            return "it has no reward, and every verdict has a score" if missing else ""
        low, high, size = 0.0, 0.0, 0.0
        for score, (least, most) in zip(known, weights, strict=True):
            if score is not None:
                ends = sorted((least * float(score), most * float(score)))
                low, high, size = low + ends[0], high + ends[1], size + max(map(abs, ends))
        if not math.isfinite(size):
            return ""  # refused where advantages are made
        apart = max(low - member.reward, member.reward - high, 0.0)
        self._error = apart if math.isnan(self._error) else max(self._error, apart)
        if apart <= ROUNDING * size + 1e-12:
            return ""
        sum_of = " + ".join(
            f"{most:g} x {score:g}"
            for score, (_, most) in zip(known, weights, strict=True)
            if score is not None and most
        )
        return f"the reward is {member.reward:g}, and weights and scores make {high:g} ({sum_of})"

    def end(self, view: StepView) -> Mapping[str, float]:
        """Return the largest difference of the step."""
        return {"rewards/error": self._error}


def _by_another(member: Judged, wanted: Sequence[str | None]) -> str:
    """Say which verdict is of another verifier than was asked for; empty if none is."""
    for name, due in zip(member.verdicts, wanted, strict=True):
        # one that is used several times has a number behind its name
        if due is not None and name != due and not name.startswith(f"{due}#"):
            return f"its verdict is of the verifier {name}, and {due} is asked for"
    return ""


def _not_its_environments(member: Judged) -> str:
    """Say how a verdict differs from what the environment said at the end of its conversation."""
    script = member.completion.transcript
    told = member.verdicts.get(ENVIRONMENT)
    if script is None or script.failed or told is None:
        return ""
    due = None if script.verdict is None else script.verdict.score
    if told.score == due:
        return ""
    return f"the verdict has the score {told.score}, and its conversation's environment gave {due}"


def _other_penalty(options: Mapping[str, Any], member: Judged, verdict: Verdict) -> str:
    """Say how a penalty on length differs from DAPO's (arXiv:2503.14476, eq. 13)."""
    length, text = len(member.completion.token_ids), member.completion.text
    if verdict.score is None or (text and not length) or member.completion.transcript is not None:
        return ""
    most, buffer = int(options["max_tokens"]), int(options["buffer"])
    due = -min(max((length - (most - buffer)) / buffer, 0.0), 1.0)
    if member.completion.finish_reason == "length":
        due = -1.0
    if abs(verdict.score - due) <= ROUNDING:
        return ""
    return f"{OVERLONG} gives {length} tokens {verdict.score:g}, and its formula {due:g}"


def outcome(verdict: Verdict) -> bool | None:
    """Return whether a verdict is a pass; None if it has no score."""
    if verdict.score is None:
        return None
    return verdict.score >= FULL_MARKS if verdict.passed is None else verdict.passed


def weight_of(ref: Any, step: int) -> float:
    """Return the weight of an entry of ``rewards`` at a step."""
    first = float(ref.weight)
    if ref.schedule is None:
        return first
    way = min(step / int(ref.schedule.steps), 1.0)
    return first + way * (float(ref.schedule.to) - first)


def _range(ref: Any, step: int) -> tuple[float, float]:
    """Return the least and the largest weight of an entry of ``rewards`` up to a step."""
    first, now = weight_of(ref, 0), weight_of(ref, step)
    return min(first, now), max(first, now)
