"""Finds the files that the interpreter needs, so that programs see no others."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rlvr_core.api import MachineError

_ASK = """
import json, sys, sysconfig
base = getattr(sys, "_base_executable", sys.executable)
stdlib = sysconfig.get_path("stdlib")
print(json.dumps([base, sys.base_prefix, stdlib, list(sys.version_info[:2])]))
"""
_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache", "/usr/share/zoneinfo")
_PACKAGES = ("site-packages", "dist-packages")


@dataclass(frozen=True, slots=True)
class Layout:
    """An interpreter and its files.

    Attributes:
        python: The executable itself, with all links and virtual environments followed.
        show: Paths programs may read; none lies in another.
        hide: Folders of installed packages among them, which they may not.
        stdlib: Folder of the standard library.
    """

    python: str
    show: tuple[str, ...]
    hide: tuple[str, ...]
    stdlib: str

    def readable(self) -> list[str]:
        """Like ``show``, for a mechanism that can only allow: as many paths as that takes."""
        return [shown for path in self.show for shown in _without(path, self.hide)]


@functools.cache
def layout(python: str | None, packages: tuple[str, ...] = ()) -> Layout:
    """Where an interpreter lies.

    Args:
        python: Its executable; None for this one.
        packages: More folders to show, for ``sys.path``.

    Raises:
        MachineError: If it is none, or too old.
    """
    executable, prefix, stdlib, version = _ask(python or sys.executable)
    if version < [3, 11]:
        raise MachineError(
            f"{python} is Python {version[0]}.{version[1]}; the sandbox needs 3.11 or newer"
        )
    executable = os.path.realpath(executable)
    shown = [executable, *(f"{prefix}/{name}" for name in ("lib", "lib64")), *_LIBRARIES]
    shown += [stdlib, *packages]
    show = _outermost([path for path in shown if os.path.lexists(path)])
    hide = {
        str(folder)
        for path in show
        if not Path(path).is_symlink()
        for name in _PACKAGES
        for folder in Path(path).glob(f"python*/{name}")
    }
    hide |= {f"{stdlib}/{name}" for name in _PACKAGES if Path(stdlib, name).is_dir()}
    return Layout(executable, show, tuple(sorted(hide - set(packages))), stdlib)


def _ask(python: str) -> tuple[str, str, str, list[int]]:
    try:
        done = subprocess.run(
            [python, "-I", "-S", "-c", _ASK], capture_output=True, text=True, timeout=60, check=True
        )
        executable, prefix, stdlib, version = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise MachineError(f"{python} is no Python interpreter: {error}") from error
    return executable, prefix, stdlib, version


def _outermost(paths: Sequence[str]) -> tuple[str, ...]:
    """Paths without those that lie in another of them."""
    unique = sorted({os.path.normpath(path) for path in paths})
    folders = [path for path in unique if not Path(path).is_symlink()]
    return tuple(
        path for path in unique if not any(path.startswith(f"{folder}/") for folder in folders)
    )


def _without(path: str, hidden: Sequence[str]) -> list[str]:
    """Paths that cover everything below one but what is hidden."""
    if path in hidden:
        return []
    if not any(folder.startswith(f"{path}/") for folder in hidden):
        return [path]
    return [shown for entry in os.scandir(path) for shown in _without(entry.path, hidden)]
