"""What ``core/difficulty`` draws: the pool that its weights give, and of it the oldest problem.

Pass rates, pools and ages are counted again from the groups that came. Which tier and which pool a
draw is from, is decided by a hash of the run's seed and the number of the draw, laid on the weights
of those that can be drawn from, in their order (docs/samplers.md). So each draw is known, and no
chance is left that a healthy one looks wrong.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from rlvr_core.api.services import local_path, read_rows

if TYPE_CHECKING:
    from rlvr_core.api import Group, Problem, Source
    from rlvr_core.api.services import RunConfig

WEIGHTS = {"unseen": 1.0, "hard": 0.1, "normal": 1.0, "easy": 0.1}
"""What pools weigh where the config does not say."""

POOLS = (*WEIGHTS, "solved")

Queue = tuple[str, str]
"""A tier and a pool."""

Age = tuple[int, int]
"""Number of a problem's last draw, -1 before the first, and what decides among equal ones."""


class _Ages:
    """Ages of the problems of a queue that can be drawn."""

    def __init__(self) -> None:
        self._here: set[Age] = set()
        self._heap: list[Age] = []

    def add(self, age: Age) -> None:
        self._here.add(age)
        heappush(self._heap, age)

    def remove(self, age: Age) -> None:
        self._here.discard(age)

    def oldest(self) -> Age | None:
        """Return the age of the problem that was drawn longest ago; None if there is none."""
        while self._heap and self._heap[0] not in self._here:
            heappop(self._heap)
        return self._heap[0] if self._heap else None


class DifficultyDraws:
    """Follows the pools of ``core/difficulty``, and judges each draw by them.

    Args:
        config: The run's configuration.
        sources: The training data.
    """

    def __init__(self, config: RunConfig, sources: Sequence[Source]) -> None:
        self._options: Mapping[str, Any] = config.sampler.with_
        problems = [problem for source in sources for problem in source.problems]
        self._tier = {problem.id: self._tier_of(problem) for problem in problems}
        self._rates: dict[str, float] = {}
        if uri := self._options.get("pass_rates"):
            rows = [row for _, row in read_rows(local_path(uri))]
            self._rates = {r["id"]: r["pass_rate"] for r in rows if r["pass_rate"] is not None}
        self._seed = config.run.seed
        self._rank = {id_: _hash(self._seed, "rank", id_) for id_ in self._tier}
        self.start(0, {})

    def start(self, drawn: int, position: Mapping[str, Any]) -> None:
        """Begin, or go on, from the state of the sampler.

        Args:
            drawn: Problems it has drawn.
            position: Last draw, streak and window of each problem that it knows.
        """
        self._drawn = drawn
        self._last = {id_: last for id_, (last, _, _) in position.items()}
        self._streak = {id_: streak for id_, (_, streak, _) in position.items()}
        self._window = {id_: [*map(tuple, pairs)] for id_, (_, _, pairs) in position.items()}
        self._queue = {id_: self._queue_of(id_) for id_ in self._tier}
        self._ages: dict[Queue, _Ages] = {}
        for id_, queue in self._queue.items():
            self._ages.setdefault(queue, _Ages()).add(self._age(id_))

    def _age(self, id_: str) -> Age:
        return self._last.get(id_, -1), self._rank[id_]

    def sizes(self) -> dict[str, float]:
        """Return the number of problems of each pool."""
        counts = Counter(pool for _, pool in self._queue.values())
        return {pool: float(counts[pool]) for pool in POOLS}

    def wrong_figure(self, line: Mapping[str, float]) -> str:
        """Say what a step's line says otherwise of the pools; empty if nothing."""
        for pool, size in self.sizes().items():
            told = line.get(f"sampler/{pool}", size)
            if told != size:
                return (
                    f"sampler/{pool} is reported as {told:g} problems of the data, and by the "
                    f"outcomes of its groups that pool has {size:g}"
                )
        return ""

    def wrong_memory(self, position: Mapping[str, Any]) -> str:
        """Say what a sampler remembers otherwise of its problems; empty if nothing."""
        known = self._last.keys() | self._window.keys()
        for id_ in sorted(known | position.keys()):
            last, streak, window = position.get(id_, (-1, 0, ()))
            has = last, streak, [tuple(pair) for pair in window]
            due = self._last.get(id_, -1), self._streak.get(id_, 0), self._window.get(id_, [])
            for what, found, right in zip(("last draw", "streak", "window"), has, due, strict=True):
                if found != right:
                    return (
                        f"the sampler remembers {found} as the {what} of problem {id_}, and its "
                        f"groups make {right}"
                    )
        return ""

    def wrong(self, step: int, rounds: Sequence[Sequence[Group]]) -> str:
        """Follow the draws of a step, and say what is wrong with them; empty if nothing is.

        Args:
            step: It, from 0.
            rounds: The groups that were drawn at once, in the order of their draw.
        """
        tiers = self._tiers_at(step)
        for groups in rounds:
            if what := self._round([group.problem.id for group in groups], tiers):
                return what
            for group in groups:
                self._learn(group)
        return ""

    # -- a round of draws --------------------------------------------------------------------------

    def _round(self, ids: Sequence[str], tiers: Mapping[str, float] | None) -> str:
        aside: list[str] = []
        what = ""
        for id_ in ids:
            if not self._ready(tiers):
                self._put_back(aside)
            what = what or self._draw(id_, tiers)
            self._ages[self._queue[id_]].remove(self._age(id_))
            self._last[id_] = self._drawn
            self._drawn += 1
            aside.append(id_)
            if what:
                break
        self._put_back(aside)
        return what

    def _put_back(self, aside: list[str]) -> None:
        for id_ in aside:
            self._ages[self._queue[id_]].add(self._age(id_))
        aside.clear()

    def _ready(self, tiers: Mapping[str, float] | None) -> list[Queue]:
        return [
            queue
            for queue, ages in self._ages.items()
            if ages.oldest() is not None and (tiers is None or tiers.get(queue[0], 0.0) > 0)
        ]

    def _draw(self, id_: str, tiers: Mapping[str, float] | None) -> str:
        """Say what is wrong with one draw."""
        weight = {name: float(self._options.get(name, w)) for name, w in WEIGHTS.items()}
        ready = self._ready(tiers)
        able = [one for one in ready if weight.get(one[1], 0.0) > 0]
        able = able or [one for one in ready if one[1] != "solved"] or ready
        open_tiers = sorted({one for one, _ in able})
        tier = self._pick({one: 1.0 if tiers is None else tiers[one] for one in open_tiers}, "tier")
        pools = {pool: weight.get(pool, 0.0) for pool in POOLS if (tier, pool) in able}
        pool = self._pick(pools, "pool")
        came, oldest = self._queue[id_], self._ages[tier, pool].oldest()
        if came != (tier, pool):
            of = [f"pool {p}{f' of tier {t}' if t else ''}" for t, p in (came, (tier, pool))]
            return (
                f"problem {id_} of the {of[0]} was drawn, and by their weights "
                f"({', '.join(f'{name} {one:g}' for name, one in pools.items())}) and the seed "
                f"it was the turn of the {of[1]}"
            )
        if self._age(id_) != oldest:
            return (
                f"problem {id_} of the pool {pool} was drawn, last drawn as number "
                f"{self._last.get(id_, -1)}, and it was the turn of another one of that pool"
            )
        return ""

    def _pick(self, weights: Mapping[str, float], what: str) -> str:
        """Return the one on which the hash of this draw falls."""
        if not any(weights.values()):
            weights = dict.fromkeys(weights, 1.0)
        point = _hash(self._seed, what, self._drawn) / 2**64 * sum(weights.values())
        for name, weight in weights.items():
            if point < weight:
                return name
            point -= weight
        return [name for name, weight in weights.items() if weight > 0][-1]

    # -- what is known of problems -----------------------------------------------------------------

    def _learn(self, group: Group) -> None:
        """Count the outcomes of a group."""
        id_ = group.problem.id
        passed = [member.passed for member in group.members]
        good, bad = passed.count(True), passed.count(False)
        if not good + bad:
            return
        kept = int(self._options.get("window", 2))
        self._window[id_] = [*self._window.get(id_, []), (good, bad)][-kept:]
        self._streak[id_] = 0 if bad else self._streak.get(id_, 0) + 1
        old, new = self._queue[id_], self._queue_of(id_)
        if old != new:
            self._ages[old].remove(self._age(id_))
            self._ages.setdefault(new, _Ages()).add(self._age(id_))
            self._queue[id_] = new

    def _queue_of(self, id_: str) -> Queue:
        return self._tier[id_], self._pool_of(id_)

    def _pool_of(self, id_: str) -> str:
        solved = self._options.get("solved_after")
        if solved is not None and self._streak.get(id_, 0) >= solved:
            return "solved"
        window = self._window.get(id_)
        if window:
            rate = sum(good for good, _ in window) / sum(good + bad for good, bad in window)
        elif id_ in self._rates:
            rate = self._rates[id_]
        else:
            return "unseen"
        if rate <= float(self._options.get("hard_threshold", 0.0)):
            return "hard"
        return "easy" if rate >= float(self._options.get("easy_threshold", 1.0)) else "normal"

    def _tier_of(self, problem: Problem) -> str:
        by = self._options.get("tier_by")
        if by is None:
            return ""
        return problem.dataset if by == "dataset" else str(problem.tags[by])

    def _tiers_at(self, step: int) -> Mapping[str, float] | None:
        for phase in self._options.get("phases") or ():
            if phase.get("until_step") is None or step < phase["until_step"]:
                return {str(tier): float(share) for tier, share in phase["tiers"].items()}
        return None


def _hash(*parts: object) -> int:
    """Return the first 64 bits of the BLAKE2b of the parts as Python writes them."""
    return int(hashlib.blake2b(repr(parts).encode(), digest_size=8).hexdigest(), 16)
