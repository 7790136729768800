"""The process of a program: confines itself, then runs what it was given.

Nothing here is trusted once the program's code has begun: it may change any of it.
"""

from __future__ import annotations

import _sitebuiltins
import builtins
import json
import math
import os
import resource
import sys
from typing import Any, NoReturn, TextIO, cast

from rlvr_code.inside import devices, kernel, script, serve, tester
from rlvr_code.inside import filter as seccomp

SCRIPT, SERVE, TEST, SHARE = "script", "serve", "test", "share"

WIRE = 3
"""Descriptor of the program's connection to the parent, in modes that have one."""


HANDED = 5
"""Maximum number of descriptors passed to a program."""


def describe(job: dict[str, Any], code: bytes) -> bytes:
    """The job of a program's process, which it reads from a file."""
    text = json.dumps(job).encode()
    return len(text).to_bytes(8, "big") + text + code


def main(spec: dict[str, Any], handed: list[int]) -> NoReturn:
    """Become the program.

    Args:
        spec: Of the server.
        handed: The descriptors of what ``describe`` gave, and those to be 0, 1, 2 and perhaps 3.
    """
    try:
        job, code = _told(handed[0])
        _prepare(spec, job, handed[1:])
    except BaseException as error:
        os.write(2, f"the sandbox could not be closed: {error!r}\n".encode())
        os._exit(70)
    try:
        if job["mode"] == SCRIPT:
            script.run(code)
        elif job["mode"] == SERVE:
            serve.run(code, WIRE)
        elif job["mode"] == SHARE:
            tester.share(code, WIRE)
        else:
            tester.run(json.loads(code), WIRE)
    except BaseException as error:
        os.write(2, f"{error!r}\n".encode())
    finally:
        os._exit(1)


def _told(descriptor: int) -> tuple[dict[str, Any], bytes]:
    """The job and the code; every process of a job reads the same file, which cannot be changed."""
    size, content = os.fstat(descriptor).st_size, b""
    while len(content) < size:
        content += os.pread(descriptor, size - len(content), len(content))
    end = 8 + int.from_bytes(content[:8], "big")
    return json.loads(content[8:end]), content[end:]


def _prepare(spec: dict[str, Any], job: dict[str, Any], handed: list[int]) -> None:
    os.setsid()
    limits = job["limits"]
    if not spec["alone"]:
        kernel.die_with_parent()
    high = [os.dup2(descriptor, 100 + place) for place, descriptor in enumerate(handed)]
    for place, descriptor in enumerate(high):
        os.dup2(descriptor, place)
    os.closerange(len(handed), 1 << 16)
    os.chdir(spec["work"])
    _limit(spec, limits)
    if spec["landlock"]:
        kernel.restrict_signals()
    if spec["confined"]:
        kernel.no_new_privileges()
        kernel.set_filter(seccomp.bind(spec["filters"][limits["processes"] > 1], os.getpid()))


def furnish(spec: dict[str, Any]) -> None:
    """Set up the parts shared by all programs, once, before any is forked.

    Raises:
        OSError: If there is no filter for this machine.
    """
    folder = spec["work"]
    os.environ.clear()
    os.environ.update(PATH="/usr/bin:/bin", HOME=folder, TMPDIR=folder, LANG="C.UTF-8")
    for name in ("exit", "quit"):  # which the module site would have made
        setattr(builtins, name, _sitebuiltins.Quitter(name, "the end of the input"))
    sys.argv[:] = ["main.py"]
    sys.path[:] = [folder, *spec["path"], *sys.path]
    streams = {
        "stdin": _stream(0, "r", "replace"),
        "stdout": _writer(1, "replace"),
        "stderr": _writer(2, "backslashreplace"),
    }
    for name, stream in streams.items():
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    devices.install()
    if spec["confined"]:
        machine = seccomp.machine()
        if machine is None:
            raise OSError("no filter of system calls for this kind of machine")
        spec["filters"] = [seccomp.build(machine, children) for children in (False, True)]


def _stream(descriptor: int, mode: str, errors: str) -> TextIO:
    file = open(descriptor, mode, encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115
    return cast("TextIO", file)


def _writer(descriptor: int, errors: str) -> TextIO:
    """A stream to what will be a pipe: streams remember whether they can seek."""
    kept, ends = os.dup(descriptor), os.pipe()
    os.dup2(ends[1], descriptor)
    stream = _stream(descriptor, "w", errors)
    os.dup2(kept, descriptor)
    for opened in (kept, *ends):
        os.close(opened)
    return stream


def _limit(spec: dict[str, Any], limits: dict[str, Any]) -> None:
    memory = spec["mapped"] + limits["memory_bytes"] // limits["processes"]
    wanted = [
        (resource.RLIMIT_CPU, math.ceil(limits["cpu_seconds"])),
        (resource.RLIMIT_FSIZE, limits["file_bytes"]),
        (resource.RLIMIT_NOFILE, limits["files"]),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_AS, memory),
    ]
    if spec["own_user"]:
        wanted.append((resource.RLIMIT_NPROC, limits["tasks"]))
    for kind, value in wanted:
        _, hard = resource.getrlimit(kind)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))
