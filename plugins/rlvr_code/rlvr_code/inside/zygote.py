"""The first process of the sandbox: confines itself, warms up, then forks one keeper per job.

It reads nothing of any job, so nothing of any program, input or output is ever in its memory, from
which every later program is forked.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
from typing import Any, NoReturn

from rlvr_code.inside import frames, keeper, kernel, program, room, work


def main(spec: dict[str, Any]) -> NoReturn:
    """Serve jobs from standard input until it closes.

    Args:
        spec: See ``rlvr_code.sandbox.launch``.
    """
    try:
        channel = _settle(spec)
    except OSError as error:
        frames.send(1, frames.LOST, str(error).encode())
        os._exit(1)
    frames.send(channel[1], frames.READY, json.dumps({"pid": os.getpid()}).encode())
    gc.collect()
    gc.freeze()
    while True:
        child = os.fork()  # ahead of the job, which then need not wait for it
        if not child:
            keeper.main(spec, *channel)
        status = os.waitstatus_to_exitcode(_reap(child))
        if status == keeper.NO_MORE:
            with contextlib.suppress(OSError):  # the parent may be removing it, too
                work.clear(spec["work"])
            os._exit(0)
        if spec["alone"]:
            _sweep()
        work.clear(spec["work"])
        if status:
            frames.send(channel[1], frames.LOST, b"the keeper of a program was killed")


def _settle(spec: dict[str, Any]) -> tuple[int, int]:
    """Everything up to the first job; the descriptors of the channel to the parent."""
    if spec["room"]:
        room.enter(spec)
    if os.geteuid() == 0 and spec["drop"]:
        os.setgroups([])
        os.setresgid(spec["gid"], spec["gid"], spec["gid"])
        os.setresuid(spec["uid"], spec["uid"], spec["uid"])
    os.chdir(spec["work"])
    os.umask(0o077)
    channel = os.dup(0), os.dup(1)
    nothing = os.open("/dev/null", os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.close(nothing)
    program.furnish(spec)
    for name in spec["warm"]:
        importlib.import_module(name)
    spec["mapped"] = kernel.mapped_bytes()
    spec["alone"] = os.getpid() == 1
    spec["landlock"] = spec["landlock"] == "must" or (
        spec["landlock"] and kernel.landlock_version() > 0
    )
    if spec["landlock"]:
        kernel.restrict_files(dict(spec["readable"]), spec["work"])
    if spec["confined"]:
        kernel.drop_capabilities()
    kernel.hide_memory()
    return channel


def _reap(child: int) -> int:
    """Wait for the keeper, and for orphans on the way; its status."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child:
            return status


def _sweep() -> None:
    """Kill all that is left in this process namespace."""
    while True:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, 9)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return
