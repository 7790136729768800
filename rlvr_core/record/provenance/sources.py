"""Source files of components that a config names by file or module, kept in the run's record."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlvr_core.api import Complaint, ConfigError, Json
from rlvr_core.record.files import write_atomic
from rlvr_core.record.provenance.user_files import siblings, source_of
from rlvr_core.record.rundir import RunFolder
from rlvr_core.record.text import Redactor


def save_sources(folder: RunFolder, targets: Mapping[str, str]) -> dict[str, Json]:
    """Keep the sources in ``patches/`` and describe them for ``run.json``.

    Args:
        folder: The run's folder.
        targets: Where each component is imported from (``module:name``), by how the config names
            it.

    Returns:
        By that name: the file's path, the SHA-256 of what was imported and of each file beside it
        that it imports, and the name of its copy in ``patches/``.
    """
    records: dict[str, Json] = {}
    for use, target in sorted(targets.items()):
        source = source_of(use, target)
        if source is not None:
            records[use] = _save(folder, *source)
    return records


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """A file of a component that is not what it was when the run last took steps.

    Attributes:
        path: The file.
        sha256: Of its content today.
        copy: Name in ``patches/`` of a copy of what it was; None of a file beside the component's.
    """

    path: str
    sha256: str
    copy: str | None


def changed(
    folder: RunFolder,
    fields: Mapping[str, Json],
    targets: Mapping[str, str],
    accepted: Sequence[str] | None,
) -> list[ChangedFile]:
    """Files that are not what they were; a component that is new to the run has none.

    Args:
        folder: The run's folder.
        fields: Those of ``run.json``.
        targets: See ``save_sources``.
        accepted: What the SHA-256 of a file begins with that may be another; None for any.

    Raises:
        ConfigError: If there are others.
    """
    before: dict[str, Json] = dict(fields.get("sources") or {})
    for resumption in fields.get("resumed") or ():
        before |= resumption.get("sources") or {}
    changes: dict[str, ChangedFile] = {}
    for use, target in sorted(targets.items()):
        source = source_of(use, target)
        old = before.get(use)
        if source is None or old is None:
            continue
        path, content = source
        earlier = {str(path): old["sha256"], **old["beside"]}
        for file, digest in _digests(path, content).items():
            if digest != earlier.get(file):
                copy = old["copy"] if file == str(path) else None
                changes[file] = ChangedFile(file, digest, copy)
    if accepted is not None:
        _refuse(folder, changes.values(), accepted)
    return list(changes.values())


def _refuse(folder: RunFolder, changes: Iterable[ChangedFile], accepted: Sequence[str]) -> None:
    refused = [file for file in changes if not file.sha256.startswith(tuple(accepted))]
    if not refused:
        return
    digests = ", ".join([*accepted, *(file.sha256[:8] for file in refused)])
    go_on = f"to go on with what is there now: --set 'run.accept_changed=[{digests}]'"
    complaints = []
    for file in refused:
        copy = f": {folder.patches / file.copy} has it" if file.copy else ""
        what = f"{file.path} has changed since the run began"
        complaints.append(Complaint(what, file.path, (f"put it back as it was{copy}", go_on)))
    raise ConfigError.collect(complaints)


def _save(folder: RunFolder, path: Path, content: bytes) -> dict[str, Json]:
    digests = _digests(path, content)
    digest = digests.pop(str(path))
    copy = f"{path.stem}-{digest[:8]}.py"
    folder.patches.mkdir(exist_ok=True)
    text = content.decode("utf-8", "backslashreplace")
    write_atomic(folder.patches / copy, Redactor().patch(text))
    return {"path": str(path), "sha256": digest, "beside": digests, "copy": copy}


def _digests(path: Path, content: bytes) -> dict[str, str]:
    """Return the SHA-256 of a component's file, and of those beside it that it imports."""
    digests = {str(path): hashlib.sha256(content).hexdigest()}
    for file in siblings(path):
        with contextlib.suppress(OSError):  # taken away since it was imported
            digests[str(file)] = hashlib.sha256(file.read_bytes()).hexdigest()
    return digests
