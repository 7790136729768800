"""Writes a run's ``run.json``: records of its start, and its warnings."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlvr_core.api import ConfigError
from rlvr_core.api.components import RunObserver
from rlvr_core.api.launching import RunMirror
from rlvr_core.record.manifest import Manifest
from rlvr_core.record.metrics import run_glossary
from rlvr_core.record.recorder import NullRecorder, Recorder
from rlvr_core.record.rundir import RunFolder
from rlvr_core.run.events import plugin_hooks

if TYPE_CHECKING:
    from rlvr_core.api import GroupsScored, RunStarted, StepFinished, Tracker
    from rlvr_core.parallel.ranks import Ranks
    from rlvr_core.run.events import Guards, RunEvents
    from rlvr_core.run.inputs import Inputs

MOST = 200
"""Warnings that are kept of a run: one whose text has counts in it may come in each step."""
_WARNING = re.compile(r"(?:warning|note): ")
_SOURCE = re.compile(r"((?:guard |preflight )?[\w./#-]+(?: '[^']*'| \w+)?): (.+)", re.DOTALL)


class Warned(RunObserver):
    """Records each message that begins with ``warning:`` or ``note:``, equal ones once.

    Args:
        manifest: The run's ``run.json``; of a resumed run it has the earlier warnings.
    """

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._kept = list(manifest.fields.get("warnings") or [])
        self._known = {(kept["id"], kept["text"]) for kept in self._kept}
        self._step: int | None = None

    def message(self, text: str) -> None:
        """Record a message if it is a warning."""
        self.record([text])

    def record(self, lines: Iterable[str]) -> None:
        """Record those of these lines that are warnings."""
        before = len(self._kept)
        for line in lines:
            begin = _WARNING.match(line)
            if begin is None or len(self._kept) >= MOST:
                continue
            named = _SOURCE.match(line, begin.end())
            source, text = named.groups() if named else ("run", line[begin.end() :])
            if (source, text) not in self._known:
                self._known.add((source, text))
                self._kept.append({"id": source, "step": self._step, "text": text})
        if len(self._kept) > before:
            self._manifest.update(warnings=list(self._kept))

    def run_started(self, event: RunStarted) -> None:
        """Set the step that a resumed run continues with."""
        self._step = event.step if event.resumed else None

    def groups_scored(self, event: GroupsScored) -> None:
        """Take the step."""
        self._step = event.step

    def step_finished(self, event: StepFinished) -> None:
        """Take the step."""
        self._step = event.step


@contextlib.contextmanager
def recording(
    inputs: Inputs,
    folder: RunFolder | None,
    command: Sequence[str],
    ranks: Ranks,
    events: RunEvents,
    guards: Guards,
    trackers: Mapping[str, Tracker],
    reporting: Sequence[object],
) -> Iterator[tuple[RunFolder, Recorder | NullRecorder, Manifest | None]]:
    """Open the run's folder, and subscribe everything that observes the run.

    Args:
        inputs: What the run begins with.
        folder: The folder of a run to resume; None to create one.
        command: The command line, for the record.
        ranks: The processes of the run; only the main one writes.
        events: The run's events.
        guards: Its guards.
        trackers: Its trackers, by name.
        reporting: Parts that report metrics and are no configured component.

    Yields:
        The folder, its recorder, and its manifest; the manifest is None in a process that does not
        write it.
    """
    fresh, mirror = folder is None, _mirror(inputs, events)
    folder = folder or ranks.on_main(lambda: _new_folder(inputs))
    if not ranks.main:
        events.subscribe(guards)
        yield folder, NullRecorder(), None
        return
    with contextlib.ExitStack() as stack:
        if mirror is not None:
            stack.enter_context(mirror.copying(folder.path, fresh=fresh))
        components = {component.cls for component in inputs.resolved.components.values()}
        components |= {*map(type, reporting), *map(type, guards.guards.values())}
        recorder = stack.enter_context(Recorder(folder, glossary=run_glossary(*components)))
        manifest = _manifest(inputs, folder, command, ranks)
        if inputs.config.run.identity or inputs.data_reports or guards.guards:
            _record_start(inputs, manifest, events, fresh=fresh)
        if trackers:
            from rlvr_core.record.trackers.tracking import Tracking

            tracking = Tracking(trackers, events.message)
            stack.callback(tracking.close)  # closed before the mirror copies the rest
            events.subscribe(tracking)
        events.subscribe(plugin_hooks(inputs.resolved.host))
        events.subscribe(guards)
        if mirror is not None:
            events.subscribe(mirror)
        yield folder, recorder, manifest


def _mirror(inputs: Inputs, events: RunEvents) -> RunMirror | None:
    config, host = inputs.config, inputs.resolved.host
    if config.run.mirror is None:
        return None
    return host.provide(
        "mirror_run",
        RunMirror,
        "run.mirror",
        "cluster",
        {
            "uri": config.run.mirror,
            "open_store": host.ask_store,
            "keep": config.checkpoint.keep,
            "say": events.message,
        },
    )


def _new_folder(inputs: Inputs) -> RunFolder:
    resolved, section = inputs.resolved, inputs.config.run
    root = resolved.host.locate_run() or Path(section.dir)
    return RunFolder.create(
        root, section.name, config_text=resolved.loaded.text, resolved=resolved.dump()
    )


def _record_start(inputs: Inputs, manifest: Manifest, events: RunEvents, *, fresh: bool) -> None:
    """Record what is known before the first step, and from then on each warning.

    Raises:
        ConfigError: If a resumed run has another model, tokenizer or verifier, or other prompts.
    """
    if inputs.data_reports:
        manifest.update(checks={each.name: dict(each.record) for each in inputs.data_reports})
    warned = Warned(manifest)
    warned.record([*inputs.lines, *(x for each in inputs.data_reports for x in each.lines)])
    events.subscribe(warned)
    if inputs.config.run.identity:
        from rlvr_core.run.identity import identify

        identify(inputs, manifest, events.message, fresh=fresh)


def _manifest(inputs: Inputs, folder: RunFolder, command: Sequence[str], ranks: Ranks) -> Manifest:
    """Open the run's manifest, or start one with plugins, data, checkout and sources.

    Raises:
        ConfigError: If the run was started with different data.
    """
    if folder.manifest.exists():
        manifest = Manifest.read(folder)
        if manifest.fields["data"] != inputs.fingerprints:
            raise ConfigError(
                "the data are not those the run began with: problems were added, taken out or "
                "changed",
                where=str(folder.path),
                remedy="put them back to go on, or start a new run",
            )
        return manifest
    host, here = inputs.resolved.host, Path.cwd()
    git, targets = None, inputs.resolved.sources(inputs.problems.values())
    if "GIT_DIR" in os.environ or any((each / ".git").exists() for each in (here, *here.parents)):
        from rlvr_core.record.provenance.checkout import save_patches

        git = save_patches(folder, here)
    sources = None
    if targets:  # only of components that the user named by file or module
        from rlvr_core.record.provenance.sources import save_sources

        sources = save_sources(folder, targets)
    return Manifest.start(
        folder,
        name=inputs.config.run.name,
        command=command,
        plugins=host.plugin_versions(),
        data=inputs.fingerprints,
        git=git,
        sources=sources,
        processes=ranks.world,
    )
