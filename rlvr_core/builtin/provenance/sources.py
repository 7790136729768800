"""Source files of components that a config names by file or module, kept in the run's record."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from rlvr_core.api import Json
from rlvr_core.api.services import Redactor, RunFolder, siblings, source_of, write_atomic
from rlvr_core.builtin.provenance.checkout import git


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


def changed(before: Mapping[str, Json], now: Mapping[str, Json]) -> list[str]:
    """Files that are not what they were when the run began, one line each.

    Args:
        before: ``sources`` of ``run.json``.
        now: The same of today.
    """
    lines = []
    for use, one in now.items():
        old = before.get(use)
        if old is None:
            lines.append(f"{use} is new to this run")
            continue
        parts = {one["path"]: one["sha256"], **one["beside"]}
        earlier = {one["path"]: old["sha256"], **old["beside"]}
        lines += [
            f"{path} has changed since the run began: the steps from here on use what it is now"
            for path in parts
            if parts[path] != earlier.get(path)
        ]
    return lines


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
    diff = git(path.parent, "diff", "--no-ext-diff", "--no-textconv", "HEAD", "--", path.name)
    return ("changed" if diff else "clean"), diff or ""
