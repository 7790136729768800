"""How a run is saved beside its weights, and how one that was begun before goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlvr_core.api import CheckpointSaved, ConfigError, MachineError, RunError
from rlvr_core.step import checkpoint

if TYPE_CHECKING:
    from pathlib import Path

    from rlvr_core.parallel.ranks import Ranks
    from rlvr_core.record.manifest import Manifest
    from rlvr_core.run.session import Session


def save(session: Session, *, best: bool = False) -> None:
    """Write a checkpoint from which the run goes on exactly.

    Args:
        session: The run; every process of it has to call.
        best: Whether these weights are the best so far, and stay.
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


def _state(session: Session) -> dict[str, Any]:
    return {
        "step": session.step,
        "version": session.version,
        "skipped": session.skipped,
        "entropy": {name: one.state_dict() for name, one in session.trainer.entropy.items()},
        **session.evaluations.state_dict(),
        **{name: part.state_dict() for name, part in session.stateful.items()},
        "offsets": session.recorder.offsets(),
    }


def restore(session: Session, folder: Path) -> None:
    """Put a session where it was when it wrote a checkpoint; the inverse of ``save``."""
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
    session.checks.parity_due = True
    for missing in session.recorder.rewind(state["offsets"]):
        session.events.message(missing)
    session.engine.load_weights(session.version, session.source)


def checkpoint_to_resume(
    session: Session, manifest: Manifest | None, targets: Mapping[str, str]
) -> Path | None:
    """The newest complete checkpoint; None to start again in the same folder.

    Args:
        session: The run.
        manifest: Its record.
        targets: Components that the user named by file or module, by how they are named.

    Raises:
        ConfigError: If the run has gone further than ``train.steps``, or files of its components
            have changed and ``run.accept_changed`` does not name what they are now.
        RunError: If the run has finished and nothing is left to go on from.
    """
    assert manifest is not None, "rank 0 decides"
    newest = session.checkpoints.newest(session.events.message)
    where = str(session.folder.path)
    if newest is None and manifest.fields.get("outcome") in ("finished", "stopped"):
        raise RunError(
            "the run has finished, and its checkpoints are gone: nothing to go on from",
            where=where,
            remedy="start a new run",
        )
    if newest is None:
        return None
    taken, planned = checkpoint.step_of(newest), session.config.train.steps
    if taken > planned:
        raise ConfigError(
            f"train.steps is {planned}, and the run has already taken {taken}",
            where=where,
            remedy=f"set train.steps to more than {taken} to go on",
        )
    if taken == planned:
        session.events.message("the run has taken all its steps: nothing is left to do")
    _changed_files(session, manifest, targets, session.config.run.accept_changed)
    return newest


def _changed_files(
    session: Session,
    manifest: Manifest,
    targets: Mapping[str, str],
    accepted: Sequence[str] | None = None,
) -> Sequence[Any]:
    """Files of components that are not what the steps so far were taken with.

    Args:
        session: The run.
        manifest: Its record.
        targets: Components that the user named by file or module.
        accepted: Digests of content that may be another; None for any.

    Raises:
        ConfigError: If there are others.
    """
    if not targets:
        return ()
    changed = session.host.service("core/changed-sources")
    found: Sequence[Any] = changed(session.folder, manifest.fields, targets, accepted)
    return found


def resume(
    session: Session,
    manifest: Manifest | None,
    command: Sequence[str],
    newest: Path | None,
    targets: Mapping[str, str],
) -> None:
    """Put a session where a run stopped: at its newest checkpoint, or at the first step.

    Args:
        session: The run.
        manifest: Its record; None in a process that does not write it.
        command: The command line, for the record.
        newest: The checkpoint to go on from; None for the first step.
        targets: Components that the user named by file or module, by how they are named.
    """
    if newest is None:
        session.events.message("no complete checkpoint: starting again from the first step")
        session.recorder.rewind({})
    else:
        session.events.message(f"going on from {newest}")
        _check_seen(newest, session.ranks)
        restore(session, newest)
        if session.stop_reason is not None:
            session.events.message(
                f"nothing is left to do. {session.stop_reason}; a larger eval.early_stop.patience, "
                f"or none (eval.early_stop=null), lets the run go on"
            )
    session.resumed = True
    if manifest is not None:
        _record_resumption(session, manifest, command, targets)


def _record_resumption(
    session: Session, manifest: Manifest, command: Sequence[str], targets: Mapping[str, str]
) -> None:
    changed = _changed_files(session, manifest, targets)
    for one in changed:
        session.events.message(f"{one.path} has changed: the steps from here on use it")
    sources = None
    if changed:
        sources = session.host.service("core/sources")(session.folder, targets)
    manifest.resume(
        command=command, step=session.step, sources=sources, processes=session.ranks.world
    )


def _check_seen(checkpoint_folder: Path, ranks: Ranks) -> None:
    """Refuse a checkpoint that only some machines see."""
    if not checkpoint_folder.is_dir():
        raise MachineError(
            f"process {ranks.index} does not see the checkpoint '{checkpoint_folder}'",
            where="run.dir",
            remedy="on several machines, run.dir must be a folder they share",
        )
