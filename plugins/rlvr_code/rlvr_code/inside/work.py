"""The one folder a program can write to: emptied between programs, filled with its files."""

from __future__ import annotations

import contextlib
import os


def clear(folder: str) -> None:
    """Remove everything in a folder; call it when no process is left that could change it.

    Depth is no matter: a folder within a folder is first moved up, then emptied.
    """
    top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with contextlib.suppress(PermissionError):  # another user's, but open to us
        os.fchmod(top, 0o700)
    try:
        while names := os.listdir(top):
            for name in names:
                _remove(top, name)
    finally:
        os.close(top)


def _remove(top: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=top)
        return
    except (IsADirectoryError, PermissionError):
        pass
    os.chmod(name, 0o700, dir_fd=top)
    inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=top)
    try:
        for entry in os.listdir(inner):
            try:
                os.unlink(entry, dir_fd=inner)
            except (IsADirectoryError, PermissionError):
                os.chmod(entry, 0o700, dir_fd=inner)
                os.rename(entry, os.urandom(12).hex(), src_dir_fd=inner, dst_dir_fd=top)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=top)


def fill(folder: str, files: dict[str, bytes]) -> None:
    """Write files, whose names are relative and have no ``..``."""
    for name, content in files.items():
        path = f"{folder}/{name}"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb", opener=_opener) as file:
            file.write(content)


def _opener(path: str, flags: int) -> int:
    """Opens a file that may be run where the sandbox lets it: no program can change that later."""
    return os.open(path, flags, 0o777)
