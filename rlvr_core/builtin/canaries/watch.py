"""Guard ``canaries``: requests verdicts in each step that are known, or were given before.

A few completions of the step are judged again, in another order and beside canaries, twice, through
the run's own pool. Verifiers are pure functions, so each verdict must be the one that the
step's reward was computed from, whichever worker judges it and beside whatever other completions.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rlvr_core.api import (
    Completion,
    GivesGold,
    Metric,
    NeedsCalibration,
    RunError,
    Verifier,
    VerifierTraits,
    traits_of,
)
from rlvr_core.api.services import outcome
from rlvr_core.builtin.canaries.agreement import single_turn
from rlvr_core.builtin.canaries.budget import Budget
from rlvr_core.builtin.canaries.forms import FORMS, REFERENCE, FormSearch, reference_of
from rlvr_core.builtin.canaries.making import some, wrong_responses
from rlvr_core.builtin.canaries.repeats import Repeats

if TYPE_CHECKING:
    from rlvr_core.api import Group, GroupsScored, Judged, Problem, StepFinished, Verdict
    from rlvr_core.api.services import Judge, RunConfig

MEMBERS = 3
"""Number of completions of a group to judge again."""
WRONG = 2
"""Number of canaries of a problem that must fail; different ones each time."""
EACH = 2 * (MEMBERS + WRONG + 1) + 1
"""Number of verdicts for one problem."""
CERTAIN = 2
"""Contradictions that stop a run; after the first, a note, its group is judged once more."""
LAX = 0.5
"""Share of problems that pass one kind of wrong answer above which a verifier counts as lax."""
FEWEST = 4
"""Minimum problems with a kind of canary, or with a failing reference, for a warning."""
WAITING = 4
"""Maximum number of problems with pending verdicts."""

Verdicts = Mapping[str, "Verdict"]
Judgement = Future[list[dict[str, "Verdict"]]]


@dataclass(slots=True)
class Probe:
    """One problem whose verdicts are pending.

    Attributes:
        group: The group whose completions are judged again.
        members: These completions.
        canaries: Texts of canaries by kind; ``gold`` must pass.
        orders: The two orders in which all of them were submitted: members by number, then
            canaries.
        answers: The pool's verdicts, in these orders.
    """

    group: Group
    members: Sequence[Judged]
    canaries: Mapping[str, str]
    orders: list[list[int]] = field(default_factory=list)
    answers: list[Judgement] = field(default_factory=list)

    @property
    def done(self) -> bool:
        """Whether all verdicts have arrived."""
        return all(one.done() for one in self.answers)

    def found(self) -> list[list[Verdicts]]:
        """Return all verdicts on each completion: members first, then canaries."""
        rows: list[list[Verdicts]] = [[] for _ in range(len(self.members) + len(self.canaries))]
        for order, answer in zip(self.orders, self.answers, strict=True):
            for place, verdicts in zip(order, answer.result(), strict=True):
                rows[place].append(verdicts)
        return rows


class Canaries:
    """Judges known answers and completions of each step through the run's pool.

    Args:
        config: The run's configuration.
        judge: Judges the run's completions.
        rank: Rank of this process; each process judges different completions again.
        say: Prints a message for the user.
    """

    reports = (
        Metric(
            "canaries/wrong",
            "Verdicts so far that contradict an earlier one on the same completion, or what is "
            "known of a canary.",
            "verdicts",
        ),
    )

    def __init__(
        self, config: RunConfig, judge: Judge, rank: int, say: Callable[[str], None]
    ) -> None:
        self._judge, self._say, self._rank = judge, say, rank
        self._seed, self._last = config.run.seed, config.train.steps - 1
        self._preflight, self._limit = config.guards.preflight, config.verify.timeout
        self._budget = Budget(judge, config.verify.workers)
        self._repeats = Repeats()
        self._waiting: list[Probe] = []
        self._again: list[Group] = []
        self._remote: set[str] = set()
        self._pure: dict[str, bool] = {}
        self._wrong: list[str] = []
        self._passed: set[str] = set()
        """Problems whose gold answer has passed."""
        self._golds: Counter[bool] = Counter()
        self._kinds: dict[str, Counter[bool]] = {}
        self._noted: set[str] = set()
        self._forms: dict[str, FormSearch] = {}
        """Of each verifier without gold answers, the form in which references pass."""

    def on_groups(self, event: GroupsScored) -> None:
        """Compare equal completions of the step, and submit some to be judged again."""
        self._remote |= {
            name
            for group in event.groups
            for member in group.members[:1]
            for name, verdict in member.verdicts.items()
            if verdict.usage is not None
        }
        for group in event.groups:
            if single_turn(group):
                for what in self._repeats.differing(group, self._repeatable(group.problem)):
                    self._contradiction(event.step, group, what)
        self._submit(event)

    def on_step(self, event: StepFinished) -> None:
        """Check the verdicts that have arrived."""
        self._budget.step(sum(self._seconds(event.timing)))
        patience = self._limit if event.step >= self._last else 0.01
        wait([future for one in self._waiting for future in one.answers], patience)
        done = [one for one in self._waiting if one.done]
        self._waiting = [one for one in self._waiting if not one.done]
        for one in done:
            self._look(event.step, one)
        self._tell_of_kinds()

    def report(self) -> Mapping[str, float]:
        """Return the number of contradictions so far."""
        return {"canaries/wrong": float(len(self._wrong))}

    # -- submitting ----------------------------------------------------------------------------

    @staticmethod
    def _seconds(timing: Mapping[str, float]) -> list[float]:
        return [
            value
            for name, value in timing.items()
            if "." not in name and name != "tokens_per_second"
        ]

    def _repeatable(self, problem: Problem) -> list[str]:
        """Return the verifiers of a problem that are free of charge and deterministic."""
        names = self._judge.plan.names(problem)
        return [one for one in names if self._is_repeatable(one) and one not in self._remote]

    def _is_repeatable(self, name: str) -> bool:
        if name not in self._pure:
            verifier: Any = self._judge.plan.verifiers[name]
            self._pure[name] = (
                isinstance(verifier, Verifier)
                and not isinstance(verifier, NeedsCalibration)
                and traits_of(verifier, VerifierTraits).repeatable
            )
        return self._pure[name]

    def _submit(self, event: GroupsScored) -> None:
        room = min(self._budget.verdicts() // EACH, WAITING - len(self._waiting))
        able = [one for one in event.groups if self._able(one)]
        rng = random.Random(f"{self._seed}:{event.step}:{self._rank}")
        rng.shuffle(able)
        chosen = [*self._again, *able][: max(room, len(self._again))]
        self._again = []
        begun = time.perf_counter()
        for group in chosen:
            self._waiting.append(self._ask(group, rng))
        self._budget.spend(EACH * len(chosen), time.perf_counter() - begun)

    def _able(self, group: Group) -> bool:
        return single_turn(group) and bool(self._repeatable(group.problem))

    def _ask(self, group: Group, rng: random.Random) -> Probe:
        problem, n = group.problem, min(MEMBERS, len(group.members))
        probe = Probe(group, rng.sample(group.members, n), self._canaries(group, rng.random()))
        completions = [
            *(one.completion for one in probe.members),
            *(Completion.from_text(text) for text in probe.canaries.values()),
        ]
        first = list(range(len(completions)))
        rng.shuffle(first)
        # reversed and shifted by one place, so that each has other neighbours
        for order in (first, [*first[:1], *reversed(first)]):
            probe.orders.append(order)
            probe.answers.append(self._verdicts(problem, [completions[at] for at in order]))
        return probe

    def _verdicts(self, problem: Problem, completions: Sequence[Completion]) -> Judgement:
        names = self._repeatable(problem)
        if len(names) == len(self._judge.plan.names(problem)):
            # the same call as for the step's own completions
            return self._judge.submit(problem, completions)
        return self._judge.pool.submit_group(problem, completions, names)

    def _canaries(self, group: Group, turn: float) -> dict[str, str]:
        """Return the gold answer and some wrong ones, by kind; none if no gold answer is known."""
        problem = group.problem
        name = self._judge.plan.main_name(problem)
        verifier: Any = self._judge.plan.verifiers[name]
        gold = verifier.gold(problem) if isinstance(verifier, GivesGold) else None
        if isinstance(gold, str):
            kind, answer = "gold", self._extracted(group, gold) or gold
        elif name not in self._repeatable(problem):
            return {}  # what single canaries get would not be looked at
        else:
            kind, answer = REFERENCE, reference_of(problem)
            written = self._forms.setdefault(name, FormSearch())
            if tried := written.next(problem, WRONG + 1):
                return tried
            gold = written.response(group, answer)
            if not gold:
                return {}
        spec = self._judge.plan.specs[name]
        wrong = wrong_responses(problem, gold, answer, spec.config)
        return {kind: gold, **some(wrong, WRONG, int(turn * len(wrong)))}

    @staticmethod
    def _extracted(group: Group, gold: str) -> str:
        """Return the answer in a gold response, by what was read of a completion that passed."""
        return next(
            (
                verdict.extracted
                for member in group.members
                if member.passed
                for verdict in list(member.verdicts.values())[:1]
                if verdict.extracted and verdict.extracted in gold
            ),
            "",
        )

    # -- judging -------------------------------------------------------------------------------

    def _look(self, step: int, probe: Probe) -> None:
        found, problem = probe.found(), probe.group.problem
        names = self._repeatable(problem)
        for member, verdicts in zip(probe.members, found, strict=False):
            if what := _differing([member.verdicts, *verdicts], names):
                same = not _differing(verdicts, names)
                cause = (
                    "the step used {0}, and judged again it gets {1} each time: verdicts are lost, "
                    "mixed up or changed on their way to the reward"
                    if same
                    else "{0} and {1}, by turns: the verifier keeps state or draws random numbers, "
                    "or its workers differ"
                )
                text = f"on a completion of problem {problem.id} ({_shown(member)}), "
                self._contradiction(step, probe.group, text + cause.format(*what))
        rows = zip(probe.canaries.items(), found[len(probe.members) :], strict=True)
        for (kind, text), verdicts in rows:
            if what := _differing(verdicts, names):
                self._contradiction(
                    step,
                    probe.group,
                    f"on a canary of problem {problem.id} ({kind}: {text[-40:]!r}), {what[0]} and "
                    f"{what[1]}, by turns: the verifier keeps state or draws random numbers, or "
                    "its workers differ",
                )
            else:
                self._known(step, probe, kind, verdicts)

    def _known(self, step: int, probe: Probe, kind: str, found: Sequence[Verdicts]) -> None:
        """Compare the outcome of a canary with the expected one."""
        problem = probe.group.problem
        name = self._judge.plan.main_name(problem)
        if name not in self._repeatable(problem):
            return
        passed = {outcome(verdicts[name]) for verdicts in found} - {None}
        if len(passed) != 1:
            return
        (good,) = passed
        if kind in FORMS or kind == REFERENCE:
            self._forms[name].count(kind, passed=bool(good))
            return
        if kind != "gold":
            self._kinds.setdefault(kind, Counter())[bool(good)] += 1
            tried = self._preflight and "gold" in probe.canaries  # by the guard gold, that is
            if good and kind == "an empty answer" and tried:
                what = f"an empty answer to problem {problem.id} passes"
                self._contradiction(step, probe.group, f"{what}, and none did before the run")
            return
        self._golds[bool(good)] += 1
        if good:
            self._passed.add(problem.id)
        elif problem.id in self._passed:
            what = f"the gold answer to problem {problem.id} passed earlier and fails now"
            self._contradiction(step, probe.group, f"{what}: the verifier keeps state")
        elif self._golds[False] >= FEWEST and self._golds[False] > self._golds[True]:
            what = f"{self._golds[False]} of {self._golds.total()} gold answers fail"
            if self._preflight:
                self._contradiction(step, probe.group, f"{what}, and none did before the run")
            self._note("gold", f"{what}, such as that of problem {problem.id}")
        else:
            self._note(
                "one gold",
                f"the gold answer of problem {problem.id} fails by its own verifier {name}: no "
                "completion of it can pass unless the verifier reads it otherwise",
            )

    def _tell_of_kinds(self) -> None:
        for name, search in self._forms.items():
            if search.failed:
                self._note(
                    f"forms of {name}",
                    f"wrong answers were not tried on {name}: the stated reference passes in none "
                    f"of {len(FORMS)} forms, and in another form they would fail for their form",
                )
        for kind, count in self._kinds.items():
            if count.total() >= FEWEST and count[True] > LAX * count.total():
                self._note(
                    "lax",
                    f"the verifier passes {count[True]} of {count.total()} wrong answers of one "
                    f"kind: {kind}; the policy will learn to give such answers",
                )

    def _note(self, key: str, what: str) -> None:
        if key not in self._noted:
            self._noted.add(key)
            self._say(f"warning: guard canaries: {what}; see rlvr docs guards#canaries")

    def _contradiction(self, step: int, group: Group, what: str) -> None:
        self._wrong.append(what)
        if all(one is not group for one in self._again) and len(self._again) < WAITING:
            self._again.append(group)
        if len(self._wrong) < CERTAIN:
            self._note("contradiction", f"verdicts contradict each other: {what}")
            return
        raise RunError(
            f"guard canaries: verdicts contradict each other: {what}",
            where=f"step {step + 1}",
            remedy=(
                f"before that: {self._wrong[0]}" if self._wrong[0] != what else "",
                "a verifier must be a pure function of problem and completion, and its verdict "
                "must reach the completion that it is on: look at state, caches and random numbers "
                "in the verifier (rlvr verify), then at what collects verdicts",
                "a verifier that cannot repeat itself says so: traits = "
                "VerifierTraits(repeatable=False)",
                "see rlvr docs guards#canaries; guards.canaries: false turns the guard off",
            ),
        )


def _differing(found: Sequence[Verdicts], names: Sequence[str]) -> tuple[str, str] | None:
    """Return two different verdicts of one verifier, in words; None if all are equal."""
    for name in names:
        scored = [one[name] for one in found if name in one and one[name].status == "ok"]
        for one in scored[1:]:
            if (one.score, one.passed) != (scored[0].score, scored[0].passed):
                return f"{name} says {_words(scored[0])}", _words(one)
    return None


def _words(verdict: Verdict) -> str:
    return f"{verdict.score:g}" + ("" if verdict.passed is None else f" ({verdict.passed})")


def _shown(member: Judged) -> str:
    return repr(member.completion.text[-40:])
