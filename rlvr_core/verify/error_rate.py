"""Stops a run whose verifier fails too often to be trusted (T51, T54)."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from rlvr_core.api import Completion, Json, RunError, Verdict

WINDOW = 500
"""Number of most recent verdicts of a verifier that count."""
MINIMUM = 20
"""Fewest verdicts for which a rate is computed."""


@dataclass(slots=True)
class ErrorRate:
    """Share of each verifier's recent verdicts that are errors, timeouts or still busy.

    Attributes:
        limit: Largest share that is tolerated.
    """

    limit: float
    recent: dict[str, deque[str | None]] = field(default_factory=dict)

    def observe_all(self, completion: Completion, verdicts: Mapping[str, Verdict]) -> None:
        """Count the verdicts on a completion, unless its environment failed: nobody judged it."""
        if completion.transcript is None or not completion.transcript.failed:
            for name, verdict in verdicts.items():
                self.observe(name, verdict)

    def observe(self, name: str, verdict: Verdict) -> None:
        """Count a verdict of the verifier ``name``."""
        bad = verdict.status in ("error", "timeout", "busy")
        window = self.recent.setdefault(name, deque(maxlen=WINDOW))
        window.append(f"{verdict.status}: {verdict.detail}" if bad else None)

    def state_dict(self) -> dict[str, Json]:
        """Return the windows, for a checkpoint."""
        return {name: list(window) for name, window in self.recent.items()}

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Restore the windows from ``state_dict``."""
        self.recent = {name: deque(window, maxlen=WINDOW) for name, window in state.items()}

    def check(self) -> None:
        """Raise if a verifier is above the limit.

        Raises:
            RunError: If one is; names the verifier, its rate and its most frequent error.
        """
        for name, window in self.recent.items():
            bad = Counter(detail for detail in window if detail is not None)
            if len(window) < MINIMUM or bad.total() <= self.limit * len(window):
                continue
            (detail, count), *_ = bad.most_common(1)
            raise RunError(
                f"verifier '{name}' failed on {bad.total()} of its last {len(window)} verdicts; "
                f"verify.max_error_rate is {self.limit:g}",
                where=f"{count} times: {detail}",
                remedy="try it on stored answers: rlvr verify " + name.partition("#")[0] + " FILE",
            )
