"""A folder as a store: ``file:///shared/runs``.

A file is renamed into place, so it is never seen half written. All processes of a machine take a
lock (``flock``) on a file in the store before they compare and write. The kernel releases the lock
of a killed process.

On a network file system this depends on its locks. They work on NFS version 4, on NFS version 3
with its lock service, mounted without ``local_lock`` or ``nolock``, and on Lustre mounted with
``flock``. Object stores mounted as folders have neither locks nor renaming. Without locks, writing
is refused.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from rlvr_core.api import ChangedError, DataError, MachineError, RefusedError, StoredFile
from rlvr_core.record.files import sync_file, sync_folder
from rlvr_core.toolkit import local_path

_LOCK = ".store.lock"
_PART = ".part-"
_FOR_GOOD = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENAMETOOLONG}
_FOR_GOOD |= {errno.ENOSPC, errno.EDQUOT}  # until someone frees space


def folder_store(uri: str) -> FolderStore | None:
    """Open ``file://…`` as a store; None for other URIs."""
    return FolderStore(local_path(uri)) if uri[:7].lower() == "file://" else None


class FolderStore:
    """A store of the files below a folder; see ``Store``.

    Args:
        root: The folder; created by the first write.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def list(self, prefix: str = "") -> dict[str, StoredFile]:
        """See ``Store.list``."""
        files = {}
        with self._as_machine_error("list"):
            for folder, _, names in os.walk(self._root.joinpath(*prefix.split("/")[:-1])):
                for name in names:
                    path = Path(folder, name)
                    key = path.relative_to(self._root).as_posix()
                    ours = name == _LOCK or name.startswith(_PART)
                    if key.startswith(prefix) and not ours and (file := _stored(path)):
                        files[key] = file
        return files

    def folders(self) -> Sequence[str]:
        """See ``Store.folders``."""
        if not self._root.is_dir():
            return []
        with self._as_machine_error("list"):
            return sorted(path.name for path in self._root.iterdir() if path.is_dir())

    def put(self, path: Path, key: str, size: int | None = None, expect: str | None = None) -> str:
        """See ``Store.put``."""
        target = self._path(key)
        part = target.with_name(f"{_PART}{uuid.uuid4().hex}")
        with path.open("rb") as source, self._as_machine_error("write"):
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                with part.open("wb") as file:
                    _copy(source, file, size)
                sync_file(part)
                with self._locked():
                    there = _stored(target)
                    if expect is not None and (there.tag if there else "") != expect:
                        raise ChangedError(
                            f"{target} is not what was expected; somebody has written it"
                        )
                    part.replace(target)
                sync_folder(target.parent)
                stored = _stored(target)
                return stored.tag if stored else ""
            finally:
                part.unlink(missing_ok=True)

    def get(self, key: str, path: Path, told: Callable[[int], None] | None = None) -> None:
        """See ``Store.get``."""
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{_PART}{uuid.uuid4().hex}")
        with self._as_machine_error("read"):
            try:
                shutil.copyfile(self._path(key), part)
                sync_file(part)
                if told is not None:
                    told(part.stat().st_size)
                part.replace(path)
            finally:
                part.unlink(missing_ok=True)

    def delete(self, keys: Sequence[str]) -> None:
        """See ``Store.delete``."""
        with self._as_machine_error("delete"), self._locked():
            for key in keys:
                self._path(key).unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        parts = PurePosixPath(key).parts
        if not parts or key.startswith("/") or ".." in parts:
            raise DataError(f"{key!r} is no name of a file in a store")
        return self._root.joinpath(*parts)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        self._root.mkdir(parents=True, exist_ok=True)
        with (self._root / _LOCK).open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @contextlib.contextmanager
    def _as_machine_error(self, what: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            if what in ("read", "write"):
                raise
        except OSError as error:
            kind = RefusedError if error.errno in _FOR_GOOD else MachineError
            if error.errno in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
                raise RefusedError(
                    f"the file system has no locks: {error.strerror}",
                    where=str(self._root),
                    remedy="mount it with locks, or take another place",
                ) from error
            raise kind(f"cannot {what}: {error.strerror}", where=str(self._root)) from error


def _stored(path: Path) -> StoredFile | None:
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    # each write renames a new file into place, so no two states share inode and time
    return StoredFile(stat.st_size, f"{stat.st_ino:x}-{stat.st_mtime_ns:x}-{stat.st_size:x}")


def _copy(source: Any, target: Any, size: int | None) -> None:
    left = size
    while left is None or left > 0:
        block = source.read(min(1 << 20, left) if left is not None else 1 << 20)
        if not block:
            return
        target.write(block)
        if left is not None:
            left -= len(block)
