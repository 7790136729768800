"""Guard ``core/canaries``: asks again for verdicts that were given before.

A few completions are judged again, twice and in another order, through the run's own pool.
Verifiers are pure functions, so each verdict must be the one that the step's reward was computed
from, whichever worker judges it and beside whatever other completions.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rlvr_core.api import (
    Metric,
    NeedsCalibration,
    NoConfig,
    Verifier,
    VerifierTraits,
    traits_of,
)
from rlvr_core.guards.base import BaseGuard

if TYPE_CHECKING:
    from rlvr_core.api import (
        Group,
        GroupsScored,
        GuardContext,
        Judged,
        Problem,
        StepFinished,
        Verdict,
    )

MEMBERS = 4
"""Completions of a group to judge again."""
OFTEN, SHARE = 4, 100
"""First steps of a process in each of which a problem is judged again; later whenever the run has
asked for so many times the verdicts that this costs."""
CERTAIN = 2
"""Contradictions that stop a run; after the first, its group is judged once more."""

Verdicts = Mapping[str, "Verdict"]


@dataclass(slots=True)
class Probe:
    """One problem whose verdicts are pending.

    Attributes:
        group: The group whose completions are judged again.
        members: These completions.
        orders: The two orders in which they were submitted.
        answers: The pool's verdicts, in these orders.
    """

    group: Group
    members: Sequence[Judged]
    orders: list[list[int]] = field(default_factory=list)
    answers: list[Future[list[dict[str, Verdict]]]] = field(default_factory=list)

    def verdicts(self) -> list[list[Verdicts]]:
        """Return all verdicts on each completion, in the order before shuffling."""
        rows: list[list[Verdicts]] = [[] for _ in self.members]
        for order, answer in zip(self.orders, self.answers, strict=True):
            for place, verdicts in zip(order, answer.result(), strict=True):
                rows[place].append(verdicts)
        return rows


class Canaries(BaseGuard):
    """Judges completions of each step again through the run's pool."""

    name = "canaries"
    reports = (
        Metric(
            "canaries/wrong",
            "Verdicts so far that contradict an earlier one on the same completion.",
            "verdicts",
        ),
    )

    def __init__(self, config: NoConfig) -> None:
        super().__init__(config)
        self._waiting: list[Probe] = []
        self._again: list[Group] = []
        self._repeatable: dict[str, bool] = {}
        self._wrong = 0
        self._steps = self._asked = 0

    def bind(self, context: GuardContext) -> None:
        """See ``BindsToRun``."""
        super().bind(context)
        self._judge = context.judge
        self._last = context.config.train.steps - 1

    def on_groups(self, event: GroupsScored) -> None:
        """Submit some completions of the step to be judged again."""
        for group in event.groups:
            for member in group.members[:1]:
                for name, verdict in member.verdicts.items():
                    if verdict.usage is not None:  # it is paid for
                        self._repeatable[name] = False
        self._steps += 1
        self._asked += sum(len(group.members) for group in event.groups)
        due = self._steps <= OFTEN or self._asked >= SHARE * 2 * MEMBERS
        config, rank = self.context.config, self.context.ranks.index
        rng = random.Random(f"{config.run.seed}:{event.step}:{rank}")
        able = list(filter(self._is_able, event.groups)) if due else []
        if able:
            self._asked = 0
        again, self._again = self._again, []
        chosen = (*again, *rng.sample(able, bool(able)))
        self._waiting += [self._ask(group, rng) for group in chosen]
        self.numbers = {"canaries/wrong": float(self._wrong)}

    def on_step(self, event: StepFinished) -> None:
        """Check the verdicts that have arrived."""
        patience = self.context.config.verify.timeout if event.step >= self._last else 0.0
        wait([future for probe in self._waiting for future in probe.answers], patience)
        done = [probe for probe in self._waiting if all(f.done() for f in probe.answers)]
        self._waiting = [probe for probe in self._waiting if probe not in done]
        for probe in done:
            self._look(event.step, probe)

    # -- submitting ------------------------------------------------------------------------------

    def _is_able(self, group: Group) -> bool:
        single = all(
            member.completion.transcript is None and member.completion.usage is None
            for member in group.members
        )
        return bool(single and group.members and self._names(group.problem))

    def _names(self, problem: Problem) -> list[str]:
        """Return the verifiers of a problem that are free of charge and deterministic."""
        plan, names = self._judge.plan, []
        for name in plan.names(problem):
            if name not in self._repeatable:
                verifier: Any = plan.verifiers[name]
                self._repeatable[name] = (
                    isinstance(verifier, Verifier)
                    and not isinstance(verifier, NeedsCalibration)
                    and traits_of(verifier, VerifierTraits).repeatable
                )
            if self._repeatable[name]:
                names.append(name)
        return names

    def _ask(self, group: Group, rng: random.Random) -> Probe:
        problem, n = group.problem, min(MEMBERS, len(group.members))
        probe = Probe(group, rng.sample(group.members, n))
        completions = [member.completion for member in probe.members]
        names, first = self._names(problem), list(range(len(completions)))
        rng.shuffle(first)
        # reversed and shifted by one place, so that each has other neighbours
        for order in (first, [*first[:1], *reversed(first)]):
            chosen = [completions[at] for at in order]
            probe.orders.append(order)
            if len(names) == len(self._judge.plan.names(problem)):
                # the same call as for the step's own completions
                probe.answers.append(self._judge.submit(problem, chosen))
            else:
                probe.answers.append(self._judge.pool.submit_group(problem, chosen, names))
        return probe

    # -- judging ---------------------------------------------------------------------------------

    def _look(self, step: int, probe: Probe) -> None:
        problem = probe.group.problem
        names = self._names(problem)
        for member, verdicts in zip(probe.members, probe.verdicts(), strict=True):
            what = _differing([member.verdicts, *verdicts], names)
            if not what:
                continue
            cause = (
                "judged otherwise each time: the verifier keeps state or draws random numbers, or "
                "its workers differ"
                if _differing(verdicts, names)
                else "the first is the step's, and the other came twice: verdicts are lost, mixed "
                "up or changed on their way to the reward"
            )
            end = member.completion.text[-40:]
            self._contradiction(
                step,
                probe.group,
                f"a completion of problem {problem.id} ({end!r}) got {what}; {cause}",
            )

    def _contradiction(self, step: int, group: Group, what: str) -> None:
        self._wrong += 1
        self.numbers = {"canaries/wrong": float(self._wrong)}
        if self._wrong < CERTAIN:
            self._again.append(group)
            self.warn_once(what)
            return
        raise self.fault(
            step,
            what,
            f"so far {self._wrong} verdicts contradict others; a verifier has to be a pure "
            "function: VerifierTraits(repeatable=False) says that one is not",
        )


def _differing(judged: Sequence[Verdicts], names: Sequence[str]) -> str:
    """Return two different verdicts of one verifier, in words; empty if all are equal."""
    for name in names:
        given = [verdicts[name] for verdicts in judged if name in verdicts]
        scored = [verdict for verdict in given if verdict.status == "ok"]
        for verdict in scored[1:]:
            if (verdict.score, verdict.passed) != (scored[0].score, scored[0].passed):
                return f"{scored[0].score:g} and {verdict.score:g} by {name}"
    return ""
