"""Fetches a run's folder from a store, to resume it elsewhere or to read it.

Each file is written atomically, and a checkpoint's ``COMPLETE`` last, so a partly fetched folder is
valid, with fewer checkpoints. A local file that has changed since it was sent or fetched is never
overwritten. ``run.mirror`` is removed from a fetched run: resumed here, it must not write where the
job writes.
"""

from __future__ import annotations

import contextlib
import filecmp
import hashlib
import re
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Literal

from rlvr_cluster.stores.known import Known, begins_with, hidden
from rlvr_cluster.stores.ownership import Ownership
from rlvr_core.api import ConfigError, DataError, Store, StoredFile
from rlvr_core.config.dialect import read, write
from rlvr_core.toolkit import BEST, COMPLETE, LATEST, cache_folder, load_host, write_atomic

Which = Literal["none", "last", "all"]
"""Which checkpoints to fetch; ``last`` means the newest complete one and the best one."""

RUN_FILES = frozenset({"run.json", "resolved.yaml", "config.yaml"})
"""Files that describe how a run was configured."""

_LOOKS = 5
_CHECKPOINT = re.compile(r"^checkpoints/(step\d{6,})/(.+)$")
_POINTERS = tuple(f"checkpoints/{name}" for name in (LATEST, BEST))


def runs_in(store: Store) -> list[str]:
    """List the names of the run folders in a store, oldest first by the time in their names."""
    names = [name for name in store.folders() if not name.startswith(".")]
    return sorted(names, key=lambda name: (re.findall(r"\d{8}-\d{6}", name)[-1:], name))


def choose(there: Mapping[str, StoredFile], which: Which, best: str | None) -> list[str]:
    """Return the keys to fetch.

    Args:
        there: The run's files in the store, by key.
        which: Which checkpoints.
        best: Name of the best checkpoint.
    """
    complete = sorted(
        (match[1] for key in there if (match := _CHECKPOINT.match(key)) and match[2] == COMPLETE),
        key=lambda name: int(name.removeprefix("step")),
    )
    wanted: set[str] = set()
    if which == "all":
        wanted = set(complete)
    elif which == "last":
        wanted = {*complete[-1:], *({best} & set(complete) if best else ())}
    return [
        key
        for key in there
        if key not in _POINTERS
        and not hidden(key)
        and ((match := _CHECKPOINT.match(key)) is None or match[1] in wanted)
    ]


def _listed(store: Store) -> dict[str, StoredFile]:
    """List all files, again until two listings agree, because a listing has no checksum."""
    listing = store.list()
    for _ in range(_LOOKS):
        before, listing = listing, store.list()
        if before.keys() == listing.keys():
            break
    return listing


class BothChangedError(DataError):
    """Files of a run have changed both locally and in the store since they were the same."""


class Fetch:
    """The transfer of one run from a store to a folder.

    Args:
        store: Where the run is.
        folder: Destination; files that are already there and unchanged are skipped.
        which: Which checkpoints to fetch.
        at_once: Number of files fetched concurrently.
        only: Predicate that selects keys, instead of ``which``.
        place: URI of the run in the store, so that a later fetch knows which side has changed.

    Raises:
        BothChangedError: If files have changed on both sides since they were the same.
    """

    def __init__(
        self,
        store: Store,
        folder: Path,
        which: Which = "last",
        at_once: int = 8,
        only: Callable[[str], bool] | None = None,
        place: str = "",
    ) -> None:
        self._store = store
        self._folder = folder
        self._at_once = at_once
        self._known = Known(folder, place)
        self._compared: dict[str, bool] = {}
        self._lock, self._saved = threading.Lock(), 0.0
        self._known.fetched |= not (folder / "run.json").is_file()
        there = {key: file for key, file in _listed(store).items() if not hidden(key)}
        pointers = [key for key in _POINTERS if key in there and only is None]
        self.pointers = {key: self._pointer(key) for key in pointers}
        best = self.pointers.get(f"checkpoints/{BEST}")
        keys = choose(there, which, best) if only is None else [*filter(only, there)]
        self._left = {key: there[key] for key in keys if not self._has(key, there[key])}
        self._gone = [key for key in self._known.files.keys() - there if not _CHECKPOINT.match(key)]
        if Ownership(store, self._known).from_here():  # fetch only what was lost here
            self._gone = []
            self._left = {k: f for k, f in self._left.items() if not self._path(k).exists()}
        self.changed_here = self._changed(keys)
        self._refuse_both()
        self.wanted = frozenset(keys)
        self.there = frozenset(there)

    @property
    def files(self) -> int:
        """The number of files to fetch."""
        return len(self._left)

    @property
    def size(self) -> int:
        """The size of the files to fetch, in bytes."""
        return sum(file.size for file in self._left.values())

    def run(self) -> None:
        """Fetch the files.

        Raises:
            MachineError: If the store fails; files already fetched are kept.
            DataError: If the store has a name that would lie outside of the folder.
        """
        seals = {key for key in self._left if PurePosixPath(key).name == COMPLETE}
        others = sorted(self._left.keys() - seals)
        try:
            with ThreadPoolExecutor(self._at_once) as pool:
                for _ in pool.map(self._fetch_file, others):
                    pass
            for key in sorted(seals):
                self._fetch_file(key)
            self._drop_gone()
            for key, name in self.pointers.items():
                if (self._folder / "checkpoints" / name / COMPLETE).is_file():
                    _point(self._folder / key, name)
        finally:
            self._known.save()

    def _fetch_file(self, key: str) -> None:
        path = self._path(key)
        with contextlib.suppress(FileNotFoundError):  # rotated away since it was listed
            self._store.get(key, path)
            if key == "resolved.yaml":
                _without_mirror(path)
            stat, match = path.stat(), _CHECKPOINT.match(key)
            state, whole = (stat.st_size, stat.st_mtime_ns), match is None or match[2] == COMPLETE
            with self._lock:
                self._known.note(key, self._left[key].tag, path, state, whole=whole)
                if key in RUN_FILES or time.monotonic() - self._saved > 1:
                    self._known.save()  # so that a killed fetch knows what it has fetched
                    self._saved = time.monotonic()

    def _drop_gone(self) -> None:
        """Delete fetched files that the store no longer has: segments that a resumption removed."""
        for key in self._gone:
            self._path(key).unlink(missing_ok=True)
            del self._known.files[key]

    def _changed(self, keys: list[str]) -> list[str]:
        """Return the files that have changed locally since both sides were the same."""
        keys = sorted({*keys, *self._known.files})
        return [key for key in keys if self._known.changed_here(key, self._path(key))]

    def _refuse_both(self) -> None:
        """Refuse if both sides have changed, because neither may overwrite the other."""
        there = sorted({*self._left, *self._gone} - {key for key in self._left if self._same(key)})
        if not self.changed_here or not there:
            return
        here = [key for key in self.changed_here if not (key in self._left and self._same(key))]
        if here:
            raise BothChangedError(
                f"this folder has gone on since it and the store were the same "
                f"({_few(here)}), and so has the store ({_few(there)}); nothing was fetched",
                where=str(self._folder),
                remedy=("keep both: fetch into another folder with --to DIR",),
            )

    def _same(self, key: str) -> bool:
        """Return whether the stored file contains the local one, although no record says so."""
        path, file = self._path(key), self._left[key]
        grows = key.endswith(".jsonl")
        if not path.is_file() or (path.stat().st_size != file.size and not grows):
            return False
        if (same := self._compared.get(key)) is None:
            aside = self._folder / f".{uuid.uuid4().hex}.tmp-fetch"
            try:
                self._store.get(key, aside)
                same = begins_with(aside, path) if grows else filecmp.cmp(aside, path, False)
            finally:
                aside.unlink(missing_ok=True)
            self._compared[key] = same
        return same

    def _path(self, key: str) -> Path:
        parts = PurePosixPath(key).parts
        if key.startswith("/") or ".." in parts or not parts:
            raise DataError(f"the store has a file named {key!r}, which no run writes")
        return self._folder.joinpath(*parts)

    def _has(self, key: str, file: StoredFile) -> bool:
        seen = self._known.files.get(key)
        return seen is not None and seen.tag == file.tag and self._path(key).is_file()

    def _pointer(self, key: str) -> str:
        aside = self._folder / f".{PurePosixPath(key).name}.tmp-fetch"
        try:
            self._store.get(key, aside)
            return aside.read_text(encoding="utf-8").strip()
        finally:
            aside.unlink(missing_ok=True)


def fetch_model(uri: str) -> Path | None:
    """Fetch a run's checkpoint from a store into the cache, with the run's configuration.

    Args:
        uri: ``s3://bucket/run/checkpoints/step000020``.

    Returns:
        Its folder; None if the URI does not name a checkpoint.

    Raises:
        DataError: If there is no such checkpoint.
        MachineError: If the store fails.
    """
    match = re.match(r"^(.+)/checkpoints/(step\d{6,})/?$", uri)
    if match is None:
        return None
    run = match[1]
    place = hashlib.sha256(run.encode()).hexdigest()[:16]
    folder = cache_folder() / "checkpoints" / place / run.rpartition("/")[2]
    return fetch_checkpoint(load_host().ask_store(run), folder, match[2])


def fetch_checkpoint(store: Store, folder: Path, name: str) -> Path:
    """Fetch one checkpoint, with the files that describe how its run rendered prompts.

    Args:
        store: Where the run is.
        folder: Destination folder.
        name: Name of the checkpoint.

    Raises:
        DataError: If there is no such checkpoint.
        MachineError: If the store fails.
    """
    there = f"checkpoints/{name}/"
    fetch = Fetch(store, folder, only=lambda key: key in RUN_FILES or key.startswith(there))
    if there + COMPLETE not in fetch.there:
        raise DataError(f"the store has no complete checkpoint {name} of run {folder.name}")
    fetch.run()
    return folder / "checkpoints" / name


def _without_mirror(path: Path) -> None:
    """Remove ``run.mirror`` from a run's configuration."""
    try:
        root = read(path.read_text(encoding="utf-8"), str(path))
        data = root.plain() if root is not None else None
    except (ConfigError, UnicodeDecodeError):
        return  # resuming the run reports what is wrong with it
    if isinstance(data, dict) and isinstance(data.get("run"), dict) and data["run"].get("mirror"):
        data["run"]["mirror"] = None
        write_atomic(path, write(data))


def _few(keys: Sequence[str]) -> str:
    return ", ".join(keys[:3]) + (f" and {len(keys) - 3} more" if len(keys) > 3 else "")


def _point(link: Path, name: str) -> None:
    if not re.fullmatch(r"step\d{6,}", name):
        raise DataError(f"{link.name} names {name!r}, which is no checkpoint")
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(name)
