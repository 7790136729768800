"""Tracks what a store has of a run's folder, and copies the rest.

A checkpoint's ``COMPLETE`` is copied last, after checking that all its other files arrived; so a
checkpoint in the store is complete or absent, as on disk.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from rlvr_cluster.stores.known import Known, hidden
from rlvr_cluster.stores.ownership import OwnedPlace
from rlvr_core.api import RefusedError
from rlvr_core.record.checkpoints import pointed_at
from rlvr_core.toolkit import BEST, COMPLETE, LATEST, whole_lines

CHECKPOINTS = "checkpoints/"

_STEP = re.compile(r"^checkpoints/(step\d{6,})/")
_SEGMENT = re.compile(r"^(.+)\.\d{4,}\.jsonl(?:\.gz)?$")
_GROWING = ".jsonl"
_REPAIRS = 3


@dataclass(slots=True)
class Behind:
    """The files that a mirror has not copied yet.

    Attributes:
        checkpoints: Names of the complete checkpoints that the store lacks.
        files: Keys of the other files that it lacks or has in an older state.
    """

    checkpoints: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.checkpoints or self.files)

    def __str__(self) -> str:
        parts = [f"checkpoint {name}" for name in self.checkpoints]
        return ", ".join([*parts, *self.files[:5], *(["…"] if len(self.files) > 5 else [])])


class FolderCopy:
    """The copy of a run's folder in a store.

    Args:
        place: The place to copy to, owned by this process.
        folder: The run's folder.
        keep: How many of the newest checkpoints the store keeps, beside the best one.
        known: The folder's record of the place.
    """

    def __init__(self, place: OwnedPlace, folder: Path, keep: int, known: Known) -> None:
        self._place = place
        self._folder = folder
        self._keep = keep
        self._files_known = known
        self._sent: dict[str, tuple[int, int, int]] = {}
        self._pointed: dict[str, str] = {}
        self._sealed: dict[str, str] = {}
        self._arrived: dict[str, set[str]] = {}
        self._aside = folder / ".mirror"
        self._known = False

    def update(self, *, everything: bool) -> None:
        """Copy new content.

        Args:
            everything: Whether to also delete obsolete files in the store, and to send again files
                that have changed there.

        Raises:
            RefusedError: If the folder is gone; the store then keeps what it has.
            RlvrError: If the store fails.
        """
        self._check_folder()
        self._learn()
        try:
            self._round(everything=everything)
            for _ in range(_REPAIRS if everything else 0):
                if not self._repair():
                    break
                self._round(everything=True)
        finally:
            self._files_known.save()

    def _round(self, *, everything: bool) -> None:
        # first the files that a checkpoint refers to by their length in bytes. A checkpoint
        # finished meanwhile may refer to more bytes than were copied: it is left to the next round
        complete = self._complete()
        self._copy_files()
        sent = everything and self._take_away()
        # newest first: an older one may be obsolete by the time it has been copied
        for name, seal in reversed(complete):
            if self._sealed.get(name) != seal:
                sent = sent or self._take_away()
                self._copy_checkpoint(name, seal)
        if sent:
            self._copy_pointers()
            self._rotate()

    def _check_folder(self) -> None:
        """Raise if the run's folder is gone, so that its absence deletes nothing in the store.

        Called again between listing and deleting, because the folder may be deleted meanwhile.
        """
        if not (self._folder / "run.json").is_file():
            raise RefusedError(
                f"the run's folder {self._folder} has been deleted or moved; the store keeps what "
                "it has of the run",
                remedy="continue from there: rlvr jobs fetch, then rlvr run --resume",
            )

    def _repair(self) -> bool:
        """Forget sent files that have changed in the store; return whether there are any."""
        wrong = self._place.altered()
        for key in wrong:
            self._sent.pop(key, None)
            self._pointed.pop(PurePosixPath(key).name, None)
            if match := _STEP.match(key):
                self._sealed.pop(match[1], None)
                self._arrived.clear()
        return bool(wrong)

    def behind(self) -> Behind:
        """Return what the store lacks, as far as this process knows."""
        behind = Behind()
        for name, seal in self._complete():
            if self._sealed.get(name) != seal:
                behind.checkpoints.append(name)
        for key, path in self._files():
            with contextlib.suppress(FileNotFoundError):
                if self._sent.get(key) != _state(path):
                    behind.files.append(key)
        return behind

    def _learn(self) -> None:
        """Read, once, what the store already has of this folder."""
        if self._known:
            return
        shutil.rmtree(self._aside, ignore_errors=True)
        there = self._place.learn(self._files_known)
        for name, seal in self._complete():
            key = f"{CHECKPOINTS}{name}/{COMPLETE}"
            if key in there and self._seal_of(key) == seal:
                self._sealed[name] = seal
        for key, path in self._files():
            seen = self._files_known.files.get(key)
            if seen is not None and there.get(key) == seen.tag:
                with contextlib.suppress(FileNotFoundError):
                    state = _state(path)
                    if state[:2] == (seen.size, seen.mtime_ns):
                        self._sent[key] = state
        self._known = True

    def _seal_of(self, key: str) -> str:
        aside = self._folder / f".{COMPLETE}.tmp-mirror"
        try:
            self._place.store.get(key, aside)
            return _digest(aside)
        finally:
            aside.unlink(missing_ok=True)

    def _copy_files(self) -> None:
        """Copy the run's other files; growing ones up to their last complete line."""
        for key, path in self._files():
            with contextlib.suppress(FileNotFoundError):  # closed and compressed meanwhile
                state = _state(path)
                if self._sent.get(key) != state:
                    size = whole_lines(path) if key.endswith(_GROWING) else None
                    tag = self._place.put(path, key, size)
                    self._sent[key] = state
                    whole = size in (None, state[0]) and state == _state(path)
                    self._files_known.note(key, tag, path, state[:2], whole=whole)

    def _copy_checkpoint(self, name: str, seal: str) -> None:
        """Copy a checkpoint; hard links keep its files if it is rotated away meanwhile."""
        there, arrived = f"{CHECKPOINTS}{name}/", self._arrived.setdefault(seal, set())
        try:
            local = _linked(self._folder / CHECKPOINTS / name, self._aside / name)
            if _digest(local / COMPLETE) != seal:
                return  # rewritten meanwhile: left to the next round
            names = sorted(json.loads((local / COMPLETE).read_bytes())["files"])
            if not arrived:  # a seal from an interrupted attempt, or from before a resumption
                self._place.delete([f"{there}{COMPLETE}"])
            for file in names:
                if file not in arrived:
                    self._send(local / file, there + file)
                    arrived.add(file)
            self._send(local / COMPLETE, f"{there}{COMPLETE}")
        except FileNotFoundError:
            self._check_folder()
            # rotated away before it was linked: there are newer ones
            self._place.delete(list(self._place.store.list(there)))
            return
        finally:
            shutil.rmtree(self._aside, ignore_errors=True)
        wanted = {there + file for file in (*names, COMPLETE)}
        others = self._place.store.list(there).keys() - wanted
        self._place.delete(sorted(others))
        self._sealed[name] = seal
        del self._arrived[seal]

    def _send(self, path: Path, key: str) -> None:
        """Send a file of a checkpoint."""
        state, tag = _state(path)[:2], self._place.put(path, key)
        self._files_known.note(key, tag, path, state, whole=path.name == COMPLETE)

    def _copy_pointers(self) -> None:
        for pointer in (LATEST, BEST):
            target = pointed_at(self._folder / CHECKPOINTS / pointer)
            if target is None:
                continue
            if target not in self._sealed or self._pointed.get(pointer) == target:
                continue
            aside = self._folder / f".{pointer}.tmp-mirror"
            try:
                aside.write_text(target + "\n", encoding="utf-8")
                self._place.put(aside, CHECKPOINTS + pointer)
            finally:
                aside.unlink(missing_ok=True)
            self._pointed[pointer] = target

    def _rotate(self) -> None:
        """Delete old checkpoints in the store, except the newest ``keep`` and the best one."""
        there = self._place.store.list(CHECKPOINTS)
        held: dict[str, list[str]] = {}
        for key in there:
            match = _STEP.match(key)
            if match:
                held.setdefault(match[1], []).append(key)
        complete = [name for name in held if f"{CHECKPOINTS}{name}/{COMPLETE}" in there]
        newest = sorted(complete, key=_number, reverse=True)[: self._keep]
        best = pointed_at(self._folder / CHECKPOINTS / BEST) or self._pointed.get(BEST)
        local = {name for name, _ in self._complete()}
        self._check_folder()
        for name in held.keys() - {*newest, best} - local:
            seal = f"{CHECKPOINTS}{name}/{COMPLETE}"
            # the seal first, so that a half-deleted checkpoint never looks complete
            self._place.delete([seal])
            self._place.delete([key for key in held[name] if key != seal])
            self._sealed.pop(name, None)
            for key in held[name]:
                self._files_known.files.pop(key, None)

    def _take_away(self) -> bool:
        """Delete segments of streams that a resumption has removed or that were compressed.

        A run deletes no other records; any other missing file was deleted by the user. The stream
        itself must still exist, because the whole folder may be being deleted.
        """
        here = {key for key, _ in self._files()}
        there = [key for key in self._place.store.list() if not hidden(key)]
        gone = [
            key
            for key in there
            if key not in here and (match := _SEGMENT.match(key)) and f"{match[1]}.jsonl" in here
        ]
        self._check_folder()
        self._place.delete(gone)
        for key in gone:
            self._files_known.files.pop(key, None)
        return True

    def _complete(self) -> list[tuple[str, str]]:
        """Return name and seal of each complete local checkpoint, oldest first."""
        complete = []
        for path in (self._folder / CHECKPOINTS).glob("step*"):
            if path.is_symlink() or not re.fullmatch(r"step\d{6,}", path.name):
                continue
            with contextlib.suppress(FileNotFoundError):
                complete.append((path.name, _digest(path / COMPLETE)))
        return sorted(complete, key=lambda checkpoint: _number(checkpoint[0]))

    def _files(self) -> Iterator[tuple[str, Path]]:
        """Yield key and path of each file outside checkpoints; ``run.json`` (outcome) last."""
        last = []
        for path in sorted(self._walk()):
            key = path.relative_to(self._folder).as_posix()
            if path.is_symlink() or not path.is_file():
                continue
            if key == "run.json":
                last.append((key, path))
            else:
                yield key, path
        yield from last

    def _walk(self) -> Iterator[Path]:
        """Yield the files in the folder, except checkpoints and hidden files.

        Does not use ``rglob``, which fails if a folder disappears before it is entered.
        """
        for root, folders, names in os.walk(self._folder):
            at_top = Path(root) == self._folder
            skipped = {CHECKPOINTS[:-1]} if at_top else set()
            folders[:] = [x for x in folders if not x.startswith(".") and x not in skipped]
            yield from (Path(root, name) for name in names if not name.startswith("."))


def _linked(folder: Path, aside: Path) -> Path:
    """Create a folder of hard links to the same files, which outlives the original.

    Raises:
        FileNotFoundError: If it is being deleted already.
    """
    shutil.rmtree(aside, ignore_errors=True)
    try:
        for path in folder.rglob("*"):
            if path.is_file():
                target = aside / path.relative_to(folder)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.hardlink_to(path)
    except FileNotFoundError:
        raise
    except OSError:  # without hard links, copying must be fast enough
        return folder
    return aside


def _state(path: Path) -> tuple[int, int, int]:
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns, stat.st_ino


def step_of(key: str) -> int:
    """Return the step of the checkpoint that a key belongs to; 0 for other keys."""
    match = _STEP.match(key)
    return _number(match[1]) if match else 0


def _number(name: str) -> int:
    return int(name.removeprefix("step"))


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
