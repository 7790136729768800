"""The evaluations of a run, and what follows from them: the best checkpoint, an early stop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlvr_core.api.hooks import EvalFinished
from rlvr_core.builtin.evals.metric import value_of
from rlvr_core.builtin.evals.runner import Evaluation, evaluate

if TYPE_CHECKING:
    from rlvr_core.run.session import Session


@dataclass(frozen=True, slots=True)
class Best:
    """The best checkpoint so far, by the metric of ``checkpoint.keep_best``."""

    step: int
    value: float


def evaluate_run(session: Session) -> bool:
    """Run every eval task under the current weights and record it.

    Returns:
        Whether these weights are the best so far, by ``checkpoint.keep_best``.
    """
    improved = False
    for named in session.tasks:
        with session.phase(f"evaluation {named.name}"):
            found = evaluate(named, session.generator, version=session.version, step=session.step)
        session.errors.check()
        _record(session, found)
        improved |= _improves(session, found)
        _watch_progress(session, found)
    return improved


def _record(session: Session, found: Evaluation) -> None:
    session.recorder.evaluation(
        session.step, session.version, found.name, found.temperature, found.report, found.sampled
    )
    session.events.eval_finished(EvalFinished(session.step, found.name, found.report))


def _improves(session: Session, found: Evaluation) -> bool:
    wanted = session.config.checkpoint.keep_best
    value = None if wanted is None else value_of(wanted, found, "checkpoint.keep_best")
    if value is None:
        return False
    # the untrained model is the user's already, and needs no checkpoint
    if session.step == 0 or (session.best is not None and value <= session.best.value):
        return False
    session.best = Best(session.step, value)
    return True


def _watch_progress(session: Session, found: Evaluation) -> None:
    # one that is only made because the run ends here would not be there in a longer run
    if session.early_stop is None or session.step % session.config.eval.every != 0:
        return
    value = value_of(session.early_stop.section.metric, found, "eval.early_stop.metric")
    if value is not None:
        session.early_stop.observe(session.step, value)
