"""Guard ``references``: groups that agree against the reference, and inconsistent verdicts.

Only a model or a person can know that a reference is wrong. A group that agrees on an answer is
such a model: where the policy errs, it is less sure, and the right answer is among the others that
it gives. A wrong reference is independent of both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from statistics import fmean, pvariance
from typing import TYPE_CHECKING, Any

from rlvr_core.api import GivesGold, Metric
from rlvr_core.builtin.canaries.agreement import (
    agreement,
    answers_of,
    final_answer,
    single_turn,
    stated_reference,
    taken,
)
from rlvr_core.builtin.canaries.consistency import Consistency
from rlvr_core.builtin.canaries.cut_off import CutOff
from rlvr_core.builtin.canaries.making import allowed
from rlvr_core.builtin.canaries.numbers import plain

if TYPE_CHECKING:
    from rlvr_core.api import Group, GroupsScored, Json, Problem, StepFinished
    from rlvr_core.api.services import RewardPlan

FEWEST = 8
"""Minimum problems with an agreement for a warning."""
AGAINST = 3
"""Minimum agreements against the reference for a warning."""
FLOOR = 0.02
"""Normal share of agreements against the reference: published data have as many errors."""
SURE = 1.64
"""Standard errors by which the share must exceed the floor: 95 %, one-sided."""
LESS_SURE = 1.0
"""Standard errors by which the votes of agreements against the reference may be fewer than those
of the others; errors of the policy are further below."""
SECOND = 0.1
"""Share of the other votes that the reference gets where the policy errs."""
FEW_VOTES = 3
"""Votes for the reference below which that share is chance."""
DIVERSE = 0.5
"""Share of agreements against the reference that are different answers: a policy that has
collapsed gives the same one."""
EARLY = 0.25
"""Least share of agreements against the reference in the first half of all: the data are the same
in both halves, and a policy that gets worse errs in the second."""
MANY = 0.3
"""Share of agreements against the reference from which their order does not matter: data may be
read in the order of the file."""
KEPT = 4000
"""Number of most recent problems to count."""
SHOWN = 5


@dataclass(slots=True)
class Agreed:
    """A problem whose group agreed, at its strongest agreement.

    Attributes:
        answer: The answer.
        share: Share of the votes for it.
        right: Whether it passes.
        reference: The reference.
        others: Votes for other answers.
        second: Votes for the reference among them.
    """

    answer: str
    share: float
    right: bool
    reference: str = ""
    others: int = 0
    second: int = 0


class References:
    """Lists problems whose reference a confident policy contradicts.

    Args:
        plan: The run's verifiers.
        say: Prints a message for the user.
    """

    reports = (
        Metric(
            "references/agreed", "Problems so far whose completions agree on an answer.", "problems"
        ),
        Metric("references/against", "Those of them whose agreed answer fails.", "problems"),
        *Consistency.reports,
    )

    def __init__(self, plan: RewardPlan, say: Callable[[str], None]) -> None:
        self._plan, self._say = plan, say
        self._agreed: dict[str, Agreed] = {}
        self._reported = 0
        self._extracts = False
        self._consistency, self._cut_off = Consistency(say), CutOff(say)

    def on_groups(self, event: GroupsScored) -> None:
        """Count agreements, and warn about doubtful references."""
        members = (member for group in event.groups for member in group.members)
        self._extracts = self._extracts or any(map(taken, members))
        self._consistency.learn(event.groups)
        for group in event.groups:
            if single_turn(group):
                problem = group.problem
                self._cut_off.count(group)
                self._count(group, answers_of(group, tells=self._extracts))
                options = self._plan.specs[self._plan.main_name(problem)].config
                self._consistency.count(group, stated_reference(problem), allowed(problem, options))
        against = [(id_, one) for id_, one in self._agreed.items() if not one.right]
        if len(against) >= max(AGAINST, 2 * self._reported) and self._doubtful():
            self._reported = len(against)
            self._say(f"warning: guard references: {self._words(against)}")
        self._consistency.tell()
        self._cut_off.tell()

    def on_step(self, event: StepFinished) -> None:
        """Do nothing: warnings come before the step trains."""

    def report(self) -> Mapping[str, float]:
        """Return the counts so far."""
        against = sum(not one.right for one in self._agreed.values())
        counts = {"references/agreed": len(self._agreed), "references/against": against}
        return {**{name: float(n) for name, n in counts.items()}, **self._consistency.report()}

    def state_dict(self) -> dict[str, Json]:
        """Return the state for a checkpoint."""
        return {
            "agreed": {id_: asdict(one) for id_, one in self._agreed.items()},
            "said": self._reported,
            "tells": self._extracts,
            "consistency": self._consistency.state_dict(),
            "cut_off": self._cut_off.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        self._agreed = {id_: Agreed(**one) for id_, one in state["agreed"].items()}
        self._reported, self._extracts = state["said"], state["tells"]
        self._consistency.load_state_dict(state["consistency"])
        if "cut_off" in state:  # a checkpoint of an older version has none
            self._cut_off.load_state_dict(state["cut_off"])

    # -- counting ------------------------------------------------------------------------------

    def _count(self, group: Group, answers: list[str]) -> None:
        choice = agreement(answers)
        problem = group.problem
        if choice is None or _is_letter(choice.answer):
            return
        known = self._agreed.pop(problem.id, None)
        if known is not None and known.share > choice.share:
            self._agreed[problem.id] = known
            return
        passed = [
            bool(member.passed)
            for member, answer in zip(group.members, answers, strict=True)
            if answer == choice.answer
        ]
        found = Agreed(choice.answer, choice.share, 2 * sum(passed) > len(passed))
        if not found.right:
            found.reference = self._reference(problem)
            if not found.reference or found.reference == found.answer:
                return  # no answer that others could be compared with
            found.others = choice.of - choice.votes
            found.second = answers.count(found.reference)
        self._agreed[problem.id] = found
        while len(self._agreed) > KEPT:
            del self._agreed[next(iter(self._agreed))]

    def _reference(self, problem: Problem) -> str:
        """Return the reference in normal form; empty if unknown or long."""
        if stated := stated_reference(problem):
            return stated
        verifier: Any = self._plan.verifiers[self._plan.main_name(problem)]
        gold = verifier.gold(problem) if isinstance(verifier, GivesGold) else None
        return final_answer(gold or "")

    # -- judging -------------------------------------------------------------------------------

    def _doubtful(self) -> bool:
        """Whether agreements against the reference exceed what the policy's errors explain."""
        every = list(self._agreed.values())
        wrong = [one for one in every if not one.right]
        right = [one.share for one in every if one.right]
        n, k = len(every), len(wrong)
        if n < FEWEST or k < AGAINST or _least(k, n) <= FLOOR:
            return False
        if len({one.answer for one in wrong}) < DIVERSE * k:
            return False
        others, second = sum(one.others for one in wrong), sum(one.second for one in wrong)
        if second >= max(FEW_VOTES, SECOND * others):
            return False
        early = sum(not one.right for one in every[: n // 2])
        if k < MANY * n and early < EARLY * k:
            return False
        if len(right) < AGAINST:
            return True
        shares = [one.share for one in wrong]
        spread = math.sqrt(pvariance([*shares, *right]) * (1 / k + 1 / len(right)))
        return fmean(shares) >= fmean(right) - LESS_SURE * spread

    def _words(self, against: list[tuple[str, Agreed]]) -> str:
        against.sort(key=lambda one: -one[1].share)
        listed = "; ".join(
            f"{id_}: {one.answer}, reference {one.reference}" for id_, one in against[:SHOWN]
        )
        more = f"; and {len(against) - SHOWN} more" if len(against) > SHOWN else ""
        return (
            f"{len(against)} of {len(self._agreed)} problems whose completions agree on an answer "
            f"have another reference answer, and the policy is as sure of these as of right ones: "
            f"{listed}{more}{_pattern([one for _, one in against])}. Compare some by hand: wrong "
            "references (gold) in the data, a field or row that was mixed up, prompts of other "
            "problems, or a verifier that reads another reference; if the references are right, "
            "the policy always makes this error. See rlvr docs guards#references"
        )


def _is_letter(answer: str) -> bool:
    """Whether an answer is one of a few options, so that agreement on a wrong one is likely."""
    return plain(answer) is None and (len(answer) < 2 or answer in ("yes", "no", "true", "false"))


def _least(k: int, n: int) -> float:
    """Lower end of Wilson's interval of a share of k in n."""
    share, z2 = k / n, SURE * SURE
    middle = share + z2 / (2 * n)
    return (middle - SURE * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))) / (1 + z2 / n)


def _pattern(against: list[Agreed]) -> str:
    """Return what the differences have in common, in words; empty if nothing."""
    pairs = [(plain(one.answer), plain(one.reference)) for one in against]
    apart = {other - one for one, other in pairs if one is not None and other is not None}
    if len(apart) == 1 and len(pairs) >= AGAINST:
        (by,) = apart
        return f"; each reference is {abs(by)} {'more' if by > 0 else 'less'}"
    return ""
