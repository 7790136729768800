"""A run's checkpoints on disk, each complete or absent.

A checkpoint is written under a temporary name, flushed, sealed with ``COMPLETE`` (checksums of
every file), and only then renamed. A kill at any moment therefore leaves the older checkpoints
intact.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from rlvr_core.api import RlvrError, RunError
from rlvr_core.record.files import is_full, sync_file, sync_folder, write_atomic, write_failed

COMPLETE = "COMPLETE"
LATEST = "latest"
BEST = "best"

_STEP = re.compile(r"^step(\d{6,})$")
_ASIDE = re.compile(r"^\.old-(step\d{6,})$")


class CheckpointStore:
    """The folder ``checkpoints/`` of one run, written by a single process.

    Args:
        folder: The folder; created if missing.
        keep: Number of newest complete checkpoints to keep.
        pinned: Steps whose checkpoints are kept regardless of age.
    """

    def __init__(self, folder: Path, keep: int, pinned: Collection[int] = ()) -> None:
        assert keep >= 1, "a store keeps at least the newest checkpoint"
        self.folder = folder
        self.keep = keep
        self.pinned = pinned
        self._broken: set[int] = set()

    def write(
        self,
        step: int,
        fill: Callable[[Path], None],
        *,
        best: bool = False,
        known: Mapping[str, Any] | None = None,
    ) -> Path:
        """Write the checkpoint of a step, point ``latest`` at it and delete old ones.

        Args:
            step: Number of steps done.
            fill: Writes the content into an empty folder.
            best: Also point ``best`` at it, and pin it in place of the previous best.
            known: Fingerprints of files by name, of which ``fill`` may make some: they have to be
                there, and are not read again.

        Returns:
            The complete checkpoint, ``step000020`` for step 20.

        Raises:
            RunError: If it cannot be written; older checkpoints are then unchanged.
        """
        target = self.folder / f"step{step:06d}"
        temporary = self.folder / f".tmp-{target.name}-{os.getpid()}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._tidy()
            temporary.mkdir()
            fill(temporary)
            _check_index(temporary)
            _seal(temporary, step, known or {})
            self._put_in_place(temporary, target)
        except BaseException as error:
            shutil.rmtree(temporary, ignore_errors=True)
            self._recover()
            if isinstance(error, RlvrError) or not isinstance(error, Exception):
                raise
            raise self._failure(error, target) from error
        self._broken.discard(step)
        try:
            self._point(LATEST, target.name)
            if best:
                self._point(BEST, target.name)
                self.pinned = {step}
            self._rotate(step)
        except OSError as error:
            raise write_failed(error, self.folder) from error
        return target

    def newest(self, say: Callable[[str], None]) -> Path | None:
        """Return the newest checkpoint whose files match their checksums; None if there is none.

        Args:
            say: Called with a sentence for each newer checkpoint that is skipped, and the reason.

        Returns:
            Its folder, or None.
        """
        self._recover()
        for step, path in self._steps():
            wrong = verify(path)
            if wrong is None:
                self._broken.discard(step)
                return path
            self._broken.add(step)
            say(f"warning: checkpoint {path.name} is passed over: {wrong}")
        return None

    def complete(self) -> list[Path]:
        """List complete checkpoints, newest first, checking file sizes but not content."""
        return [
            path
            for step, path in self._steps()
            if step not in self._broken and verify(path, content=False) is None
        ]

    def best(self) -> Path | None:
        """Return the complete checkpoint that ``best`` points at; None if there is none."""
        name = pointed_at(self.folder / BEST)
        return next((path for path in self.complete() if path.name == name), None)

    def _steps(self) -> list[tuple[int, Path]]:
        there = self.folder.iterdir() if self.folder.is_dir() else ()
        matches = ((_STEP.match(path.name), path) for path in there)
        steps = [(int(match[1]), path) for match, path in matches if match and path.is_dir()]
        return sorted(steps, reverse=True)

    def _put_in_place(self, temporary: Path, target: Path) -> None:
        aside = self.folder / f".old-{target.name}"
        if target.exists():  # a resumed run writes this step again
            target.rename(aside)
        temporary.rename(target)
        sync_folder(self.folder)
        shutil.rmtree(aside, ignore_errors=True)

    def _recover(self) -> None:
        """Undo a replacement that was interrupted between its two renames."""
        if not self.folder.is_dir():
            return
        for path in list(self.folder.iterdir()):
            match = _ASIDE.match(path.name)
            if match and not (self.folder / match[1]).exists():
                path.rename(self.folder / match[1])

    def _tidy(self) -> None:
        """Delete leftovers of killed writers; only one process writes here."""
        self._recover()
        for path in list(self.folder.iterdir()):
            if path.name.startswith(".tmp-") or _ASIDE.match(path.name):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)

    def _point(self, link: str, name: str) -> None:
        pointer = self.folder / link
        temporary = self.folder / f".tmp-{link}-{os.getpid()}"
        temporary.unlink(missing_ok=True)
        if pointer.is_dir() and not pointer.is_symlink():
            shutil.rmtree(pointer)  # a copy made by a tool that followed the link
        try:
            temporary.symlink_to(name)
        except OSError as error:
            if is_full(error):
                raise
            write_atomic(pointer, name + "\n")  # the file system has no links
        else:
            temporary.replace(pointer)
            sync_folder(self.folder)

    def _rotate(self, written: int) -> None:
        """Delete all but the newest complete checkpoints, the one just written, and pinned ones."""
        complete = [int(path.name.removeprefix("step")) for path in self.complete()]
        others = [step for step in complete if step != written]
        kept = {written, *others[: self.keep - 1]}
        oldest = min(kept)
        for step, path in self._steps():
            damaged = step not in complete and step > oldest
            if step not in kept and step not in self.pinned and not damaged:
                _remove(path)
        sync_folder(self.folder)

    def _failure(self, error: Exception, target: Path) -> RunError:
        what, remedy = f"{type(error).__name__}: {error}", tuple[str, ...]()
        if is_full(error) or isinstance(error, OSError):
            complaint = write_failed(error, target).complaints[0]
            what, remedy = complaint.what, complaint.remedy
        good = next(iter(self.complete()), None)
        left = f"the last good checkpoint is {good}" if good else "there is no earlier checkpoint"
        return RunError(
            f"the checkpoint could not be written: {what}",
            where=str(target),
            remedy=(left, *remedy),
        )


def pointed_at(pointer: Path) -> str | None:
    """Return the name of the checkpoint that ``latest`` or ``best`` points at; None if absent.

    The pointer is a link or, if the file system has no links, a file that holds the name.
    """
    try:
        if pointer.is_symlink():
            return pointer.readlink().name
        return pointer.read_text(encoding="utf-8").strip() or None
    except OSError:
        return None


def verify(path: Path, *, content: bool = True) -> str | None:
    """Describe what is wrong with a checkpoint, in a clause; None if it is intact.

    Args:
        path: Its folder.
        content: Whether to compare checksums too, not only names and sizes.
    """
    try:
        seal = json.loads((path / COMPLETE).read_bytes())
        files: dict[str, Any] = dict(seal["files"])
        step = int(seal["step"])
        expected = {name: (int(f["size"]), str(f["sha256"])) for name, f in files.items()}
    except FileNotFoundError:
        return f"it has no {COMPLETE}, so it was never finished"
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return f"its {COMPLETE} cannot be read"
    match = _STEP.match(path.name)
    if match and int(match[1]) != step:
        return f"its {COMPLETE} belongs to step {step}"
    try:
        for name, (size, digest) in sorted(expected.items()):
            file = path / name
            if not file.is_file():
                return f"{name} is missing"
            if file.stat().st_size != size:
                return f"{name} has {file.stat().st_size} bytes, not {size}"
            if content and _sha256(file) != digest:
                return f"the content of {name} has changed (checksum)"
    except OSError as error:
        return f"it cannot be read: {error}"
    return None


def file_fingerprint(file: Path) -> dict[str, Any]:
    """Flush a file to disk, and return its size and checksum for ``COMPLETE``."""
    sync_file(file)
    return {"size": file.stat().st_size, "sha256": _sha256(file)}


def _seal(folder: Path, step: int, known: Mapping[str, Any]) -> None:
    files = dict(known)
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_dir():
            sync_folder(path)
        elif name not in files:
            files[name] = file_fingerprint(path)
    sync_folder(folder)
    seal = {"format": 1, "step": step, "files": files}
    write_atomic(folder / COMPLETE, json.dumps(seal, indent=1) + "\n")
    if wrong := verify(folder, content=False):
        raise ValueError(wrong)


def _check_index(folder: Path) -> None:
    """Check that a weight index names only existing files, as other programs require."""
    for index in folder.glob("*.safetensors.index.json"):
        shards = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        missing = sorted(shard for shard in shards if not (folder / shard).is_file())
        if missing:
            raise ValueError(f"{index.name} names {missing[0]}, which was not written")


def _remove(path: Path) -> None:
    """Delete a checkpoint, its seal first, so that a half-deleted one never looks complete."""
    (path / COMPLETE).unlink(missing_ok=True)
    shutil.rmtree(path, ignore_errors=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
