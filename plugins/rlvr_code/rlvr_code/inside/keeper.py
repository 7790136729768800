"""One process per job: starts its programs one after the other, watches, counts and ends them.

It is trusted. It knows what the program is given anyway: code, files, input. What a program is
compared with never comes here.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import socket
import time
from typing import Any, NoReturn

from rlvr_code.inside import frames, program, work

NO_MORE = 3
"""Exit status when the parent is gone."""
_CHUNK = 1 << 16
_EVERY_SEAL = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_PIPE = 1 << 20
"""No pipe of an unprivileged process holds more."""


class Stream:
    """Takes in one output of a program: passes on the head, holds back the tail, drops the rest."""

    def __init__(self, descriptor: int, kind: bytes, limit: int, channel: int) -> None:
        self.descriptor = descriptor
        self._kind, self._channel = kind, channel
        self._tail_size = limit // 4
        self._left = limit - self._tail_size
        self._tail = b""
        self._dropped = 0
        os.set_blocking(descriptor, False)

    def take(self) -> bool:
        """Read what is there; False when there is nothing more to come."""
        try:
            data = os.read(self.descriptor, _CHUNK)
        except BlockingIOError:
            return True
        head, rest = data[: self._left], data[self._left :]
        if head:
            self._left -= len(head)
            frames.send(self._channel, self._kind, head)
        if rest:
            held = self._tail + rest
            cut = max(0, len(held) - self._tail_size)
            self._tail, self._dropped = held[cut:], self._dropped + cut
        return bool(data)

    def finish(self) -> int:
        """Pass on what the pipe still holds and the tail; how many bytes in between are lost."""
        left = _PIPE
        while left > 0:
            left -= _CHUNK
            self.take()
        os.close(self.descriptor)
        if self._dropped:
            note = f"\n[... {self._dropped:,} bytes left out ...]\n"
            frames.send(self._channel, self._kind, note.encode())
        if self._tail:
            frames.send(self._channel, self._kind, self._tail)
        return self._dropped


class Keeper:
    """Runs the programs of one job."""

    def __init__(self, spec: dict[str, Any], channel: tuple[int, int]) -> None:
        self._spec = spec
        self._in, self._out = channel
        self._job: dict[str, Any] = {}
        self._code = b""
        self._files: dict[str, bytes] = {}

    def serve(self) -> None:
        """Take orders until the job is closed.

        Raises:
            ClosedError: If the parent is gone.
        """
        while True:
            kind, body = frames.receive(self._in)
            if kind == frames.OPEN:
                self._job = json.loads(body)
            elif kind == frames.CODE:
                self._code = body
            elif kind == frames.FILE:
                name, _, content = body.partition(b"\0")
                self._files[name.decode()] = content
            elif kind == frames.START:
                self._run(body)
            elif kind == frames.CLOSE:
                return

    def _run(self, stdin: bytes) -> None:
        work.clear(self._spec["work"])
        work.fill(self._spec["work"], self._files)
        Run(self._spec, self._job, self._code, stdin, self._in, self._out).go()
        work.clear(self._spec["work"])


class Run:
    """One process of the program, from fork to burial."""

    def __init__(
        self,
        spec: dict[str, Any],
        job: dict[str, Any],
        code: bytes,
        stdin: bytes,
        control: int,
        out: int,
    ) -> None:
        self._spec, self._job, self._control, self._out = spec, job, control, out
        self._limits = job["limits"]
        self._nonce = b""
        self._why = ""
        self._unsent = b""
        self._began = time.monotonic()
        self._child, self._streams, self._wire = self._fork(code, stdin)
        self._handle = os.pidfd_open(self._child)

    def _fork(self, code: bytes, stdin: bytes) -> tuple[int, list[Stream], socket.socket | None]:
        given = os.memfd_create("stdin", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        frames.write_all(given, stdin)
        os.lseek(given, 0, os.SEEK_SET)
        fcntl.fcntl(given, fcntl.F_ADD_SEALS, _EVERY_SEAL)
        out, err = os.pipe(), os.pipe()
        talks = self._job["mode"] != program.SCRIPT
        wire = socket.socketpair() if talks else None
        child = os.fork()
        if not child:
            handed = [given, out[1], err[1], *([wire[1].fileno()] if wire else [])]
            program.main(self._spec, self._job, code, handed)
        os.close(given)
        os.close(out[1])
        os.close(err[1])
        limit = self._limits["output_bytes"]
        streams = [
            Stream(out[0], frames.OUT, limit, self._out),
            Stream(err[0], frames.ERR, limit, self._out),
        ]
        if wire is None:
            return child, streams, None
        wire[1].close()
        wire[0].setblocking(False)
        return child, streams, wire[0]

    def go(self) -> None:
        """Watch the program until it has ended, and say how."""
        deadline = self._began + self._limits["wall_seconds"]
        poll = select.poll()
        by_descriptor = {stream.descriptor: stream for stream in self._streams}
        for descriptor in (self._control, self._handle, *by_descriptor):
            poll.register(descriptor, select.POLLIN)
        ended = False
        while not ended:
            if self._wire is not None:
                write = select.POLLOUT if self._unsent else 0
                poll.register(self._wire, select.POLLIN | write)
            left = deadline - time.monotonic()
            if left <= 0 and not self._why:
                self._kill("wall")
            for descriptor, event in poll.poll(max(left, 0.0) * 1000 if not self._why else None):
                if descriptor == self._handle:
                    ended = True
                elif descriptor == self._control:
                    self._obey()
                elif descriptor in by_descriptor:
                    if not by_descriptor[descriptor].take():
                        poll.unregister(descriptor)
                elif not self._exchange(event):
                    poll.unregister(descriptor)
                    self._hang_up()
        self._bury()

    def _obey(self) -> None:
        kind, body = frames.receive(self._control)
        if kind == frames.NONCE:
            self._nonce = body
        elif kind == frames.TELL:
            self._unsent += body
        elif kind == frames.KILL:
            self._kill("killed")

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
                frames.send(self._out, frames.SAID, data)
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
        signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def _bury(self) -> None:
        _, status, usage = os.wait4(self._child, 0)
        wall = time.monotonic() - self._began
        os.close(self._handle)
        if self._limits["processes"] > 1:
            self._kill_family()
        dropped = [stream.finish() for stream in self._streams]
        if self._wire is not None:
            self._exchange(select.POLLIN)
            self._hang_up()
        while not self._nonce:
            self._obey()
        code = os.waitstatus_to_exitcode(status)
        said = {
            "nonce": self._nonce.decode(),
            "why": self._why,
            "code": code,
            "cpu": usage.ru_utime + usage.ru_stime,
            "wall": wall,
            "peak_kb": usage.ru_maxrss,
            "dropped": dropped,
        }
        frames.send(self._out, frames.END, json.dumps(said).encode())

    def _kill_family(self) -> None:
        """Everything else in this process namespace but its first process and this one."""
        try:
            os.kill(-1, signal.SIGKILL)
        except ProcessLookupError:
            return


def main(spec: dict[str, Any], control: int, out: int) -> NoReturn:
    """Do one job, in a process of its own."""
    try:
        Keeper(spec, (control, out)).serve()
    except frames.ClosedError:
        os._exit(NO_MORE)
    except BaseException as error:
        os.write(2, f"keeper: {error!r}\n".encode())
        os._exit(1)
    os._exit(0)
