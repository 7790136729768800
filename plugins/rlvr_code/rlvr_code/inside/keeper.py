"""One process per server: has programs started one after the other, watches, counts, ends them.

It is trusted. It knows what the program is given anyway: code, files, input; what a program is
compared with never comes here. No program is forked from it, and it forgets a job at its end.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import struct
import time
from collections import deque
from typing import Any, NoReturn

from rlvr_code.inside import frames, kernel, program, work

NO_MORE = 3
"""Exit status when the parent is gone."""
FORK, BURY = b"f", b"b"
"""Orders to the first process: fork a program, bury all who have died."""
ENDED = struct.Struct("=idq")
"""The report of a program's end: wait status, processor seconds, peak resident kilobytes."""
_CHUNK = 1 << 16
_EVERY_SEAL = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_LONGEST = 1 << 32
_LOOK = 0.1
"""Seconds between two looks at how many files there are."""
_PIPE = 1 << 20
"""No pipe of an unprivileged process holds more."""


class Orders:
    """Reads the parent's messages in large pieces."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._splitter = frames.Splitter(_LONGEST)
        self._here: deque[tuple[bytes, bytes]] = deque()

    def next(self) -> tuple[bytes, bytes]:
        """The next one; waits for it.

        Raises:
            ClosedError: If the parent is gone.
        """
        while not self._here:
            self.read()
        return self._here.popleft()

    def read(self) -> None:
        """Take in what is there; waits until there is something.

        Raises:
            ClosedError: If the parent is gone.
        """
        data = os.read(self.descriptor, _CHUNK)
        if not data:
            raise frames.ClosedError
        self._here += self._splitter.feed(data)

    @property
    def pending(self) -> bool:
        """Whether there is one already."""
        return bool(self._here)


class News:
    """Messages to the parent, held back until ``flush`` and written together."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._held: list[bytes] = []

    def add(self, kind: bytes, body: bytes) -> None:
        """One more frame."""
        self._held.append(frames.pack(kind, body))

    def flush(self) -> None:
        """Write it all."""
        if self._held:
            frames.write_all(self._descriptor, b"".join(self._held))
            self._held.clear()


class Zygote:
    """The process that forks programs, and is their parent."""

    def __init__(self, orders: socket.socket, ends: int) -> None:
        self.ends = ends
        self._orders = orders

    def fork(self, handed: list[int]) -> None:
        """Have a program forked with these descriptors."""
        socket.send_fds(self._orders, [FORK], handed)

    def handle(self) -> int:
        """Descriptor of the program forked last; there is one of each, to be asked for once.

        It stands for that program only, though another may have its number by now.
        """
        _, (handle,), _, _ = socket.recv_fds(self._orders, 1, 1)
        return handle

    def ended(self) -> tuple[int, float, int]:
        """How it ended: wait status, processor seconds, most kilobytes resident."""
        status, used, peak = ENDED.unpack(frames.read_exactly(self.ends, ENDED.size))
        return status, used, peak

    def sweep(self) -> None:
        """Kill all that is left in this process namespace but its first process and this one."""
        while True:
            try:
                os.kill(-1, signal.SIGKILL)
            except ProcessLookupError:
                return
            self._orders.send(BURY)
            self._orders.recv(1)
            time.sleep(0.001)


class Stream:
    """Takes in one output of a program: passes on the head, holds back the tail, drops the rest."""

    def __init__(self, descriptor: int, kind: bytes, limit: int, news: News) -> None:
        self.descriptor = descriptor
        self._kind, self._news = kind, news
        self._tail_size = limit // 4
        self._left = limit - self._tail_size
        self._tail = b""
        self._dropped = 0
        os.set_blocking(descriptor, False)

    def take(self) -> bool:
        """Read what is there; False when there is nothing more to come."""
        data = self._read()
        return data is None or bool(data)

    def _read(self) -> bytes | None:
        """Read all available bytes; None if there are none yet, empty at the end."""
        try:
            data = os.read(self.descriptor, _CHUNK)
        except BlockingIOError:
            return None
        head, rest = data[: self._left], data[self._left :]
        if head:
            self._left -= len(head)
            self._news.add(self._kind, head)
        if rest:
            held = self._tail + rest
            cut = max(0, len(held) - self._tail_size)
            self._tail, self._dropped = held[cut:], self._dropped + cut
        return data

    def finish(self) -> int:
        """Pass on what the pipe still holds and the tail; how many bytes in between are lost."""
        left = _PIPE  # whoever still has the other end might fill it for ever
        while left > 0 and self._read():
            left -= _CHUNK
        os.close(self.descriptor)
        if self._dropped:
            note = f"\n[... {self._dropped:,} bytes left out ...]\n"
            self._news.add(self._kind, note.encode())
        if self._tail:
            self._news.add(self._kind, self._tail)
        return self._dropped


class Keeper:
    """Runs the programs of one job after the other."""

    def __init__(self, spec: dict[str, Any], orders: Orders, out: int, zygote: Zygote) -> None:
        self._spec, self._orders, self._out, self._zygote = spec, orders, out, zygote

    def serve(self) -> NoReturn:
        """Take jobs.

        Raises:
            ClosedError: When the parent is gone.
        """
        while True:
            kind, body = self._orders.next()
            if kind == frames.OPEN:
                self._do(json.loads(body))

    def _do(self, job: dict[str, Any]) -> None:
        """One job, of which nothing is left afterwards."""
        code, files, described = b"", {}, -1
        while True:
            kind, body = self._orders.next()
            if kind == frames.CODE:
                code = body
            elif kind == frames.FILE:
                name, _, content = body.partition(b"\0")
                files[name.decode()] = content
            elif kind == frames.START:
                if described < 0:
                    described = sealed("program", program.describe(job, code))
                work.fill(self._spec["work"], files)
                run = Run(self._spec, job, described, body, self._orders, self._out, self._zygote)
                run.go()
                if run.last:
                    break
            elif kind == frames.CLOSE:
                break
        if described >= 0:
            os.close(described)


def sealed(name: str, content: bytes) -> int:
    """Descriptor of a file in memory that cannot be changed."""
    file = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    frames.write_all(file, content)
    os.lseek(file, 0, os.SEEK_SET)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, _EVERY_SEAL)
    return file


class Run:
    """One process of the program, from fork to burial.

    Attributes:
        last: Whether the parent has closed the job meanwhile.
    """

    def __init__(
        self,
        spec: dict[str, Any],
        job: dict[str, Any],
        described: int,
        stdin: bytes,
        orders: Orders,
        out: int,
        zygote: Zygote,
    ) -> None:
        self._spec, self._orders, self._news, self._zygote = spec, orders, News(out), zygote
        self._limits = job["limits"]
        self._talks = job["mode"] != program.SCRIPT
        self._nonce = b""
        self._why = ""
        self._unsent = b""
        self._handle = -1
        self.last = False
        self._began = time.monotonic()
        self._streams, self._wire = self._fork(described, stdin)

    def _fork(self, described: int, stdin: bytes) -> tuple[list[Stream], socket.socket | None]:
        given = sealed("stdin", stdin)
        out, err = os.pipe(), os.pipe()
        wire = socket.socketpair() if self._talks else None
        handed = [given, out[1], err[1], *([wire[1].fileno()] if wire else [])]
        self._zygote.fork([described, *handed])
        os.close(given)
        os.close(out[1])
        os.close(err[1])
        limit = self._limits["output_bytes"]
        streams = [
            Stream(out[0], frames.OUT, limit, self._news),
            Stream(err[0], frames.ERR, limit, self._news),
        ]
        if wire is None:
            return streams, None
        wire[1].close()
        wire[0].setblocking(False)
        return streams, wire[0]

    def go(self) -> None:
        """Watch the program until it has ended, and say how."""
        deadline = self._began + self._limits["wall_seconds"]
        poll = select.poll()
        by_descriptor = {stream.descriptor: stream for stream in self._streams}
        for descriptor in (self._orders.descriptor, self._zygote.ends, *by_descriptor):
            poll.register(descriptor, select.POLLIN)
        ended = False
        while not ended:
            while self._orders.pending:
                self._obey()
            if self._wire is not None:
                write = select.POLLOUT if self._unsent else 0
                poll.register(self._wire, select.POLLIN | write)
            left = deadline - time.monotonic()
            if left <= 0 and not self._why:
                self._kill("wall")
            if not self._why and self._too_many_files():
                self._kill("files")
            wait = None if self._why else 1000 * max(min(left, _LOOK), 0.0)
            for descriptor, event in poll.poll(wait):
                if descriptor == self._zygote.ends:
                    ended = True
                elif descriptor == self._orders.descriptor:
                    self._orders.read()
                elif descriptor in by_descriptor:
                    if not by_descriptor[descriptor].take():
                        poll.unregister(descriptor)
                elif not self._exchange(event):
                    poll.unregister(descriptor)
                    self._hang_up()
            if self._talks:  # of a script only the end is waited for
                self._news.flush()
        self._bury()

    def _too_many_files(self) -> bool:
        """Whether the folder, a file system of its own that does not limit them, has too many."""
        if not self._spec["count_files"]:
            return False
        disk = os.statvfs(self._spec["work"])
        return bool(disk.f_files - disk.f_ffree > self._spec["disk_inodes"])

    def _obey(self) -> None:
        kind, body = self._orders.next()
        if kind == frames.NONCE:
            self._nonce = body
        elif kind == frames.TELL:
            self._unsent += body
        elif kind == frames.KILL:
            self._kill("killed")
        elif kind == frames.CLOSE:
            self.last = True

    def _exchange(self, event: int) -> bool:
        """Move bytes between the program and the parent; False when the program has hung up."""
        wire = self._wire
        if wire is None:
            return False
        try:
            if event & select.POLLOUT and self._unsent:
                self._unsent = self._unsent[wire.send(self._unsent) :]
            if event & (select.POLLIN | select.POLLHUP | select.POLLERR):
                data = wire.recv(_CHUNK)
                if not data:
                    return False
                self._news.add(frames.SAID, data)
        except BlockingIOError:
            pass
        except OSError:
            return False
        return True

    def _hang_up(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None
        self._unsent = b""

    def _kill(self, why: str) -> None:
        self._why = self._why or why
        if self._handle < 0:
            self._handle = self._zygote.handle()
        with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def _bury(self) -> None:
        status, used, peak = self._zygote.ended()
        wall = time.monotonic() - self._began
        os.close(self._zygote.handle() if self._handle < 0 else self._handle)
        if self._spec["alone"]:
            self._zygote.sweep()
        dropped = [stream.finish() for stream in self._streams]
        if self._wire is not None:
            self._exchange(select.POLLIN)
            self._hang_up()
        # before its end is reported: what it takes is this program's time and not the next one's
        work.clear(self._spec["work"])
        while not self._nonce:
            self._obey()
        code = os.waitstatus_to_exitcode(status)
        end = {
            "nonce": self._nonce.decode(),
            "why": self._why,
            "code": code,
            "cpu": used,
            "wall": wall,
            "peak_kb": peak,
            "dropped": dropped,
        }
        self._news.add(frames.END, json.dumps(end).encode())
        self._news.flush()


def main(spec: dict[str, Any], control: int, out: int, zygote: Zygote) -> NoReturn:
    """Serve jobs, in a process of its own, until the parent is gone."""
    try:
        if not spec["alone"]:
            kernel.die_with_parent()
        Keeper(spec, Orders(control), out, zygote).serve()
    except frames.ClosedError:
        os._exit(NO_MORE)
    except BaseException as error:
        os.write(2, f"keeper: {error!r}\n".encode())
        os._exit(1)
