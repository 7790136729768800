"""Combines verifier pool and reward plan: completions in, verdicts and rewards out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from rlvr_core.api import Completion, Problem, Verdict
from rlvr_core.record.text import Redactor
from rlvr_core.verify.error_rate import ErrorRate
from rlvr_core.verify.pool import VerifierPool
from rlvr_core.verify.reward import RewardPlan
from rlvr_core.verify.verdicts import MAX_DETAIL


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
        sound = [one for one, fault in zip(completions, failed, strict=True) if fault is None]
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
    told = Redactor().known(transcript.detail)
    detail = f"{transcript.environment}: {told}"[:MAX_DETAIL]
    return Verdict(None, "timeout" if transcript.ended == "timeout" else "error", detail=detail)
