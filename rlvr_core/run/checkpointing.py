"""Saves and restores the state of a run in checkpoints, besides the weights.

What is saved is copied between two steps; its files are written beside the steps that follow.
"""

from __future__ import annotations

import contextlib
import json
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlvr_core.api import CheckpointSaved, RunError
from rlvr_core.step import checkpoint

if TYPE_CHECKING:
    from pathlib import Path

    from rlvr_core.run.session import Session


@dataclass(frozen=True, slots=True)
class Writing:
    """A checkpoint that is being written.

    Attributes:
        step: Steps done.
        written: Its folder, once it is complete, in process 0; in others nothing, once they have
            written their shard.
    """

    step: int
    written: Future[Any]


def save(session: Session, *, best: bool = False) -> None:
    """Begin to write a checkpoint from which the run continues exactly; ``settle`` ends it.

    Args:
        session: The run; all its processes must call this.
        best: Whether these weights are the best so far, so that the checkpoint is kept.

    Raises:
        RunError: If the checkpoint before could not be written.
    """
    settle(session)
    with session.phase("checkpoint"):
        trainer, ranks = session.trainer, session.ranks
        parts = (trainer.model, trainer.optimizer, trainer.reference)
        snapshot = checkpoint.collect(*parts, ranks, session.folder.path)
        # its parts change with the next step; a part that fails has begun nothing to wait for
        state = json.loads(json.dumps(_state(session))) if ranks.main else {}
        session.writing = Writing(session.step, Future())
        if ranks.main or snapshot.shards:
            work = (session, session.writing, snapshot, state, best)
            # a daemon: a disk that does not answer must not keep a process that is to end
            threading.Thread(target=_write, args=work, name="checkpoint", daemon=True).start()
        else:
            session.writing.written.set_result(None)  # nobody has to wait for this process


def settle(session: Session) -> None:
    """Wait for the checkpoint that is being written, if there is one, and report it.

    Args:
        session: The run; all its processes must call this.

    Raises:
        RunError: If it could not be written; older checkpoints are then unchanged.
    """
    if (writing := session.writing) is None:
        return
    with session.phase("checkpoint"):
        try:
            path = session.ranks.on_main(writing.written.result)
        except Exception:
            session.writing = None  # it failed, or is never done: nobody waits for it again
            raise
    session.writing = None
    session.events.checkpoint_saved(CheckpointSaved(writing.step, path))


def settle_alone(session: Session, limit: float) -> None:
    """Do the same in the process that writes, whatever the others do: the run ends early.

    Args:
        session: The run.
        limit: Seconds after which it is given up; a signal ends the wait, too.
    """
    writing, session.writing = session.writing, None
    if writing is not None:
        with contextlib.suppress(TimeoutError, KeyboardInterrupt):
            if path := writing.written.result(limit):
                session.events.checkpoint_saved(CheckpointSaved(writing.step, path))


def _write(
    session: Session,
    writing: Writing,
    snapshot: checkpoint.Snapshot,
    state: dict[str, Any],
    best: bool,
) -> None:
    def fill(folder: Path) -> None:
        checkpoint.save(
            folder,
            snapshot=snapshot,
            model=session.trainer.model,
            tokenizer=session.tokenizer,
            compute_dtype=session.trainer.precision.compute,
            state=state,
        )
        session.trainer.observer.checkpoint_written(folder)

    shards, path = snapshot.shards, None
    try:
        if session.ranks.main:
            known = shards and shards.written
            path = session.checkpoints.write(writing.step, fill, best=best, known=known)
        else:
            shards.write(None, session.trainer.precision.compute)
        writing.written.set_result(path)
    except BaseException as error:
        writing.written.set_exception(error)


def _state(session: Session) -> dict[str, Any]:
    return {
        "step": session.step,
        "version": session.version,
        "skipped": session.skipped,
        "identity": session.identity,
        "entropy": {
            name: controller.state_dict() for name, controller in session.trainer.entropy.items()
        },
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
        # a guard of another version may restore less than it was given
        if name != "guards":
            _check_restored(name, part.state_dict(), state[name])
    for missing in session.recorder.rewind(state["offsets"]):
        session.events.message(f"warning: {missing}")
    session.engine.load_weights(session.version, session.source)


def _check_restored(name: str, restored: Any, saved: Any) -> None:
    if json.dumps(restored, sort_keys=True) != json.dumps(saved, sort_keys=True):
        raise RunError(
            f"going on from the checkpoint, the state of the {name} is not the one that was saved",
            remedy="load_state_dict has to restore everything that state_dict returned",
        )
