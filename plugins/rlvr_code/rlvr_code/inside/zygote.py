"""The first process of the sandbox: confines itself, warms up, then forks a keeper and programs.

It reads nothing of any job: a program reads its text from a file that the keeper has made, and all
that goes through here is that file's descriptor. So nothing of any program, input or output is ever
in the memory from which every later program is forked.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import resource
import socket
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
    orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ends = os.pipe()
    watcher = os.fork()
    if not watcher:
        orders.close()
        os.close(ends[1])
        keeper.main(spec, *channel, keeper.Zygote(theirs, ends[0]))
    theirs.close()
    os.close(ends[0])
    os.close(channel[0])
    try:
        Nursery(spec, watcher, orders, ends[1]).serve()
    except GoneError as gone:
        if gone.args[0] == keeper.NO_MORE:
            with contextlib.suppress(OSError):  # the parent may be removing it, too
                work.clear(spec["work"])
            os._exit(0)
        why = "the keeper of the programs was killed"
    except OSError as error:
        why = f"no program can be started: {error}"
    with contextlib.suppress(OSError):  # if the parent is gone too
        frames.send(channel[1], frames.LOST, why.encode())
    os._exit(1)


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
    alone = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    os.environ.update(alone)  # read when numpy is imported; no fork copies other threads
    for name in spec["warm"]:
        importlib.import_module(name)
    for name in alone:
        del os.environ[name]
    spec["mapped"] = kernel.mapped_bytes()
    spec["alone"] = os.getpid() == 1
    spec["landlock"] = spec["landlock"] == "must" or (
        spec["landlock"] and kernel.landlock_version() > 0
    )
    if spec["landlock"]:
        kernel.restrict_files(dict(spec["readable"]), spec["work"], execute=spec["execute"])
    if spec["confined"]:
        kernel.drop_capabilities()
    kernel.hide_memory()
    return channel


class GoneError(Exception):
    """The keeper has ended; with its status."""


class Nursery:
    """Forks programs as the keeper orders, and buries all who end."""

    def __init__(
        self, spec: dict[str, Any], watcher: int, orders: socket.socket, ends: int
    ) -> None:
        self._spec, self._watcher, self._orders, self._ends = spec, watcher, orders, ends

    def serve(self) -> NoReturn:
        """Go on until the keeper ends.

        Raises:
            GoneError: When it has.
        """
        while True:
            try:
                order, handed, _, _ = socket.recv_fds(self._orders, 1, program.HANDED)
            except ConnectionError:
                order, handed = b"", []
            if order == keeper.FORK:
                self._fork(handed)
            elif order == keeper.BURY:
                while self._bury(os.WNOHANG)[0]:
                    pass
                self._orders.send(keeper.BURY)
            else:
                while True:
                    self._bury()

    def _fork(self, handed: list[int]) -> None:
        child = os.fork()
        if not child:
            program.main(self._spec, handed)
        for descriptor in handed:
            os.close(descriptor)
        handle = os.pidfd_open(child)
        with contextlib.suppress(ConnectionError):  # of a keeper that is gone, which will be seen
            socket.send_fds(self._orders, [keeper.FORK], [handle])
        os.close(handle)
        pid, status, usage = self._bury()
        while pid != child:  # an orphan
            pid, status, usage = self._bury()
        used = usage.ru_utime + usage.ru_stime
        os.write(self._ends, keeper.ENDED.pack(status, used, usage.ru_maxrss))

    def _bury(self, flags: int = 0) -> tuple[int, int, resource.struct_rusage]:
        pid, status, usage = os.wait4(-1, flags)
        if pid == self._watcher:
            raise GoneError(os.waitstatus_to_exitcode(status))
        return pid, status, usage
