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


class Ledger:
    """Counts completions by fate, step by step.

    Attributes:
        in_flight: Completions drawn and not yet settled.
    """

    def __init__(self) -> None:
        self.in_flight = 0
        self._step: Counter[str] = Counter()
        self._details = {"zero_variance/all_passed", "zero_variance/all_failed"}

    def draw(self, n: int) -> None:
        """Count ``n`` completions as drawn."""
        assert n >= 0, f"drew {n} completions"
        self.in_flight += n
        self._step["drawn"] += n

    def settle(self, fate: Fate, n: int, detail: str = "") -> None:
        """Count ``n`` drawn completions as having ended in ``fate``.

        Args:
            fate: The fate.
            n: Number of completions.
            detail: A sub-category counted separately within the fate, e.g. ``all_passed``.
        """
        assert fate in FATES, f"'{fate}' is not a fate to settle in"
        assert 0 <= n <= self.in_flight, f"settled {n} as {fate}, but {self.in_flight} in flight"
        self.in_flight -= n
        self._step[fate] += n
        if detail:
            self._details.add(f"{fate}/{detail}")
            self._step[f"{fate}/{detail}"] += n

    def step_line(self) -> dict[str, int]:
        """Return the metrics ``ledger/...`` of the step that ends now, and begin a new step."""
        names = ("drawn", *FATES, "in_flight", *sorted(self._details))
        counts = self._step | Counter(in_flight=self.in_flight)
        self._step = Counter()
        return {f"ledger/{name}": counts[name] for name in names}

    def state_dict(self) -> dict[str, Json]:
        """Return the state that ``load_state_dict`` needs to continue."""
        return {
            "in_flight": self.in_flight,
            "step": dict(self._step),
            "details": sorted(self._details),
        }

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Continue where ``state_dict`` was taken."""
        self.in_flight = int(state["in_flight"])
        self._step = Counter(state["step"])
        self._details = set(state["details"])
