"""Guard ``guards/canaries``: asks again for verdicts that were given before.

A few completions are judged again, in another order, through the run's own pool.
Verifiers are pure functions, so each verdict must be the one that the step's reward was computed
from, whichever worker judges it and beside whatever other completions.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlvr_core.api import (
    BaseGuard,
    Metric,
    NeedsCalibration,
    NoConfig,
    Verifier,
    VerifierTraits,
    traits_of,
)

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


@dataclass(frozen=True, slots=True)
class Probe:
    """One problem whose verdicts are pending.

    Attributes:
        group: The group whose completions are judged again.
        members: These completions.
        answer: The pool's verdicts on them.
    """

    group: Group
    members: Sequence[Judged]
    answer: Future[list[dict[str, Verdict]]]


class Canaries(BaseGuard):
    """Judges completions of each step again through the run's pool."""

    name = "guards/canaries"
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

    def on_groups(self, event: GroupsScored) -> None:
        """Submit some completions of the step to be judged again."""
        for group in event.groups:
            for member in group.members[:1]:
                for name, verdict in member.verdicts.items():
                    if verdict.usage is not None:  # it is paid for
                        self._repeatable[name] = False
        self._steps += 1
        self._asked += sum(len(group.members) for group in event.groups)
        due = self._steps <= OFTEN or self._asked >= SHARE * MEMBERS
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
        config = self.context.config
        patience = config.verify.timeout if event.step >= config.train.steps - 1 else 0.0
        wait([probe.answer for probe in self._waiting], patience)
        done = [probe for probe in self._waiting if probe.answer.done()]
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
        problem = group.problem
        members = rng.sample(group.members, min(MEMBERS, len(group.members)))
        completions = [member.completion for member in members]
        names = self._names(problem)
        if len(names) == len(self._judge.plan.names(problem)):
            # the same call as for the step's own completions
            answer = self._judge.submit(problem, completions)
        else:
            answer = self._judge.pool.submit_group(problem, completions, names)
        return Probe(group, members, answer)

    # -- judging ---------------------------------------------------------------------------------

    def _look(self, step: int, probe: Probe) -> None:
        problem = probe.group.problem
        for member, verdicts in zip(probe.members, probe.answer.result(), strict=True):
            for name in self._names(problem):
                first, again = member.verdicts.get(name), verdicts.get(name)
                if first is None or again is None or {first.status, again.status} != {"ok"}:
                    continue
                if (first.score, first.passed) != (again.score, again.passed):
                    self._contradiction(
                        step,
                        probe.group,
                        f"a completion of problem {problem.id} ({member.completion.text[-40:]!r}) "
                        f"got {first.score:g} and {again.score:g} by {name}: the verifier keeps "
                        "state or draws random numbers, its workers differ, or verdicts are lost "
                        "or mixed up on their way to the reward",
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
