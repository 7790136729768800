"""The seccomp filter of one program: which system calls it may make.

Everything not listed is refused: network, other processes, mounts, namespaces, tracing, keys,
shared memory, BPF, io_uring. Refused calls fail with an error number; nothing is killed by them,
save calls of a foreign instruction set.
"""

from __future__ import annotations

import errno
import platform
import struct

from rlvr_code.inside.numbers import ALLOWED, AUDIT_ARCH, JUDGED

_LOAD, _EQUAL, _AT_LEAST, _ABOVE, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x35, 0x25, 0x45, 0x54, 0x06
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data

_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_X32 = 0x40000000
_NEWEST = 462
"""Calls above this number are younger than the filter; the C library has another way for them."""

_THREAD = 0x00010000
_NAMESPACES = 0x7E020080
"""Every CLONE_NEW* flag of <linux/sched.h>."""
_IOCTLS = (0x541B, 0x5401, 0x5413, 0x5421, 0x5451, 0x5450)
"""FIONREAD, TCGETS, TIOCGWINSZ, FIONBIO, FIOCLEX, FIONCLEX."""
_PRCTLS = (15, 16, 3, 23, 0x53564D41)
"""PR_SET_NAME, PR_GET_NAME, PR_GET_DUMPABLE, PR_CAPBSET_READ, PR_SET_VMA."""
_FCNTLS = (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030, 1031, 1032, 1033, 1034)
"""Copying, flags, locks, sizes of pipes, seals. Not F_SETOWN, F_SETOWN_EX and F_SETSIG, which have
signals sent to others (Landlock forbids that from its version 6 on), nor leases."""
_TRUNCATE, _ACCESS, _NO_ACCESS = 0o1000, 0o3, 0o3
_AF_UNIX = 1
_ITSELF = 0x5EC0DE5E
"""Stands for the process's own number; no other value in the filter has these bytes."""

_PRETENDED = """
chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat utime utimes utimensat futimesat
"""
"""Succeed without doing anything: Landlock does not govern them, and copying files uses them."""

Instruction = tuple[int, int, int, int]


def machine() -> str | None:
    """The machine's name if the filter knows it."""
    name = platform.machine()
    return name if name in AUDIT_ARCH else None


def build(name: str, children: bool) -> bytes:
    """The filter for any process; ``bind`` makes it one process's.

    Args:
        name: ``x86_64`` or ``aarch64``.
        children: Whether the process may start others; if not, it may signal only itself.
    """
    code: list[Instruction] = [
        _load(_ARCH),
        (_EQUAL, 1, 0, AUDIT_ARCH[name]),
        _answer(_KILL),
        _load(_NUMBER),
        (_AT_LEAST, 0, 1, _X32),
        _answer(_KILL),
    ]
    judged = JUDGED[name]
    for call, body in _rules(children).items():
        if call in judged:
            code += [(_EQUAL, 0, len(body), judged[call]), *body]
    for low, high in _ranges(sorted(ALLOWED[name].values())):
        code += [(_AT_LEAST, 0, 2, low), (_ABOVE, 1, 0, high), _answer(_ALLOW)]
    code += [(_ABOVE, 0, 1, _NEWEST), _fail(errno.ENOSYS), _fail(errno.EPERM)]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def bind(program: bytes, pid: int) -> bytes:
    """The filter for the process with this number."""
    return program.replace(struct.pack("=I", _ITSELF), struct.pack("=I", pid))


def _rules(children: bool) -> dict[str, list[Instruction]]:
    """Return the rules of each judged call; every path ends in an answer."""
    allow, refuse, busy = [_answer(_ALLOW)], [_fail(errno.EPERM)], [_fail(errno.EAGAIN)]
    itself = allow if children else _argument_in(0, (_ITSELF,))
    rules = {
        "open": _opening(1),
        "openat": _opening(2),
        "fcntl": _argument_in(1, _FCNTLS),
        "ioctl": _argument_in(1, _IOCTLS),
        "prctl": _argument_in(0, _PRCTLS),
        "kill": itself,
        "tgkill": itself,
        "prlimit64": _argument_in(0, (0,)),
        "clone3": [_fail(errno.ENOSYS)],  # its flags are out of sight; clone is tried next
        "clone": _clone(children),
        "fork": allow if children else busy,
        "vfork": allow if children else busy,
        "socketpair": _argument_in(0, (_AF_UNIX,)),
        "sendto": _argument_in(4, (0,)),  # no address: only what it is connected to
        "execve": allow if children else refuse,
        "execveat": refuse,
        "setpgid": allow if children else refuse,
        "setsid": allow if children else refuse,
    }
    return rules | {call: [_fail(0)] for call in _PRETENDED.split()}


def _clone(children: bool) -> list[Instruction]:
    flags = _load(_ARGUMENTS)
    if children:
        return [flags, (_ANY_BIT, 0, 1, _NAMESPACES), _fail(errno.EPERM), _answer(_ALLOW)]
    return [
        flags,
        (_ANY_BIT, 0, 1, _NAMESPACES),
        _fail(errno.EPERM),
        (_ANY_BIT, 0, 1, _THREAD),
        _answer(_ALLOW),
        _fail(errno.EAGAIN),
    ]


def _opening(flags: int) -> list[Instruction]:
    """Refuse to truncate what is not opened to be written: before its version 3, Landlock does not.

    For the same reason ``truncate``, which takes a name, is on no list; ``ftruncate`` is.
    """
    body = [_load(_ARGUMENTS + 8 * flags), (_AND, 0, 0, _TRUNCATE | _ACCESS)]
    for access in (0, _NO_ACCESS):
        body += [(_EQUAL, 0, 1, _TRUNCATE | access), _fail(errno.EPERM)]
    return [*body, _answer(_ALLOW)]


def _argument_in(index: int, values: tuple[int, ...]) -> list[Instruction]:
    """Allow if an argument is one of these, none of which uses the upper 32 bits."""
    offset = _ARGUMENTS + 8 * index
    body = [_load(offset + 4), (_EQUAL, 1, 0, 0), _fail(errno.EPERM), _load(offset)]
    for value in values:
        body += [(_EQUAL, 0, 1, value), _answer(_ALLOW)]
    return [*body, _fail(errno.EPERM)]


def _ranges(numbers: list[int]) -> list[tuple[int, int]]:
    """Runs of neighbouring numbers."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


def _load(offset: int) -> Instruction:
    return (_LOAD, 0, 0, offset)


def _answer(action: int) -> Instruction:
    return (_RETURN, 0, 0, action)


def _fail(number: int) -> Instruction:
    return _answer(_ERRNO | number)
