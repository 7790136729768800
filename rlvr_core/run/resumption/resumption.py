"""Finds the step at which a resumed run continues, and refuses unfit checkpoints."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr_core.api import ConfigError, MachineError, RunError
from rlvr_core.config.resolve import resolve_file
from rlvr_core.run.checkpointing import restore
from rlvr_core.run.resumption.chosen import ROUNDED_KEYS, changed_values
from rlvr_core.run.resumption.kept import keep_records

if TYPE_CHECKING:
    from rlvr_core.api import Problem
    from rlvr_core.config.resolve import Resolved
    from rlvr_core.record.manifest import Manifest
    from rlvr_core.run.session import Session


class Resumption:
    """Puts a session at the newest complete checkpoint of its run, or at the first step.

    To build one is a collective.

    Args:
        session: The run.
        manifest: Its record; None in a process that does not write it.
        resolved: The configuration that the run goes on with.
        problems: Its training problems.

    Raises:
        ConfigError: If the run has gone further than ``train.steps``, or files of its components
            have changed and ``run.accept_changed`` does not name what they are now.
        RunError: If the run has finished and nothing is left to go on from.
    """

    def __init__(
        self,
        session: Session,
        manifest: Manifest | None,
        resolved: Resolved,
        problems: Iterable[Problem],
    ) -> None:
        self._session = session
        self._manifest = manifest
        self._resolved = resolved
        # components that the user named by file or module, by how they are named
        self._targets = resolved.sources(problems)
        self._changes: dict[str, list[Any]] = {}
        self._newest: Path | None = session.ranks.on_main(self._checkpoint)

    def _checkpoint(self) -> Path | None:
        session, manifest = self._session, self._manifest
        assert manifest is not None, "rank 0 decides"
        # the configuration of the steps so far
        stored = resolve_file(session.folder.resolved, [], self._resolved.host)
        self._changes = changed_values(stored.dump(), self._resolved.dump())
        newest = session.checkpoints.newest(session.events.message)
        where = str(session.folder.path)
        if newest is None:
            if manifest.fields.get("outcome") in ("finished", "stopped"):
                raise RunError(
                    "the run has finished, and its checkpoints are gone: nothing to continue from",
                    where=where,
                    remedy="start a new run",
                )
            return None
        state = json.loads((newest / "trainer" / "state.json").read_text(encoding="utf-8"))
        taken, planned = int(state["step"]), session.config.train.steps
        if taken > planned:
            raise ConfigError(
                f"train.steps is {planned}, and the run has already taken {taken}",
                where=where,
                remedy=f"set train.steps to more than {taken} to go on",
            )
        if taken == planned:
            session.events.message("the run has taken all its steps: nothing is left to do")
        self._changed_files(manifest, session.config.run.accept_changed)
        return newest

    def go_on(self, command: Sequence[str]) -> None:
        """Put the session at the chosen checkpoint, or at the first step.

        Args:
            command: The command line, for the record.

        Raises:
            MachineError: If this process does not see the checkpoint.
        """
        session, newest, manifest = self._session, self._newest, self._manifest
        if session.ranks.main:  # e.g. with more steps: recorded for the next resumption
            session.folder.configure(self._resolved.dump())
        if newest is None:
            session.events.message("no complete checkpoint: starting again from the first step")
            if manifest is not None:
                keep_records(session.folder.path, session.events.message)
            session.recorder.rewind({})
        else:
            session.events.message(f"going on from {newest}")
            if not newest.is_dir():
                raise MachineError(
                    f"process {session.ranks.index} does not see the checkpoint '{newest}'",
                    where="run.dir",
                    remedy="on several machines, run.dir must be a folder they share",
                )
            restore(session, newest)
            if session.stop_reason is not None:
                session.events.message(
                    f"nothing is left to do. {session.stop_reason}; a larger "
                    f"eval.early_stop.patience, or none (eval.early_stop=null), lets the run go on"
                )
        session.resumed = True
        if manifest is not None:
            self._record(manifest, command)

    def _changed_files(
        self, manifest: Manifest, accepted: Sequence[str] | None = None
    ) -> Sequence[Any]:
        """Files of components that are not what the steps so far were taken with.

        Args:
            manifest: The run's record.
            accepted: Digests of content that may be another; None for any.

        Raises:
            ConfigError: If there are others.
        """
        if not self._targets:
            return ()
        from rlvr_core.record.provenance.sources import changed

        return changed(self._session.folder, manifest.fields, self._targets, accepted)

    def _record(self, manifest: Manifest, command: Sequence[str]) -> None:
        """Note the resumption in ``run.json``, with the sources as they are now if they changed."""
        session, sources = self._session, None
        changed = self._changed_files(manifest)
        for file in changed:
            what = f"{file.path} has changed: the steps from here on use it"
            session.events.message(f"warning: {what}")
        if changed:
            from rlvr_core.record.provenance.sources import save_sources

            sources = save_sources(session.folder, self._targets)
        self._say_changes()
        manifest.resume(
            command=command,
            step=session.step,
            sources=sources,
            processes=session.ranks.world,
            config=self._changes,
        )

    def _say_changes(self) -> None:
        """Say which values of the configuration are others from here on."""
        say = self._session.events.message
        for key, (before, now) in self._changes.items():
            say(f"from step {self._session.step} on, {key} is {now!r}; it was {before!r}")
        rounded = [key for key in self._changes if key.startswith(ROUNDED_KEYS)]
        if rounded:
            say(
                f"note: with another {', '.join(rounded)} the run is no longer the same bit for bit"
            )
