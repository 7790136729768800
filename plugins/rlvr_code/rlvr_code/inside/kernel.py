"""The few system calls that Python has no function for."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import resource
import struct
from typing import Any

_LIBC = ctypes.CDLL(None, use_errno=True)

_UNSHARE = {"x86_64": 272, "aarch64": 97}
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_CAPSET = {"x86_64": 126, "aarch64": 91}
_MOUNT_SETATTR, _LANDLOCK = 442, 444

NEWNS, NEWCGROUP, NEWUTS, NEWIPC = 0x20000, 0x2000000, 0x4000000, 0x8000000
NEWUSER, NEWPID, NEWNET = 0x10000000, 0x20000000, 0x40000000

MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 0x1000, 0x4000, 0x40000
_ATTR_RDONLY, _ATTR_NOSUID, _AT_RECURSIVE = 1, 2, 0x8000
_MNT_DETACH = 2

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP = 1, 4, 22
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 24, 38
_SIGKILL, _FILTER = 9, 2

# <linux/landlock.h>
_EVERY_FILE_RIGHT = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""How many of the file rights there are in each version of Landlock."""
READ_FILE, READ_DIR, EXECUTE, WRITE_FILE, IOCTL_DEV = 1 << 2, 1 << 3, 1 << 0, 1 << 1, 1 << 15
_MAKE_DEVICES = 1 << 6 | 1 << 11 | 1 << 9
"""MAKE_CHAR, MAKE_BLOCK, MAKE_SOCK."""
_TCP, _SCOPES = 0b11, 0b11


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _call(number: int, *arguments: Any) -> int:
    words = [
        ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments
    ]
    return int(_LIBC.syscall(ctypes.c_long(number), *words))


def _prctl(option: int, value: int | bytes) -> int:
    word = ctypes.c_ulong(value) if isinstance(value, int) else value
    zero = ctypes.c_ulong(0)
    first = ctypes.c_ulong(_FILTER) if option == _PR_SET_SECCOMP else word
    second = word if option == _PR_SET_SECCOMP else zero
    return int(_LIBC.prctl(option, first, second, zero, zero))


def unshare(flags: int) -> None:
    """Leave namespaces."""
    _check(_call(_UNSHARE[platform.machine()], flags), "unshare")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """Mount something."""
    given = (source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode())
    _check(_LIBC.mount(*given), f"mount {source} on {target}")


def make_read_only(path: str) -> None:
    """Make a mount and all below it read-only, without set-uid programs."""
    attributes = struct.pack("=QQQQ", _ATTR_RDONLY | _ATTR_NOSUID, 0, 0, 0)
    result = _call(_MOUNT_SETATTR, -100, path.encode(), _AT_RECURSIVE, attributes, 32)
    _check(result, f"mount_setattr {path}")


def become_root_folder(path: str) -> None:
    """Make a mount the root of this mount namespace; the old root is gone afterwards."""
    os.chdir(path)
    _check(_call(_PIVOT_ROOT[platform.machine()], b".", b"."), "pivot_root")
    _check(_LIBC.umount2(b".", _MNT_DETACH), "umount")
    os.chdir("/")


def drop_capabilities() -> None:
    """Give up every capability, and the means to have any again."""
    for capability in range(64):
        _prctl(_PR_CAPBSET_DROP, capability)  # needs one itself; then it changes none
    header = struct.pack("=Ii", 0x20080522, 0)
    _check(_call(_CAPSET[platform.machine()], header, bytes(24)), "capset")
    no_new_privileges()


def no_new_privileges() -> None:
    """Let no program that is executed gain anything."""
    _check(_prctl(_PR_SET_NO_NEW_PRIVS, 1), "prctl")


def hide_memory() -> None:
    """Keep processes of the same user from tracing this one."""
    _check(_prctl(_PR_SET_DUMPABLE, 0), "prctl")


def die_with_parent() -> None:
    """Be killed when the parent ends."""
    _check(_prctl(_PR_SET_PDEATHSIG, _SIGKILL), "prctl")


def set_filter(program: bytes) -> None:
    """Install a seccomp filter."""
    memory = ctypes.create_string_buffer(program, len(program))
    described = struct.pack("@HP", len(program) // 8, ctypes.addressof(memory))
    _check(_prctl(_PR_SET_SECCOMP, described), "seccomp")


def mapped_bytes() -> int:
    """Address space this process has in use, found without /proc: by where mapping begins to fail.

    Exact to a megabyte, upwards.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    low, high = 0, 1 << 40 if hard == resource.RLIM_INFINITY else min(hard, 1 << 40)
    try:
        while high - low > 1 << 20:
            middle = (low + high) // 2
            resource.setrlimit(resource.RLIMIT_AS, (middle, hard))
            try:
                mmap.mmap(-1, mmap.PAGESIZE).close()
                high = middle
            except (OSError, MemoryError):
                low = middle
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    return high


def landlock_version() -> int:
    """Version of Landlock the kernel speaks; 0 without it."""
    return max(0, _call(_LANDLOCK, None, 0, 1))


def restrict_files(readable: dict[str, int], writable: str, *, execute: bool = False) -> None:
    """Forbid every file but those below some paths, and TCP, for children too and for ever.

    Args:
        readable: Path to the rights on what is below it.
        writable: Folder where anything but devices and sockets may be made.
        execute: Whether what is made there may be run.
    """
    version = landlock_version()
    every = (1 << _EVERY_FILE_RIGHT.get(version, 16)) - 1
    words = [every, _TCP if version >= 4 else 0, _SCOPES if version >= 6 else 0]
    size = 8 if version < 4 else 16 if version < 6 else 24
    ruleset = _ruleset(words, size)
    try:
        for path, rights in readable.items():
            _allow(ruleset, path, rights & every)
        _allow(
            ruleset, writable, every & ~_MAKE_DEVICES & ~IOCTL_DEV & ~(0 if execute else EXECUTE)
        )
        _enforce(ruleset)
    finally:
        os.close(ruleset)


def restrict_signals() -> bool:
    """Forbid signals to processes outside of this one's family; False if the kernel cannot."""
    if landlock_version() < 6:
        return False
    ruleset = _ruleset([0, 0, _SCOPES], 24)
    try:
        _enforce(ruleset)
    finally:
        os.close(ruleset)
    return True


def _ruleset(words: list[int], size: int) -> int:
    attributes = struct.pack("=QQQ", *words)[:size]
    return _check(_call(_LANDLOCK, attributes, size, 0), "landlock")


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # what is not there, or out of reach anyway, needs no permission
    try:
        if not os.path.isdir(path):
            rights &= READ_FILE | WRITE_FILE | EXECUTE | IOCTL_DEV | 1 << 14
        rule = struct.pack("=Qi", rights, descriptor)
        _check(_call(_LANDLOCK + 1, ruleset, 1, rule, 0), f"landlock {path}")
    finally:
        os.close(descriptor)


def _enforce(ruleset: int) -> None:
    no_new_privileges()
    _check(_call(_LANDLOCK + 2, ruleset, 0), "landlock")
