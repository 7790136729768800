"""Bounded buffer of groups generated ahead of the trainer, by step and by policy version.

Each step has a lot: the groups it will train on. Lots are open from the current step to the last
step at most ``max_staleness`` updates later, which bounds what is generated or waiting and makes
the generator keep the trainer's pace. A group that has become too old is evicted, and its problem
is drawn again before any other. If groups are read in several steps, fewer lots are open, so that
no group is too old at its last reading; and a lot needs fewer new groups, the more its step reads
again. This module has no threads; those are in ``producer.py``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from rlvr_core.api import Draw, Drop, Json, Problem
from rlvr_core.api.rollouts import Rollouts, Sampled
from rlvr_core.rollout.replay import Reading, restored_group, saved_group

STALE = Drop("stale")


@dataclass(slots=True)
class Lot:
    """The groups collected for one step.

    Attributes:
        step: The step.
        kept: Groups to train on.
        dropped: Dropped groups, including those that became stale.
        decided: Number of groups that count towards the sampler's cap: all except stale ones.
        exhausted: Whether the sampler has no more problems for it.
    """

    step: int
    kept: list[Sampled] = field(default_factory=list)
    dropped: list[Sampled] = field(default_factory=list)
    decided: int = 0
    exhausted: bool = False


class GroupBuffer:
    """The lots of the next steps, the groups in flight to them, and the draws to repeat.

    Args:
        refill: ``Sampler.refill``: how many more groups a step needs.
        max_staleness: The most optimizer updates between a group's sampling and its step.
        steps: Number of steps of the run; nothing is generated beyond the last one.
        updates_per_step: Optimizer updates of one step.
        reads: Number of steps in which a group is read.
    """

    def __init__(
        self,
        refill: Callable[[int, int], int],
        *,
        max_staleness: int,
        steps: int,
        updates_per_step: int = 1,
        reads: int = 1,
    ) -> None:
        self._refill = refill
        self._max_staleness = max_staleness
        self._updates = updates_per_step
        self._ahead = max(0, max_staleness // updates_per_step - (reads - 1))
        self.reads = reads
        self._readings: list[Reading] = []
        self._steps = steps
        self._lots: dict[int, Lot] = {}
        self._owed: dict[int, Draw] = {}
        self._flying: set[int] = set()
        self._to_redraw: deque[Draw] = deque()
        self._step = 0
        self._version = 0

    @property
    def flying(self) -> int:
        """Number of groups being generated or judged."""
        return len(self._flying)

    @property
    def again(self) -> int:
        """Number of groups that must be drawn again."""
        return len(self._to_redraw)

    def advance(self, step: int, version: int) -> None:
        """Advance to a step and a policy version; evict the groups that are too old then."""
        self._step, self._version = step, version
        for number in range(step, min(step + self._ahead, self._steps - 1) + 1):
            self._lots.setdefault(number, Lot(number))
        for lot in self._lots.values():
            stale = [sampled for sampled in lot.kept if self._is_stale(sampled)]
            lot.kept = [sampled for sampled in lot.kept if not self._is_stale(sampled)]
            lot.decided -= len(stale)
            for sampled in stale:
                self._evict(sampled, lot)

    def reread(self, readings: Iterable[Reading]) -> None:
        """Set what the next step reads again, in place of what earlier steps would leave."""
        self._readings = list(readings)

    def orders(self) -> list[tuple[int, int]]:
        """Return the new draws needed, as pairs of step and number, the next step first."""
        coming = self.flying + self.again
        orders = []
        for step, needed in self._needed().items():
            covered = min(needed, coming)
            coming -= covered
            if needed > covered:
                orders.append((step, needed - covered))
        return orders

    def exhausted(self, step: int) -> None:
        """Note that no problems are left for a step."""
        self._lots[step].exhausted = True

    def launch(self, draws: Iterable[Draw]) -> None:
        """Note that new draws are being generated."""
        for draw in draws:
            assert draw.index not in self._owed, f"draw {draw.index} was launched before"
            self._owed[draw.index] = draw
            self._flying.add(draw.index)

    def launch_again(self) -> list[Draw]:
        """Return the draws to repeat, in order, and mark them as being generated."""
        draws = list(self._to_redraw)
        self._to_redraw.clear()
        self._flying |= {draw.index for draw in draws}
        return draws

    def expects(self, step: int) -> bool:
        """Whether groups of a step are being collected."""
        return step in self._lots

    def give_back(self, draw: Draw) -> None:
        """Note that a draw, or part of it, was aborted and must be drawn again."""
        self._flying.remove(draw.index)
        self._to_redraw.append(draw)

    def lot(self) -> Lot:
        """Return the lot for the next group: the first one that needs more."""
        needed = self._needed()
        return self._lots[next((step for step in needed if needed[step]), max(needed))]

    def arrive(self, sampled: Sampled) -> None:
        """Add a group for which keep or drop has been decided."""
        self._flying.remove(sampled.draw.index)
        lot = self.lot()
        if self._is_stale(sampled):
            self._evict(sampled, lot)
            return
        lot.decided += 1
        if sampled.drop is None:
            lot.kept.append(sampled)
        else:
            del self._owed[sampled.draw.index]
            lot.dropped.append(sampled)

    def ready(self, step: int) -> bool:
        """Whether a step has all the groups it will get.

        The last step also gets the groups still in flight: more may have been drawn than it needs
        now, if an update was skipped and it reads earlier groups again in place of new ones.
        """
        on_its_way = self.flying + self.again if step == self._steps - 1 else 0
        return self._needed()[step] == on_its_way == 0

    def count(self, step: int) -> int:
        """Return the number of groups a step has so far; 0 once they are taken."""
        lot = self._lots.get(step)
        return len(lot.kept) if lot else 0

    def take(self, step: int) -> Rollouts:
        """Remove and return the kept and dropped groups of a step, in draw order."""
        _, readings = self._outlook()[step]
        lot = self._lots.pop(step)
        self.reread(readings)
        for sampled in lot.kept:
            del self._owed[sampled.draw.index]
        kept = sorted(lot.kept, key=lambda sampled: sampled.draw.index)
        return Rollouts(kept, sorted(lot.dropped, key=lambda sampled: sampled.draw.index))

    def state_dict(self) -> dict[str, Json]:
        """Return the full state; draws in progress are saved as draws to repeat."""
        in_lots = {sampled.draw.index for lot in self._lots.values() for sampled in lot.kept}
        owed = [draw for index, draw in sorted(self._owed.items()) if index not in in_lots]
        return {
            "lots": [
                {
                    "step": lot.step,
                    "kept": [
                        _saved(sampled) | {"n": self._owed[sampled.draw.index].n}
                        for sampled in lot.kept
                    ],
                    "dropped": [_saved(sampled) for sampled in lot.dropped],
                    "decided": lot.decided,
                    "exhausted": lot.exhausted,
                }
                for lot in self._lots.values()
            ],
            "again": [[draw.problem.id, draw.n, draw.index] for draw in owed],
        }

    def load_state_dict(self, state: Mapping[str, Json], problems: Mapping[str, Problem]) -> None:
        """Restore a state; ``advance`` must be called next.

        Args:
            state: A state from ``state_dict``.
            problems: The run's problems by id.
        """
        self._lots, self._owed, self._flying = {}, {}, set()
        for saved in state["lots"]:
            lot = Lot(saved["step"], decided=saved["decided"], exhausted=saved["exhausted"])
            lot.kept = [_sampled(row, problems) for row in saved["kept"]]
            lot.dropped = [_sampled(row, problems) for row in saved["dropped"]]
            for sampled, row in zip(lot.kept, saved["kept"], strict=True):
                self._owed[sampled.draw.index] = replace(sampled.draw, n=row["n"])
            self._lots[lot.step] = lot
        self._to_redraw = deque(Draw(problems[id_], n, index) for id_, n, index in state["again"])
        self._owed |= {draw.index: draw for draw in self._to_redraw}

    def _needed(self) -> dict[int, int]:
        """Return how many more groups each open step needs, the next step first."""
        return {step: needed for step, (needed, _) in self._outlook().items()}

    def _outlook(self) -> dict[int, tuple[int, list[Reading]]]:
        """Return, for each open step, its need and what it leaves for the next step to read again.

        Groups still in flight for a step count as kept.
        """
        readings = self._readings
        outlook = {}
        for step, lot in sorted(self._lots.items()):
            reread_count = len(readings)
            needed = 0
            if not lot.exhausted:
                needed = self._refill(len(lot.kept) + reread_count, lot.decided + reread_count)
            # readings that a step has no room for are read first by the next step
            room = self._refill(len(lot.kept), len(lot.kept))
            left = readings[room:]
            left += [Reading(reading.version, reading.left - 1) for reading in readings[:room]]
            left += [Reading(sampled.group.version, sampled.reads - 1) for sampled in lot.kept]
            left += [Reading(self._version, self.reads - 1)] * needed
            # the policy is some updates further at the next step
            oldest = self._version + (step + 1 - self._step) * self._updates - self._max_staleness
            readings = [
                reading for reading in left if reading.left > 0 and reading.version >= oldest
            ]
            outlook[step] = (needed, readings)
        return outlook

    def _is_stale(self, sampled: Sampled) -> bool:
        kept = sampled.drop is None
        return kept and sampled.group.version < self._version - self._max_staleness

    def _evict(self, sampled: Sampled, lot: Lot) -> None:
        lot.dropped.append(replace(sampled, drop=STALE))
        lot.exhausted = False
        self._to_redraw.append(self._owed[sampled.draw.index])


def _saved(sampled: Sampled) -> dict[str, Json]:
    drop = sampled.drop
    return saved_group(sampled) | {"drop": None if drop is None else [drop.fate, drop.detail]}


def _sampled(saved: Mapping[str, Json], problems: Mapping[str, Problem]) -> Sampled:
    drop = None if saved["drop"] is None else Drop(*saved["drop"])
    return replace(restored_group(saved, problems), drop=drop)
