"""Working folders on this machine, for sandboxes without a file system of their own.

Each is locked as long as its owner lives, whoever can still see it: the lock ends with the process
that holds it, however that ends. So a folder that no process holds can be removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from rlvr_code.inside import work

_PREFIX = "rlvr-sandbox-"


class WorkFolder:
    """An empty folder, for one user; folders that dead processes have left are removed on the way.

    Args:
        uid: Its owner.
    """

    def __init__(self, uid: int) -> None:
        sweep()
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
            with contextlib.suppress(FileNotFoundError):  # swept before it was locked
                self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
                fcntl.flock(self._lock, fcntl.LOCK_EX)
                if self.path.exists():
                    break
                os.close(self._lock)
        if uid != os.geteuid():
            os.chown(self.path, uid, uid)

    def close(self) -> None:
        """Remove it; it must not be in use."""
        _remove(self.path)
        os.close(self._lock)


def sweep() -> None:
    """Remove folders that no process holds."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # held, another user's, or gone by now
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(path)
            finally:
                os.close(lock)


def _remove(path: Path) -> None:
    if path.stat().st_uid == os.geteuid():
        with contextlib.suppress(OSError):  # it may have folders that forbid their removal
            work.clear(str(path))
    shutil.rmtree(path, ignore_errors=True)
