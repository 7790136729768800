"""Components of the pool's tests, and what makes a call of one; imported by worker processes."""

import contextlib
import os
import signal
import socket
import stat
import time
from pathlib import Path

from rlvr_core.api import ComponentConfig


def handle(component, *payload):
    return component.call(*(one.decode() for one in payload))


class Tool:
    class Config(ComponentConfig):
        note: str = ""

    def __init__(self, config):
        self.config = config

    def call(self, what, argument=""):
        return getattr(self, what)(argument)

    def echo(self, text):
        return {"text": text}

    def note(self, text):
        """Leaves a line in a file: how often it was called shows there."""
        with Path(self.config.note).open("a") as file:
            file.write(text + "\n")
        return text

    def note_and_sleep(self, text):
        self.note(text)
        time.sleep(1.5)
        return text

    def sleep(self, milliseconds):
        time.sleep(int(milliseconds) / 1000)
        return milliseconds

    def note_and_die(self, text):
        self.note(text)
        os.kill(os.getpid(), signal.SIGKILL)

    def hang(self, _):
        while True:
            time.sleep(1)

    def huge(self, megabytes):
        return "x" * (int(megabytes) << 20)

    def rubbish(self, text):
        for path in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):
                if stat.S_ISSOCK(os.fstat(int(path.name)).st_mode):
                    os.write(int(path.name), text.encode() + b"\n")
        time.sleep(0.2)
        return "after"

    def fork(self, _):
        """The copy comes back from the call, like the original."""
        os.fork()
        return "forked"

    def slow_to_take_calls(self, _):
        """As on a busy machine: from now on this worker is slow to take the next call, once."""
        receive = socket.socket.recv

        def slow(self, *arguments):
            socket.socket.recv = receive
            time.sleep(0.5)
            return receive(self, *arguments)

        socket.socket.recv = slow
        return "slow"

    def unwritable(self, _):
        return {"a set": {1}}

    def raises(self, text):
        raise ValueError(text)


class DiesAtFirst(Tool):
    """Its first construction kills the process; what it is told of is left in a file."""

    def __init__(self, config):
        super().__init__(config)
        if not Path(config.note).exists():
            Path(config.note).touch()
            os._exit(5)
