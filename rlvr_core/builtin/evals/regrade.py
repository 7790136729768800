"""``rlvr regrade``: stored completions before another verifier, and what it would have changed."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import combinations, groupby
from statistics import fmean

from rlvr_core.api.protocols import AdvantageMode, CombineMode
from rlvr_core.api.types import Json, Verdict
from rlvr_core.builtin.evals.store import Row
from rlvr_core.builtin.evals.stored import Stored, StoredGroup
from rlvr_core.record.text import printable
from rlvr_core.verify.judge import failure
from rlvr_core.verify.reward import outcome
from rlvr_core.workers.pool import VerifierPool

AHEAD = 256
"""Groups that may be with the verifiers at a time."""
EXAMPLES = 5

Rewards = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class _Graded:
    """A completion as one of the two verifiers has it.

    Attributes:
        place: Of its group in the step.
        reward: The weighted sum of the scores.
        scores: One per reward, the deciding verifier's first.
    """

    place: int
    reward: float | None
    scores: tuple[float | None, ...]


@dataclass(slots=True)
class Changes:
    """What another verifier would have changed.

    Attributes:
        mode: How advantages are made of rewards.
        combine: How several rewards become one advantage.
        outcomes: Completions by outcome before and after, as in ``failed -> passed``.
        scores: Change of the score of each completion that has one from both.
        statuses: Verdicts of the new verifier by status.
        groups: Groups with more than one completion.
        reordered: Of those, groups in which two completions would change ranks.
        gained_signal: Groups whose rewards were all the same and would now differ.
        lost_signal: The other way round.
        advantages: Advantage before and after of each completion that has both.
        changed: Completions whose outcome or score changes.
        examples: Some of them.
    """

    mode: AdvantageMode
    combine: CombineMode
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
        """As JSON."""
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
            "advantage_mode": self.mode,
            "advantage_combine": self.combine,
            "advantage_mean_abs_change": fmean(shifts) if shifts else None,
            "advantage_sign_flips": sum(flips),
            "examples": self.examples,
        }


def regrade(stored: Stored, pool: VerifierPool, verifier: str) -> Changes:
    """Judge every stored completion again.

    The new score takes the place of the deciding verifier's in the reward, with its weight.

    Args:
        stored: What to judge.
        pool: Has the verifier.
        verifier: Its name in the pool.

    Raises:
        DataError: If completions and data do not fit.
    """
    changes = Changes(stored.mode, stored.combine)
    # advantages may depend on everything in a step
    for step, groups in groupby(_judged(stored, pool, verifier), key=lambda one: one[0].step):
        weights = [term.weight_at(step) for term in stored.terms]
        before: list[_Graded] = []
        after: list[_Graded] = []
        factors: list[float] = []
        for place, (group, verdicts) in enumerate(groups):
            old = [row["reward"] for row in group.rows]
            pairs = list(zip(group.rows, verdicts, strict=True))
            new = [_reward(row, verdict, weights[0]) for row, verdict in pairs]
            for sample, (row, verdict) in enumerate(pairs):
                _count(changes, group, sample, row, verdict)
                first, *others = (one["score"] for one in row["verdicts"].values())
                before.append(_Graded(place, old[sample], (first, *others)))
                after.append(_Graded(place, new[sample], (verdict.score, *others)))
                factors.append(stored.scale.get(group.problem_id, 1.0))
            _count_group(changes, old, new)
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
    """The reward with the new score in place of the old; None if it cannot be told."""
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
        # those with another outcome come first
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


def _count_advantages(
    changes: Changes,
    before: Sequence[_Graded],
    after: Sequence[_Graded],
    weights: Sequence[float],
    factors: Sequence[float],
) -> None:
    """Note the advantages of the completions of one step."""
    from rlvr_core.algorithm.advantages import combined_advantages

    old, new = (
        combined_advantages(
            [one.reward for one in graded],
            [one.scores for one in graded],
            [one.place for one in graded],
            weights=weights,
            mode=changes.mode,
            combine=changes.combine,
        )
        for graded in (before, after)
    )
    for place, factor in enumerate(factors):
        if old.scorable_N[place] and new.scorable_N[place]:
            pair = (float(made.advantage_N[place]) * factor for made in (old, new))
            changes.advantages.append((next(pair), next(pair)))
