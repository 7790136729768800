"""Accounting of every drawn completion by fate.

A drawn completion either has a fate or is still in flight. In each step's line, the completions in
flight before the step plus those it drew equal those it settled plus those in flight after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import get_args

from rlvr_core.api import Json
from rlvr_core.api.problems import Fate

FATES: tuple[str, ...] = tuple(fate for fate in get_args(Fate) if fate != "in_flight")
"""Fates of completions, one column each; a drawn completion without a fate is ``in_flight``."""

_ALWAYS = ("zero_variance/all_passed", "zero_variance/all_failed")


class Ledger:
    """Counts completions by fate, in the current step and in the whole run."""

    def __init__(self) -> None:
        self._total: Counter[str] = Counter()
        self._step: Counter[str] = Counter()
        self._drawn = 0
        self._drawn_in_step = 0

    @property
    def drawn(self) -> int:
        """Completions drawn in the whole run."""
        return self._drawn

    @property
    def in_flight(self) -> int:
        """Completions drawn and not yet settled."""
        return self._drawn - self._settled(self._total)

    def draw(self, n: int) -> None:
        """Count ``n`` completions as drawn."""
        assert n >= 0, f"drew {n} completions"
        self._drawn += n
        self._drawn_in_step += n

    def settle(self, fate: Fate, n: int, detail: str = "") -> None:
        """Count ``n`` drawn completions as having ended in ``fate``.

        Args:
            fate: The fate.
            n: Number of completions.
            detail: A sub-category counted separately within the fate, e.g. ``all_passed``.
        """
        assert fate in FATES, f"'{fate}' is not a fate to settle in"
        assert 0 <= n <= self.in_flight, f"settled {n} as {fate}, but {self.in_flight} in flight"
        for counter in (self._total, self._step):
            counter[fate] += n
            if detail:
                counter[f"{fate}/{detail}"] += n

    def total(self) -> dict[str, int]:
        """Return the counts of the whole run: ``drawn``, fates, details, ``in_flight``."""
        return self._counts(self._drawn, self._total)

    def step_line(self) -> dict[str, int]:
        """Return the metrics ``ledger/...`` of the step that ends now, and begin a new step."""
        counts = self._counts(self._drawn_in_step, self._step)
        self._step = Counter()
        self._drawn_in_step = 0
        return {f"ledger/{name}": count for name, count in counts.items()}

    def state_dict(self) -> dict[str, Json]:
        """Return the state that ``load_state_dict`` needs to continue."""
        return {
            "drawn": self._drawn,
            "total": dict(self._total),
            "drawn_in_step": self._drawn_in_step,
            "step": dict(self._step),
        }

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Continue where ``state_dict`` was taken."""
        self._drawn = int(state["drawn"])
        self._total = Counter(state["total"])
        self._drawn_in_step = int(state["drawn_in_step"])
        self._step = Counter(state["step"])

    def _counts(self, drawn: int, counter: Counter[str]) -> dict[str, int]:
        counts = {"drawn": drawn}
        counts |= {fate: counter[fate] for fate in FATES}
        counts["in_flight"] = self.in_flight
        details = sorted({name for name in self._total if "/" in name} | set(_ALWAYS))
        return counts | {name: counter[name] for name in details}

    @staticmethod
    def _settled(counter: Counter[str]) -> int:
        return sum(counter[fate] for fate in FATES)
