"""Saves and restores the state of a run in checkpoints, besides the weights."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rlvr_core.api import CheckpointSaved, RunError
from rlvr_core.step import checkpoint

if TYPE_CHECKING:
    from pathlib import Path

    from rlvr_core.run.session import Session


def save(session: Session, *, best: bool = False) -> None:
    """Write a checkpoint from which the run continues exactly.

    Args:
        session: The run; all its processes must call this.
        best: Whether these weights are the best so far, so that the checkpoint is kept.
    """
    with session.phase("checkpoint"):
        trainer = session.trainer
        tensors = checkpoint.collect(
            trainer.model, trainer.optimizer, trainer.reference, keep=session.ranks.main
        )
        path = session.ranks.on_main(
            lambda: session.checkpoints.write(
                session.step, lambda folder: _fill(session, folder, tensors), best=best
            )
        )
    session.events.checkpoint_saved(CheckpointSaved(session.step, path))


def _fill(session: Session, folder: Path, tensors: checkpoint.Tensors) -> None:
    checkpoint.save(
        folder,
        model=session.trainer.model,
        tokenizer=session.tokenizer,
        optimizer=session.trainer.optimizer,
        compute_dtype=session.trainer.precision.compute,
        state=_state(session),
        tensors=tensors,
    )
    session.trainer.observer.checkpoint_written(folder)


def _state(session: Session) -> dict[str, Any]:
    return {
        "step": session.step,
        "version": session.version,
        "skipped": session.skipped,
        "identity": session.identity,
        "entropy": {name: one.state_dict() for name, one in session.trainer.entropy.items()},
        **session.evaluations.state_dict(),
        **{name: part.state_dict() for name, part in session.stateful.items()},
        "offsets": session.recorder.offsets(),
    }


def restore(session: Session, folder: Path) -> None:
    """Restore a session to the state saved in a checkpoint; the inverse of ``save``."""
    trainer = session.trainer
    state = checkpoint.load(
        folder, model=trainer.model, optimizer=trainer.optimizer, reference=trainer.reference
    )
    session.step, session.version = state["step"], state["version"]
    session.skipped = state["skipped"]
    for name, controller in trainer.entropy.items():
        controller.load_state_dict(state["entropy"][name])
    session.evaluations.load_state_dict(state)
    if session.evaluations.best_step is not None:
        session.checkpoints.pinned = {session.evaluations.best_step}
    for name, part in session.stateful.items():
        part.load_state_dict(state[name])
        # guards take part in the comparison: what they say of themselves is no state to compare
        if session.config.guards.resume and name != "guards":
            _check_restored(name, part.state_dict(), state[name])
    for missing in session.recorder.rewind(state["offsets"]):
        session.events.message(missing)
    session.engine.load_weights(session.version, session.source)


def _check_restored(name: str, found: Any, saved: Any) -> None:
    if json.dumps(found, sort_keys=True) != json.dumps(saved, sort_keys=True):
        raise RunError(
            f"guard resume: going on from the checkpoint, the state of the {name} is not the one "
            "that was saved",
            remedy="load_state_dict has to restore everything that state_dict returned",
        )
