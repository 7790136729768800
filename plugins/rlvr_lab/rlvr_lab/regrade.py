"""``rlvr regrade``: judges stored completions with another verifier; reports the differences."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from statistics import fmean

from rlvr_core.api import Json, Verdict
from rlvr_core.eval.store import Row
from rlvr_core.record.text import printable
from rlvr_core.verify.judge import failure
from rlvr_core.verify.pool import VerifierPool
from rlvr_core.verify.reward import outcome
from rlvr_lab.stored import Stored, StoredGroup

AHEAD = 256
"""Number of groups that may be queued at the verifiers."""
EXAMPLES = 5

Rewards = Sequence[float | None]


@dataclass(slots=True)
class Changes:
    """The differences that another verifier would have made.

    Attributes:
        outcomes: Number of completions by outcome before and after, as in ``failed -> passed``.
        scores: Change in score of each completion scored by both verifiers.
        statuses: Number of verdicts of the new verifier by status.
        groups: Number of groups with more than one completion.
        gained_signal: Number of groups whose rewards were all equal and would now differ.
        lost_signal: Number of groups whose rewards differed and would now be all equal.
        changed: Number of completions whose outcome or score changes.
        examples: Some of these completions.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    scores: list[float] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    groups: int = 0
    gained_signal: int = 0
    lost_signal: int = 0
    changed: int = 0
    examples: list[Row] = field(default_factory=list)

    def data(self) -> dict[str, Json]:
        """Return the differences as JSON."""
        return {
            "completions": self.outcomes.total(),
            "changed": self.changed,
            "outcomes": dict(sorted(self.outcomes.items())),
            "statuses": dict(sorted(self.statuses.items())),
            "score_change": fmean(self.scores) if self.scores else None,
            "groups": self.groups,
            "groups_gained_signal": self.gained_signal,
            "groups_lost_signal": self.lost_signal,
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
    changes = Changes()
    for group, verdicts in _judged(stored, pool, verifier):
        weight = stored.terms[0].weight_at(group.step)
        pairs = list(zip(group.rows, verdicts, strict=True))
        for sample, (row, verdict) in enumerate(pairs):
            _count(changes, group, sample, row, verdict)
        rewards = [_reward(row, verdict, weight) for row, verdict in pairs]
        _count_group(changes, [row["reward"] for row in group.rows], rewards)
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
    return group, [failure(completion) or verdicts[verifier] for completion, verdicts in judged]


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
        changes.examples.sort(key=lambda each: len(set(each["outcome"].split(" -> "))) == 1)
        del changes.examples[EXAMPLES:]


def _word(passed: bool | None) -> str:
    return "unscored" if passed is None else "passed" if passed else "failed"


def _count_group(changes: Changes, old: Rewards, new: Rewards) -> None:
    if len(old) < 2:
        return
    changes.groups += 1
    had, has = _has_signal(old), _has_signal(new)
    changes.gained_signal += has and not had
    changes.lost_signal += had and not has


def _has_signal(rewards: Rewards) -> bool:
    known = [reward for reward in rewards if reward is not None]
    return len(known) > 1 and max(known) - min(known) > 1e-9
