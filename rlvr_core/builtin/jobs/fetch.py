"""Fetches a run's folder from a store, to resume it elsewhere or to read it.

Each file is written atomically, and a checkpoint's ``COMPLETE`` last, so a partly fetched folder is
valid, with fewer checkpoints.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Literal

from rlvr_core.api import DataError, Store, StoredFile
from rlvr_core.api.services import BEST, COMPLETE, LATEST, cache_folder, load_host, write_atomic

Which = Literal["none", "last", "all"]
"""Which checkpoints to fetch; ``last`` is the newest complete one, and the best one."""

RUN_FILES = frozenset({"run.json", "resolved.yaml", "config.yaml"})
"""Files that describe how a run was configured."""

TAGS = ".fetched.json"
"""File in the run's folder with the tag of each fetched file."""

_CHECKPOINT = re.compile(r"^checkpoints/(step\d{6,})/(.+)$")
_POINTERS = tuple(f"checkpoints/{name}" for name in (LATEST, BEST))


def runs_in(store: Store) -> list[str]:
    """List the names of the run folders in a store, oldest first by the time in their names."""
    found = {key.partition("/")[0] for key in store.list() if "/" in key}
    return sorted(found, key=lambda name: (re.findall(r"\d{8}-\d{6}", name)[-1:], name))


def choose(there: Mapping[str, StoredFile], which: Which, best: str | None) -> list[str]:
    """Return the keys to fetch.

    Args:
        there: What the store has of the run, by key.
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
        and ((match := _CHECKPOINT.match(key)) is None or match[1] in wanted)
    ]


class Fetch:
    """The transfer of one run from a store to a folder.

    Args:
        store: Where the run is.
        folder: Destination; files that are already there and unchanged are skipped.
        which: Which checkpoints to fetch.
        at_once: Number of files fetched concurrently.
        only: Predicate that selects keys, instead of ``which``.
    """

    def __init__(
        self,
        store: Store,
        folder: Path,
        which: Which = "last",
        at_once: int = 8,
        only: Callable[[str], bool] | None = None,
    ) -> None:
        self._store = store
        self._folder = folder
        self._at_once = at_once
        self._tags = _read_tags(folder)
        there = store.list()
        pointers = [key for key in _POINTERS if key in there and only is None]
        self.pointers = {key: self._pointer(key) for key in pointers}
        best = self.pointers.get(f"checkpoints/{BEST}")
        keys = choose(there, which, best) if only is None else [*filter(only, there)]
        self._left = {key: there[key] for key in keys if not self._has(key, there[key])}
        self.wanted = frozenset(keys)
        self.there = frozenset(there)

    @property
    def files(self) -> int:
        """Number of files to fetch."""
        return len(self._left)

    @property
    def size(self) -> int:
        """Their size in bytes."""
        return sum(file.size for file in self._left.values())

    def run(self, told: Callable[[int], None] | None = None) -> None:
        """Fetch the files.

        Args:
            told: Called with the number of bytes received, from several threads.

        Raises:
            MachineError: If the store fails; files already fetched are kept.
            DataError: If the store has a name that would lie outside of the folder.
        """
        seals = {key for key in self._left if PurePosixPath(key).name == COMPLETE}
        others = sorted(self._left.keys() - seals)
        try:
            with ThreadPoolExecutor(self._at_once) as pool:
                for _ in pool.map(lambda key: self._one(key, told), others):
                    pass
            for key in sorted(seals):
                self._one(key, told)
            self._drop_gone()
            for key, name in self.pointers.items():
                if (self._folder / "checkpoints" / name / COMPLETE).is_file():
                    _point(self._folder / key, name)
        finally:
            if self._folder.is_dir():
                write_atomic(self._folder / TAGS, json.dumps(self._tags, indent=0) + "\n")

    def _one(self, key: str, told: Callable[[int], None] | None) -> None:
        with contextlib.suppress(FileNotFoundError):  # rotated away since it was listed
            self._store.get(key, self._path(key), told)
            self._tags[key] = self._left[key].tag

    def _drop_gone(self) -> None:
        """Delete fetched files that the store no longer has: segments that a resumption removed."""
        for key in self._tags.keys() - self.there:
            if not _CHECKPOINT.match(key):
                self._path(key).unlink(missing_ok=True)
                del self._tags[key]

    def _path(self, key: str) -> Path:
        parts = PurePosixPath(key).parts
        if key.startswith("/") or ".." in parts or not parts:
            raise DataError(f"the store has a file named {key!r}, which no run writes")
        return self._folder.joinpath(*parts)

    def _has(self, key: str, file: StoredFile) -> bool:
        path = self._path(key)
        return (
            self._tags.get(key) == file.tag and path.is_file() and path.stat().st_size == file.size
        )

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


def _read_tags(folder: Path) -> dict[str, str]:
    try:
        tags = json.loads((folder / TAGS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return tags if isinstance(tags, dict) else {}


def _point(link: Path, name: str) -> None:
    if not re.fullmatch(r"step\d{6,}", name):
        raise DataError(f"{link.name} names {name!r}, which is no checkpoint")
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(name)
