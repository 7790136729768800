"""Combines verifier pool and reward plan: completions in, verdicts and rewards out.

A run whose verifier fails too often to be trusted is stopped.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from rlvr_core.api import Completion, Json, Problem, RunError, Verdict
from rlvr_core.record.text import Redactor
from rlvr_core.verify.pool import VerifierPool
from rlvr_core.verify.reward import RewardPlan
from rlvr_core.verify.verdicts import MAX_DETAIL

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


@dataclass(frozen=True, slots=True)
class Judge:
    """Judges completions with the verifiers configured in ``rewards``.

    Attributes:
        pool: The pool of verifier processes.
        plan: The verifiers and their weights.
        errors: Counts failed verdicts.
    """

    pool: VerifierPool
    plan: RewardPlan
    errors: ErrorRate

    def submit(
        self, problem: Problem, completions: Sequence[Completion]
    ) -> Future[list[dict[str, Verdict]]]:
        """Judge the completions of one problem; the future's result is in their order.

        A conversation whose environment failed is not judged: its verdicts describe the failure.
        """
        names = self.plan.names(problem)
        failed = [failure(completion) for completion in completions]
        sound = [answer for answer, fault in zip(completions, failed, strict=True) if fault is None]
        whole: Future[list[dict[str, Verdict]]] = Future()

        def put_in(done: Future[list[dict[str, Verdict]]]) -> None:
            try:
                judged = iter(done.result())
                whole.set_result(
                    [
                        next(judged) if fault is None else dict.fromkeys(names, fault)
                        for fault in failed
                    ]
                )
            except BaseException as error:
                whole.set_exception(error)

        self.pool.submit_group(problem, sound, names).add_done_callback(put_in)
        return whole

    def reward(
        self, completion: Completion, verdicts: Mapping[str, Verdict], step: int
    ) -> tuple[float | None, bool | None]:
        """Return the shaped reward and the outcome; count failed verdicts."""
        self.errors.observe_all(completion, verdicts)
        return self.plan.combine(verdicts, step)


def failure(completion: Completion) -> Verdict | None:
    """Return the verdict for a conversation whose environment failed; None for others."""
    transcript = completion.transcript
    if transcript is None or not transcript.failed:
        return None
    redacted = Redactor().known(transcript.detail)
    detail = f"{transcript.environment}: {redacted}"[:MAX_DETAIL]
    return Verdict(None, "timeout" if transcript.ended == "timeout" else "error", detail=detail)
