"""``rlvr regrade``: judges stored completions with another verifier; reports the differences."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import combinations, groupby
from statistics import fmean

from rlvr_core.api import Group, Json, Judged, Problem, Verdict
from rlvr_core.api.services import VerifierPool, failure, judged_step, outcome, printable
from rlvr_core.builtin.evals.store import Row
from rlvr_core.builtin.evals.stored import EstimatorRef, Stored, StoredGroup

AHEAD = 256
"""Number of groups that may be queued at the verifiers."""
EXAMPLES = 5

Rewards = Sequence[float | None]


@dataclass(slots=True)
class Changes:
    """The differences that another verifier would have made.

    Attributes:
        advantage: The advantage estimator; None if there is none, or if it needs data that is not
            stored.
        outcomes: Number of completions by outcome before and after, as in ``failed -> passed``.
        scores: Change in score of each completion scored by both verifiers.
        statuses: Number of verdicts of the new verifier by status.
        groups: Number of groups with more than one completion.
        reordered: Number of those in which two completions would swap ranks.
        gained_signal: Number of groups whose rewards were all equal and would now differ.
        lost_signal: Number of groups whose rewards differed and would now be all equal.
        advantages: Advantage before and after, for each completion that has both.
        changed: Number of completions whose outcome or score changes.
        examples: Some of these completions.
    """

    advantage: EstimatorRef | None
    outcomes: Counter[str] = field(default_factory=Counter)
    scores: list[float] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    groups: int = 0
    reordered: int = 0
    gained_signal: int = 0
    lost_signal: int = 0
    advantages: list[tuple[float, float]] = field(default_factory=list)
    changed: int = 0
    examples: list[Row] = field(default_factory=list)

    def data(self) -> dict[str, Json]:
        """Return the differences as JSON."""
        flips = [one * two < 0 for one, two in self.advantages]
        shifts = [abs(two - one) for one, two in self.advantages]
        return {
            "completions": self.outcomes.total(),
            "changed": self.changed,
            "outcomes": dict(sorted(self.outcomes.items())),
            "statuses": dict(sorted(self.statuses.items())),
            "score_change": fmean(self.scores) if self.scores else None,
            "groups": self.groups,
            "groups_reordered": self.reordered,
            "groups_gained_signal": self.gained_signal,
            "groups_lost_signal": self.lost_signal,
            "advantage_mode": None if self.advantage is None else self.advantage.name,
            "advantage_options": {} if self.advantage is None else dict(self.advantage.options),
            "advantage_mean_abs_change": fmean(shifts) if shifts else None,
            "advantage_sign_flips": sum(flips),
            "examples": self.examples,
        }


def regrade(stored: Stored, pool: VerifierPool, verifier: str) -> Changes:
    """Judge every stored completion again.

    The new score takes the place of the deciding verifier's in the reward, with its weight.

    Args:
        stored: The stored completions.
        pool: A pool that contains the verifier.
        verifier: Its name in the pool.

    Raises:
        DataError: If completions and data do not match.
    """
    changes = Changes(_repeatable(stored.advantage))
    # an advantage estimator may use all groups of a step
    for step, groups in groupby(_judged(stored, pool, verifier), key=lambda one: one[0].step):
        weights = [term.weight_at(step) for term in stored.terms]
        before: list[Group] = []
        after: list[Group] = []
        factors: list[float] = []
        for group, verdicts in groups:
            problem = stored.problems[group.problem_id]
            old = [row["reward"] for row in group.rows]
            pairs = list(zip(group.rows, verdicts, strict=True))
            new = [_reward(row, verdict, weights[0]) for row, verdict in pairs]
            for sample, (row, verdict) in enumerate(pairs):
                _count(changes, group, sample, row, verdict)
                factors.append(stored.scale.get(group.problem_id, 1.0))
            _count_group(changes, old, new)
            known = [_verdicts(row) for row in group.rows]
            before.append(_judged_group(problem, group, known, old))
            with_new = [
                {**one, next(iter(one)): verdict}
                for one, verdict in zip(known, verdicts, strict=True)
            ]
            after.append(_judged_group(problem, group, with_new, new))
        _count_advantages(changes, before, after, weights, factors)
    return changes


def _judged(
    stored: Stored, pool: VerifierPool, verifier: str
) -> Iterator[tuple[StoredGroup, list[Verdict]]]:
    waiting: deque[tuple[StoredGroup, Future[list[dict[str, Verdict]]]]] = deque()
    for group in stored.groups():
        problem = stored.problems[group.problem_id]
        waiting.append((group, pool.submit_group(problem, group.completions, [verifier])))
        if len(waiting) >= AHEAD:
            yield _first(waiting, verifier)
    while waiting:
        yield _first(waiting, verifier)


def _first(
    waiting: deque[tuple[StoredGroup, Future[list[dict[str, Verdict]]]]], verifier: str
) -> tuple[StoredGroup, list[Verdict]]:
    group, future = waiting.popleft()
    judged = zip(group.completions, future.result(), strict=True)
    return group, [failure(completion) or one[verifier] for completion, one in judged]


def _deciding(row: Row) -> Row:
    verdict: Row = next(iter(row["verdicts"].values()))
    return verdict


def _reward(row: Row, verdict: Verdict, weight: float) -> float | None:
    """Return the reward with the new score in place of the old; None if it is unknown."""
    if verdict.score is None:
        return None
    if len(row["verdicts"]) == 1:
        return weight * verdict.score
    old = _deciding(row)["score"]
    if row["reward"] is None or old is None:
        return None
    return float(row["reward"] + weight * (verdict.score - old))


def _count(changes: Changes, group: StoredGroup, sample: int, row: Row, verdict: Verdict) -> None:
    passed = outcome(verdict)
    changes.outcomes[f"{_word(row['passed'])} -> {_word(passed)}"] += 1
    changes.statuses[verdict.status] += 1
    old = _deciding(row)
    if verdict.score is not None and old["score"] is not None:
        changes.scores.append(verdict.score - old["score"])
    if passed == row["passed"] and verdict.score == old["score"]:
        return
    changes.changed += 1
    if len(changes.examples) < EXAMPLES or passed != row["passed"]:
        example = {
            "problem_id": group.problem_id,
            "step": group.step,
            "sample": sample,
            "text": printable(group.completions[sample].text, 400),
            "before": {key: old[key] for key in ("score", "status", "extracted", "detail")},
            "after": {
                "score": verdict.score,
                "status": verdict.status,
                "extracted": verdict.extracted,
                "detail": verdict.detail,
            },
            "outcome": f"{_word(row['passed'])} -> {_word(passed)}",
        }
        # changed outcomes first
        changes.examples.append(example)
        changes.examples.sort(key=lambda one: len(set(one["outcome"].split(" -> "))) == 1)
        del changes.examples[EXAMPLES:]


def _word(passed: bool | None) -> str:
    return "unscored" if passed is None else "passed" if passed else "failed"


def _count_group(changes: Changes, old: Rewards, new: Rewards) -> None:
    both = [(a, b) for a, b in zip(old, new, strict=True) if a is not None and b is not None]
    if len(old) < 2:
        return
    changes.groups += 1
    changes.reordered += any(
        _sign(one[0] - two[0]) != _sign(one[1] - two[1]) for one, two in combinations(both, 2)
    )
    had, has = _has_signal(old), _has_signal(new)
    changes.gained_signal += has and not had
    changes.lost_signal += had and not has


def _sign(value: float) -> int:
    return (value > 1e-9) - (value < -1e-9)


def _has_signal(rewards: Rewards) -> bool:
    known = [reward for reward in rewards if reward is not None]
    return len(known) > 1 and max(known) - min(known) > 1e-9


def _repeatable(advantage: EstimatorRef | None) -> EstimatorRef | None:
    """Return the estimator, unless it needs log-probs, which are not stored."""
    if advantage is None or advantage.estimator.component.traits.needs_reference_kl:
        return None
    return advantage


def _verdicts(row: Row) -> dict[str, Verdict]:
    return {name: Verdict.from_json(one) for name, one in row["verdicts"].items()}


def _judged_group(
    problem: Problem, group: StoredGroup, verdicts: Sequence[dict[str, Verdict]], rewards: Rewards
) -> Group:
    """Rebuild the judged group that an advantage estimator takes from a stored group."""
    members = [
        Judged(completion, found, reward, outcome(next(iter(found.values()))))
        for completion, found, reward in zip(group.completions, verdicts, rewards, strict=True)
    ]
    version = max((row.get("version", 0) for row in group.rows), default=0)
    return Group(problem, tuple(members), version)


def _count_advantages(
    changes: Changes,
    before: Sequence[Group],
    after: Sequence[Group],
    weights: Sequence[float],
    factors: Sequence[float],
) -> None:
    """Record the advantages of the completions of one step."""
    if changes.advantage is None:
        return
    steps = [judged_step(groups, weights) for groups in (before, after)]
    old_N, new_N = (changes.advantage.estimator.of(step).row_N for step in steps)
    both_N = steps[0].scorable_N & steps[1].scorable_N
    for old, new, factor, both in zip(old_N, new_N, factors, both_N, strict=True):
        if both:
            changes.advantages.append((float(old) * factor, float(new) * factor))
