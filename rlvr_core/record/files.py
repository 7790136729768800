"""Atomic file writes: a crash or a full disk never leaves a partial file."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from pathlib import Path

from rlvr_core.api import RunError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def write_atomic(path: Path, content: str | bytes) -> None:
    """Replace a file atomically: temporary name, fsync, rename, fsync of the folder.

    Raises:
        RunError: If it cannot be written; the old file is then unchanged.
    """
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise write_failed(error, path) from error


def sync_file(path: Path) -> None:
    """Flush a file's content, or a folder's entries, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Flush a folder's entries to disk; skipped silently where folders cannot be synced."""
    try:
        sync_file(path)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise


def lock_folder(folder: Path, remedy: str) -> int:
    """Lock a folder against writes by a second process.

    The lock is a record lock: it ends with this process, and children do not inherit it.

    Args:
        folder: The folder.
        remedy: What the user can do about the other process.

    Returns:
        A file descriptor; closing it releases the lock.

    Raises:
        RunError: If another process holds the lock.
    """
    descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            return descriptor  # the file system has no locks
        os.close(descriptor)
        raise RunError(
            "another process is writing in this folder",
            where=str(folder),
            remedy=remedy,
        ) from None
    return descriptor


def is_full(error: BaseException) -> bool:
    """Whether an error means that the disk is full.

    Native libraries report it as text only, so the message is searched too.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in _FULL:
            return True
        if "No space left on device" in str(seen) or "Disk quota exceeded" in str(seen):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def write_failed(error: BaseException, path: Path) -> RunError:
    """Build the error for a ``path`` that cannot be written.

    Args:
        error: The exception.
        path: File or folder that was being written.
    """
    if is_full(error):
        place = next(place for place in (path, *path.absolute().parents) if place.exists())
        return RunError(
            f"the disk is full ({shutil.disk_usage(place).free / 1e6:,.0f} MB free)",
            where=str(path),
            remedy=(
                "free some space or set run.dir to another disk",
                "then continue from the last checkpoint: rlvr run CONFIG --resume last",
            ),
        )
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return RunError(
        f"cannot write: {reason or type(error).__name__}",
        where=str(path),
        remedy="check that the folder exists and that you may write there",
    )
