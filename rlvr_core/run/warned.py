"""``warnings`` of ``run.json``: what a run warned about, before its first step and while it ran."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rlvr_core.api.components import RunObserver

if TYPE_CHECKING:
    from rlvr_core.api import GroupsScored, RunStarted, StepFinished
    from rlvr_core.record.manifest import Manifest
    from rlvr_core.run.prepare import Prepared

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
        self._known = {(one["id"], one["text"]) for one in self._kept}
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
            found = _SOURCE.match(line, begin.end())
            source, text = found.groups() if found else ("run", line[begin.end() :])
            if (source, text) not in self._known:
                self._known.add((source, text))
                self._kept.append({"id": source, "step": self._step, "text": text})
        if len(self._kept) > before:
            self._manifest.update(warnings=list(self._kept))

    def run_started(self, event: RunStarted) -> None:
        """Take the step that a resumed run goes on with."""
        self._step = event.step if event.resumed else None

    def groups_scored(self, event: GroupsScored) -> None:
        """Take the step."""
        self._step = event.step

    def step_finished(self, event: StepFinished) -> None:
        """Take the step."""
        self._step = event.step


def begin(prepared: Prepared, manifest: Manifest, events: Any, *, fresh: bool) -> None:
    """Record what is known before the first step.

    Args:
        prepared: The prepared run.
        manifest: Its ``run.json``; ``checks``, ``warnings`` and ``identity`` are written.
        events: The run's events; from now on its warnings are recorded.
        fresh: Whether the run is new.

    Raises:
        ConfigError: If a resumed run has another model, tokenizer or verifier, or other prompts.
    """
    if prepared.data_reports:
        manifest.update(checks={one.name: dict(one.record) for one in prepared.data_reports})
    warned = Warned(manifest)
    warned.record([*prepared.lines, *(x for one in prepared.data_reports for x in one.lines)])
    events.subscribe(warned)
    if prepared.config.run.identity:
        from rlvr_core.run.identity import identify

        identify(prepared, manifest, events.message, fresh=fresh)
