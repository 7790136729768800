"""The sampler ``core/difficulty``: chooses problems by the model's current pass rate.

A problem that always passes, or never does, yields groups without variance, which teach nothing.
Each problem belongs to a pool by its recent pass rate, and pools are sampled by weight. In
addition, tiers, defined by a tag of the problem, can be phased in.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal, get_args

from pydantic import Field, model_validator

from rlvr_core.api import Json, Metric, Outcome, Problem, Source
from rlvr_core.rollout.samplers.base import SamplerBase, SamplerConfig, digest, seeded_hash
from rlvr_core.rollout.samplers.epochs import all_problems
from rlvr_core.rollout.samplers.order import read_pass_rates
from rlvr_core.rollout.samplers.phases import Phase, check_phases, check_tiers, phase_at, tier_of

Pool = Literal["unseen", "hard", "normal", "easy", "solved"]
Rate = Annotated[float, Field(ge=0, le=1)]
Weight = Annotated[float, Field(ge=0)]

POOLS: tuple[Pool, ...] = get_args(Pool)


@dataclass(slots=True)
class Record:
    """The history of a problem.

    Attributes:
        last: Index of its last draw; -1 before the first.
        streak: Number of its most recent consecutive groups in which all completions passed.
        window: Successes and failures of its last groups, newest last.
    """

    last: int = -1
    streak: int = 0
    window: list[list[int]] = field(default_factory=list)


class Difficulty(SamplerBase):
    """Draws problems by recent pass rate; within a pool, the least recently drawn first."""

    reports = (
        Metric("sampler/unseen", "Problems whose pass rate is not known yet.", "problems"),
        Metric("sampler/hard", "Problems with a pass rate of hard_threshold or less.", "problems"),
        Metric("sampler/normal", "Problems with a pass rate between the two.", "problems"),
        Metric("sampler/easy", "Problems with a pass rate of easy_threshold or more.", "problems"),
        Metric("sampler/solved", "Problems left out as solved.", "problems"),
    )

    class Config(SamplerConfig):
        """Options of ``core/difficulty``."""

        window: Annotated[int, Field(gt=0)] = 2
        """Number of most recent groups of a problem that make up its pass rate."""
        hard_threshold: Rate = 0.0
        """A problem is hard up to this pass rate, inclusive."""
        easy_threshold: Rate = 1.0
        """A problem is easy from this pass rate on, inclusive; between the two it is normal."""
        unseen: Weight = 1.0
        """Weight of problems whose pass rate is unknown."""
        hard: Weight = 0.1
        """Weight of hard problems."""
        normal: Weight = 1.0
        """Weight of normal problems."""
        easy: Weight = 0.1
        """Weight of easy problems."""
        solved_after: Annotated[int, Field(gt=0)] | None = None
        """Consecutive groups in which all completions passed, after which a problem is solved and
        no longer drawn; null keeps drawing all."""
        pass_rates: Annotated[str, Field(min_length=1)] | None = None
        """``difficulty.jsonl`` of ``rlvr passk``, or its URI: initial pass rates."""
        tier_by: Annotated[str, Field(min_length=1)] | None = None
        """Tag of the problems that defines their tier, or ``dataset``."""
        phases: tuple[Phase, ...] = ()
        """Weights of the tiers over the steps."""

        @model_validator(mode="after")
        def _order(self) -> Difficulty.Config:
            if self.hard_threshold >= self.easy_threshold:
                raise ValueError(
                    f"hard_threshold ({self.hard_threshold}) must be below easy_threshold "
                    f"({self.easy_threshold})"
                )
            if not any((self.unseen, self.hard, self.normal, self.easy)):
                raise ValueError("unseen, hard, normal and easy all have weight 0")
            check_phases(self.phases, self.tier_by)
            return self

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._config = config
        self._problems: dict[str, Problem] = {}
        self._records: dict[str, Record] = {}
        self._given: dict[str, float] = {}
        self._tiers: dict[str, str] = {}
        self._ranks: dict[str, int] = {}

    def begin(self, sources: Sequence[Source]) -> None:
        """Take the sources and the initial pass rates.

        Raises:
            DataError: If a problem lacks the tag, or pass rates are given for unknown problems.
            ConfigError: If phases name a tier that no problem has, or leave one out.
        """
        config = self._config
        self._problems = {problem.id: problem for problem in all_problems(sources)}
        self._records = {}
        # ties are broken by the seed, not by the order of the file
        self._ranks = {id_: seeded_hash(self.seed, "rank", id_) for id_ in self._problems}
        self._tiers = {
            id_: tier_of(problem, config.tier_by) for id_, problem in self._problems.items()
        }
        check_tiers(config.phases, list(self._tiers.values()))
        left_out = [id_ for source in sources for id_ in source.left_out]
        self._given = {}
        if config.pass_rates is not None:
            self._given = read_pass_rates(config.pass_rates, self._problems, left_out)

    def choose(self, n_problems: int, step: int) -> Iterator[Problem]:
        """Yield problems: a tier by phase, a pool by weight, then the least recently drawn problem.

        A problem is repeated within a call only if there are too few others: before that, pools of
        weight 0 are used too, solved problems last.
        """
        tiers = phase_at(self._config.phases, step)
        queues: dict[tuple[str, Pool], list[str]] = {}
        for index in range(self.drawn, self.drawn + n_problems):
            queues = {key: ids for key, ids in queues.items() if ids} or self._queues(tiers)
            id_ = queues[self._choose(set(queues), tiers, index)].pop()
            self._records.setdefault(id_, Record()).last = index
            yield self._problems[id_]

    def update(self, outcomes: Sequence[Outcome]) -> None:
        """Update the pass rates with the newest groups."""
        for outcome in outcomes:
            if outcome.successes + outcome.failures == 0:
                continue
            record = self._records.setdefault(outcome.problem_id, Record())
            record.window.append([outcome.successes, outcome.failures])
            del record.window[: -self._config.window]
            record.streak = 0 if outcome.failures else record.streak + 1

    def pass_rate(self, id_: str) -> float | None:
        """Return the pass rate in the window, or the initial one; None if unknown."""
        record = self._records.get(id_)
        if record is None or not record.window:
            return self._given.get(id_)
        successes = sum(passed for passed, _ in record.window)
        return successes / sum(map(sum, record.window))

    def pool(self, id_: str) -> Pool:
        """Return the pool of a problem."""
        config = self._config
        streak = self._records[id_].streak if id_ in self._records else 0
        if config.solved_after is not None and streak >= config.solved_after:
            return "solved"
        rate = self.pass_rate(id_)
        if rate is None:
            return "unseen"
        if rate <= config.hard_threshold:
            return "hard"
        return "easy" if rate >= config.easy_threshold else "normal"

    def metrics(self) -> dict[str, float]:
        """Return the number of problems in each pool."""
        counts = Counter(map(self.pool, self._problems))
        return {pool: float(counts[pool]) for pool in POOLS}

    def identity(self) -> Json:
        """Return the identity of problems, tiers and initial pass rates."""
        ids = sorted(self._problems)
        rates = json.dumps(self._given, sort_keys=True)
        return digest([*ids, *(self._tiers[id_] for id_ in ids), rates])

    def position(self) -> Json:
        """Return what is remembered about each drawn problem."""
        return {
            id_: [record.last, record.streak, [list(pair) for pair in record.window]]
            for id_, record in self._records.items()
        }

    def seek(self, position: Json) -> None:
        """Restore a state from ``position``."""
        self._records = {
            id_: Record(last, streak, [list(pair) for pair in window])
            for id_, (last, streak, window) in position.items()
        }

    def _queues(self, tiers: Mapping[str, float] | None) -> dict[tuple[str, Pool], list[str]]:
        """Return ids by tier (none of weight 0) and pool, the least recently drawn last."""
        queues: dict[tuple[str, Pool], list[str]] = {}
        for id_, tier in self._tiers.items():
            if tiers is None or tiers.get(tier, 0.0) > 0:
                queues.setdefault((tier, self.pool(id_)), []).append(id_)

        def recency(id_: str) -> tuple[int, int, str]:
            record = self._records.get(id_)
            return -1 if record is None else record.last, self._ranks[id_], id_

        for ids in queues.values():
            ids.sort(key=recency, reverse=True)
        return queues

    def _choose(
        self,
        ready: set[tuple[str, Pool]],
        tiers: Mapping[str, float] | None,
        index: int,
    ) -> tuple[str, Pool]:
        """Choose one of the tiers and pools that are not empty."""
        weights = {pool: getattr(self._config, pool, 0.0) for pool in POOLS}  # none for solved
        able = {key for key in ready if weights[key[1]] > 0}
        able = able or {key for key in ready if key[1] != "solved"} or ready
        open_tiers = sorted({tier for tier, _ in able})
        tier_weights = [1.0 if tiers is None else tiers[tier] for tier in open_tiers]
        tier = open_tiers[_pick(tier_weights, seeded_hash(self.seed, "tier", index))]
        pools = [pool for pool in POOLS if (tier, pool) in able]
        pool_weights = [weights[pool] for pool in pools]
        if not any(pool_weights):
            pool_weights = [1.0] * len(pools)
        return tier, pools[_pick(pool_weights, seeded_hash(self.seed, "pool", index))]


def _pick(weights: Sequence[float], chance: int) -> int:
    """Pick an index with probability proportional to its weight; ``chance`` is a 64-bit number."""
    point = chance / 2**64 * sum(weights)
    for index, weight in enumerate(weights):
        point -= weight
        if point < 0:
            return index
    return max(index for index, weight in enumerate(weights) if weight > 0)
