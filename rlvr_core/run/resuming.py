"""How a run that was begun before goes on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlvr_core.api import ConfigError, MachineError, RunError
from rlvr_core.parallel.ranks import Ranks
from rlvr_core.record.manifest import Manifest
from rlvr_core.run.saving import restore
from rlvr_core.run.session import Session
from rlvr_core.step import checkpoint


def checkpoint_to_go_on_from(session: Session, manifest: Manifest | None) -> Path | None:
    """The newest complete checkpoint; None to start again in the same folder.

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
    _changed_files(session, manifest, session.config.run.accept_changed)
    return newest


def _changed_files(
    session: Session, manifest: Manifest, accepted: Sequence[str] | None = None
) -> Sequence[Any]:
    """Files of components that are not what the steps so far were taken with.

    Args:
        session: The run.
        manifest: Its record.
        accepted: Digests of content that may be another; None for any.

    Raises:
        ConfigError: If there are others.
    """
    targets = session.resolved.sources(session.problems.values())
    if not targets:
        return ()
    changed = session.resolved.host.service("core/changed-sources")
    found: Sequence[Any] = changed(session.folder, manifest.fields, targets, accepted)
    return found


def resume(
    session: Session, manifest: Manifest | None, command: Sequence[str], newest: Path | None
) -> None:
    """Put a session where a run stopped: at its newest checkpoint, or at the first step."""
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
        host = session.resolved.host
        targets = session.resolved.sources(session.problems.values())
        accepted = _changed_files(session, manifest)
        for one in accepted:
            session.events.message(f"{one.path} has changed: the steps from here on use it")
        sources = host.service("core/sources")(session.folder, targets) if accepted else None
        manifest.resume(
            command=command,
            step=session.step,
            sources=sources,
            processes=session.ranks.world,
        )


def _check_seen(checkpoint_folder: Path, ranks: Ranks) -> None:
    """Refuse a checkpoint that only some machines see."""
    if not checkpoint_folder.is_dir():
        raise MachineError(
            f"process {ranks.index} does not see the checkpoint '{checkpoint_folder}'",
            where="run.dir",
            remedy="on several machines, run.dir must be a folder they share",
        )
