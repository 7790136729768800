"""Source files of components that a config names by file or module, kept in the run's record."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlvr_core.api import Complaint, ConfigError, Json
from rlvr_core.record.files import write_atomic
from rlvr_core.record.provenance.checkout import changes, git
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
        By that name: the file's path, the SHA-256 of what was imported, its state in git
        (``clean``, ``changed``, ``untracked`` or None outside a checkout), the SHA-256 of each
        file beside it that it imports, and the names of the copy and of the diff in ``patches/``.
    """
    found: dict[str, Json] = {}
    for use, target in sorted(targets.items()):
        source = source_of(use, target)
        if source is not None:
            found[use] = _save(folder, *source)
    return found


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
    found: dict[str, ChangedFile] = {}
    for use, target in sorted(targets.items()):
        source = source_of(use, target)
        old = before.get(use)
        if source is None or old is None:
            continue
        path, content = source
        earlier = {str(path): old["sha256"], **old["beside"]}
        for one, data in [(path, content), *_beside(path)]:
            digest = hashlib.sha256(data).hexdigest()
            if digest != earlier.get(str(one)):
                copy = old["copy"] if one == path else None
                found[str(one)] = ChangedFile(str(one), digest, copy)
    if accepted is not None:
        _refuse(folder, found.values(), accepted)
    return list(found.values())


def _refuse(folder: RunFolder, found: Iterable[ChangedFile], accepted: Sequence[str]) -> None:
    refused = [one for one in found if not one.sha256.startswith(tuple(accepted))]
    digests = ", ".join([*accepted, *(one.sha256[:8] for one in refused)])
    go_on = f"to go on with what is there now: --set 'run.accept_changed=[{digests}]'"
    complaints = []
    for one in refused:
        copy = f": {folder.patches / one.copy} has it" if one.copy else ""
        remedy = (f"put it back as it was{copy}", go_on)
        what = f"{one.path} has changed since the run began"
        complaints.append(Complaint(what, one.path, remedy))
    if complaints:
        raise ConfigError.collect(complaints)


def _save(folder: RunFolder, path: Path, content: bytes) -> dict[str, Json]:
    digest = hashlib.sha256(content).hexdigest()
    stem = f"{path.stem}-{digest[:8]}"
    state, diff = _in_git(path)
    redact = Redactor()
    folder.patches.mkdir(exist_ok=True)
    record: dict[str, Json] = {
        "path": str(path),
        "sha256": digest,
        "git": state,
        "beside": {str(one): hashlib.sha256(data).hexdigest() for one, data in _beside(path)},
        "copy": f"{stem}.py",
    }
    copy = content.decode("utf-8", "backslashreplace")
    write_atomic(folder.patches / record["copy"], redact.patch(copy))
    if diff:
        record["diff"] = f"{stem}.patch"
        write_atomic(folder.patches / record["diff"], redact.patch(diff))
    return record


def _beside(path: Path) -> Iterable[tuple[Path, bytes]]:
    for one in siblings(path):
        try:
            yield one, one.read_bytes()
        except OSError:
            continue  # taken away since it was imported


def _in_git(path: Path) -> tuple[str | None, str]:
    """State of a file in its checkout, and its difference to the last commit."""
    if git(path.parent, "rev-parse", "--show-toplevel") is None:
        return None, ""
    if git(path.parent, "ls-files", "--error-unmatch", "--", path.name) is None:
        return "untracked", ""
    diff = changes(path.parent, "HEAD", "--", path.name)
    return ("changed" if diff else "clean"), diff or ""
