"""Namespaces of its own: users, processes, network, mounts, IPC, host name, made without any tool.

``enter`` builds a root folder that holds the interpreter, libraries and an empty ``/work``, and
makes it the only one there is.
"""

from __future__ import annotations

import os
import stat
import sys
from typing import Any, NoReturn

from rlvr_code.inside import kernel

_DEVICES = ("null", "zero", "random", "urandom")
WORK = "/work"
"""The only folder in there that can be written to; ``/tmp`` is another name of it."""


def enter(spec: dict[str, Any]) -> None:
    """Move into the room; returns in a new process, the first one of its process namespace.

    Args:
        spec: ``show``: paths to have in there; ``hide``: folders among them to have empty;
            ``disk_bytes``: size of its ``/work``.

    Raises:
        OSError: If the kernel does not let this user do so.
    """
    uid, gid = os.geteuid(), os.getegid()
    rest = kernel.NEWNS | kernel.NEWPID | kernel.NEWNET | kernel.NEWIPC | kernel.NEWUTS
    rest |= kernel.NEWCGROUP
    if uid == 0:
        kernel.unshare(rest)
    else:
        kernel.unshare(kernel.NEWUSER | rest)
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{uid} {uid} 1")
        _write("/proc/self/gid_map", f"{gid} {gid} 1")
    _furnish(spec)
    child = os.fork()
    if child:
        _stay_behind(child)


def _furnish(spec: dict[str, Any]) -> None:
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    shown = [*spec["show"], *(f"/dev/{name}" for name in _DEVICES)]
    held = {path: os.open(path, os.O_PATH | os.O_NOFOLLOW) for path in shown}
    root = "/tmp"
    kernel.mount("tmpfs", root, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "size=1m,mode=755")
    for path, descriptor in held.items():
        _show(f"/proc/self/fd/{descriptor}", descriptor, root + path)
        os.close(descriptor)
    for path in spec["hide"]:
        if os.path.isdir(root + path):
            kernel.mount("tmpfs", root + path, "tmpfs", kernel.MS_NOSUID, "size=4k,mode=755")
    os.mkdir(root + WORK)
    if not os.path.lexists(f"{root}/tmp"):
        os.symlink(WORK, f"{root}/tmp")
    kernel.make_read_only(root)
    size = f"size={spec['disk_bytes']},nr_inodes={spec['disk_inodes']},mode=1777"
    kernel.mount("tmpfs", root + WORK, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, size)
    kernel.become_root_folder(root)


def _show(source: str, descriptor: int, target: str) -> None:
    mode = os.fstat(descriptor).st_mode
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if stat.S_ISLNK(mode):
        os.symlink(os.readlink("", dir_fd=descriptor), target)
        return
    if stat.S_ISDIR(mode):
        os.makedirs(target, exist_ok=True)
    else:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    kernel.mount(source, target, flags=kernel.MS_BIND | kernel.MS_REC)


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _stay_behind(child: int) -> NoReturn:
    """Wait outside for the room's first process, whose end ends everything in there."""
    os.close(0)
    os.close(1)
    _, status = os.waitpid(child, 0)
    sys.exit(os.waitstatus_to_exitcode(status) & 0xFF)
