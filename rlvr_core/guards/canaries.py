"""Guard ``core/canaries``: asks in each step for verdicts that are known, or were given before.

A few completions are judged again, in another order and beside canaries, twice, through the run's
own pool. Verifiers are pure functions, so each verdict must be the one that the step's reward was
computed from, whichever worker judges it and beside whatever other completions. A gold answer must
pass; wrong ones are tried only where there is a gold answer to make them of.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rlvr_core.api import (
    Completion,
    GivesGold,
    Metric,
    NeedsCalibration,
    NoConfig,
    Verifier,
    VerifierTraits,
    traits_of,
)
from rlvr_core.guards.base import BaseGuard
from rlvr_core.guards.budget import Budget
from rlvr_core.guards.wrong_answers import some, wrong_responses
from rlvr_core.verify.reward import outcome

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

MEMBERS, WRONG = 3, 2
"""Completions of a group to judge again, and wrong answers, different ones each time."""
EACH = 2 * (MEMBERS + WRONG + 1) + 1
"""Verdicts for one problem."""
CERTAIN = 2
"""Contradictions that stop a run; after the first, its group is judged once more."""
LAX, FEWEST = 0.5, 4
"""Share of problems that pass one kind of wrong answer above which a verifier counts as lax, and
the problems that it takes to say so."""
WAITING = 4
"""Most problems with pending verdicts."""

Verdicts = Mapping[str, "Verdict"]


@dataclass(slots=True)
class Probe:
    """One problem whose verdicts are pending.

    Attributes:
        group: The group whose completions are judged again.
        members: These completions.
        canaries: Texts of canaries by kind; ``gold`` must pass.
        orders: The two orders in which all of them were submitted: members, then canaries.
        answers: The pool's verdicts, in these orders.
    """

    group: Group
    members: Sequence[Judged]
    canaries: Mapping[str, str]
    orders: list[list[int]] = field(default_factory=list)
    answers: list[Future[list[dict[str, Verdict]]]] = field(default_factory=list)

    def verdicts(self) -> list[list[Verdicts]]:
        """Return all verdicts on each completion: members first, then canaries."""
        rows: list[list[Verdicts]] = [[] for _ in range(len(self.members) + len(self.canaries))]
        for order, answer in zip(self.orders, self.answers, strict=True):
            for place, verdicts in zip(order, answer.result(), strict=True):
                rows[place].append(verdicts)
        return rows


class Canaries(BaseGuard):
    """Judges known answers and completions of each step through the run's pool."""

    name = "canaries"
    reports = (
        Metric(
            "canaries/wrong",
            "Verdicts so far that contradict an earlier one on the same completion, or what is "
            "known of a canary.",
            "verdicts",
        ),
    )

    def __init__(self, config: NoConfig) -> None:
        super().__init__(config)
        self._waiting: list[Probe] = []
        self._again: list[Group] = []
        self._repeatable: dict[str, bool] = {}
        self._wrong: list[str] = []
        self._passed: set[str] = set()
        self._kinds: dict[str, Counter[bool]] = {}

    def bind(self, context: GuardContext) -> None:
        """See ``BindsToRun``."""
        super().bind(context)
        self._judge = context.judge
        self._budget = Budget(context.judge, context.config.verify.workers)
        self._last = context.config.train.steps - 1

    def on_groups(self, event: GroupsScored) -> None:
        """Submit some completions of the step to be judged again."""
        for group in event.groups:
            for member in group.members[:1]:
                for name, verdict in member.verdicts.items():
                    if verdict.usage is not None:  # it is paid for
                        self._repeatable[name] = False
        room = min(self._budget.verdicts() // EACH, WAITING - len(self._waiting))
        able = [one for one in event.groups if self._is_able(one)]
        config, rank = self.context.config, self.context.ranks.index
        rng = random.Random(f"{config.run.seed}:{event.step}:{rank}")
        rng.shuffle(able)
        chosen = [*self._again, *able][: max(room, len(self._again))]
        self._again, begun = [], time.perf_counter()
        self._waiting += [self._ask(group, rng) for group in chosen]
        self._budget.spend(EACH * len(chosen), time.perf_counter() - begun)
        self.numbers = {"canaries/wrong": float(len(self._wrong))}

    def on_step(self, event: StepFinished) -> None:
        """Check the verdicts that have arrived."""
        phases = {k: v for k, v in event.timing.items() if "." not in k}
        phases.pop("tokens_per_second", None)
        self._budget.step(sum(phases.values()))
        patience = self.context.config.verify.timeout if event.step >= self._last else 0.01
        wait([future for one in self._waiting for future in one.answers], patience)
        done = [one for one in self._waiting if all(answer.done() for answer in one.answers)]
        self._waiting = [one for one in self._waiting if one not in done]
        for probe in done:
            self._look(event.step, probe)
        for kind, count in self._kinds.items():
            if count.total() >= FEWEST and count[True] > LAX * count.total():
                self.warn_once(
                    f"the verifier passes wrong answers of one kind, {kind}: the policy "
                    "will learn to give them"
                )

    # -- submitting ------------------------------------------------------------------------------

    def _is_able(self, group: Group) -> bool:
        single = all(
            one.completion.transcript is None and one.completion.usage is None
            for one in group.members
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
        probe = Probe(group, rng.sample(group.members, n), self._canaries(group, rng.random()))
        completions = [
            *(one.completion for one in probe.members),
            *(Completion.from_text(text) for text in probe.canaries.values()),
        ]
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

    def _canaries(self, group: Group, turn: float) -> dict[str, str]:
        """Return the gold answer and some wrong ones, by kind; none if no gold answer is known."""
        problem, plan = group.problem, self._judge.plan
        name = plan.main_name(problem)
        verifier: Any = plan.verifiers[name]
        gold = verifier.gold(problem) if isinstance(verifier, GivesGold) else None
        if not isinstance(gold, str) or name not in self._names(problem):
            return {}
        read = (one.verdicts[name].extracted for one in group.members if one.passed)
        answer = next((text for text in read if text and text in gold), gold)
        wrong = wrong_responses(problem, gold, answer, plan.specs[name].config)
        return {"gold": gold, **some(wrong, WRONG, int(turn * len(wrong)))}

    # -- judging ---------------------------------------------------------------------------------

    def _look(self, step: int, probe: Probe) -> None:
        rows, problem = probe.verdicts(), probe.group.problem
        names = self._names(problem)
        for member, verdicts in zip(probe.members, rows, strict=False):
            if what := _differing([member.verdicts, *verdicts], names):
                cause = (
                    "judged otherwise each time: the verifier keeps state or draws random numbers, "
                    "or its workers differ"
                    if _differing(verdicts, names)
                    else "the first is the step's, and the other came twice: verdicts are lost, "
                    "mixed up or changed on their way to the reward"
                )
                end = member.completion.text[-40:]
                self._contradiction(
                    step,
                    probe.group,
                    f"a completion of problem {problem.id} ({end!r}) got {what}; {cause}",
                )
        canaries = zip(probe.canaries.items(), rows[len(probe.members) :], strict=True)
        for (kind, text), verdicts in canaries:
            if what := _differing(verdicts, names):
                self._contradiction(
                    step,
                    probe.group,
                    f"a canary of problem {problem.id} ({kind}: {text[-40:]!r}) got {what}: the "
                    "verifier keeps state or draws random numbers, or its workers differ",
                )
            else:
                self._known(step, probe.group, kind, verdicts)

    def _known(self, step: int, group: Group, kind: str, verdicts: Sequence[Verdicts]) -> None:
        """Compare the outcome of a canary with the expected one."""
        problem = group.problem
        passed = outcome(verdicts[0][self._judge.plan.main_name(problem)])
        if passed is None:
            return
        if kind != "gold":
            self._kinds.setdefault(kind, Counter())[passed] += 1
        elif passed:
            self._passed.add(problem.id)
        elif problem.id in self._passed:
            what = f"the gold answer to problem {problem.id} passed earlier and fails now"
            self._contradiction(step, group, f"{what}: the verifier keeps state")
        else:
            self.warn_once(f"the gold answer of problem {problem.id} fails")

    def _contradiction(self, step: int, group: Group, what: str) -> None:
        self._wrong.append(what)
        self.numbers = {"canaries/wrong": float(len(self._wrong))}
        if len(self._wrong) < CERTAIN:
            self._again.append(group)
            self.warn_once(f"{what}")
            return
        raise self.fault(
            step,
            what,
            f"so far {len(self._wrong)} verdicts contradict others; a verifier has to be a pure "
            "function: VerifierTraits(repeatable=False) says that one is not",
        )


def _differing(found: Sequence[Verdicts], names: Sequence[str]) -> str:
    """Return two different verdicts of one verifier, in words; empty if all are equal."""
    for name in names:
        scored = [one[name] for one in found if name in one and one[name].status == "ok"]
        for one in scored[1:]:
            if (one.score, one.passed) != (scored[0].score, scored[0].passed):
                return f"{scored[0].score:g} and {one.score:g} by {name}"
    return ""
