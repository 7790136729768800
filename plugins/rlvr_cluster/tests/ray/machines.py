"""Processes that are machines of their own: network, shared memory and temporary folder.

Network namespaces on one bridge; each process is a fork of the test's, so that torch is imported
once. Only root may make them.
"""

import ctypes
import multiprocessing
import os
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

_NEWNS, _NEWNET = 0x00020000, 0x40000000
_PRIVATE = (1 << 14) | (1 << 18)  # MS_REC | MS_PRIVATE
FORK = multiprocessing.get_context("fork")


def ip(*words):
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


class Network:
    """Some machines on one bridge, with IPv4 addresses ``10.213.78.N`` and ``fd78::N``."""

    def __init__(self, n, *, ipv6=False):
        self.names = [f"rlvr-{os.getpid()}-{index}" for index in range(n)]
        self.hub = f"rlvr-{os.getpid()}-hub"
        self.address = (lambda i: f"fd78::{i + 1}") if ipv6 else (lambda i: f"10.213.78.{i + 1}")
        self._made = []
        self._ipv6 = ipv6

    def __enter__(self):
        try:
            for name in (self.hub, *self.names):
                ip("netns", "add", name)
                self._made.append(name)
            ip("-n", self.hub, "link", "add", "br0", "type", "bridge")
            ip("-n", self.hub, "link", "set", "br0", "up")
            for index, name in enumerate(self.names):
                other = ["type", "veth", "peer", "name", "eth0", "netns", name]
                ip("link", "add", f"p{index}", "netns", self.hub, *other)
                ip("-n", self.hub, "link", "set", f"p{index}", "master", "br0", "up")
                width = ["64"] if self._ipv6 else ["24"]
                flags = ["nodad"] if self._ipv6 else []
                where = f"{self.address(index)}/{width[0]}"
                ip("-n", name, "addr", "add", where, "dev", "eth0", *flags)
                for device in ("eth0", "lo"):
                    ip("-n", name, "link", "set", device, "up")
        except (OSError, subprocess.CalledProcessError) as error:
            self.__exit__()
            pytest.skip(f"needs network namespaces, which root may make: {error}")
        return self

    def __exit__(self, *_):
        for name in self._made:
            ip("netns", "del", name)

    def sent(self, index):
        """Bytes that a machine has sent to others."""
        file = "/sys/class/net/eth0/statistics/tx_bytes"
        return int(ip("netns", "exec", self.names[index], "cat", file))

    def limit(self, index, rate):
        """Let what a machine sends and receives pass at a rate only, such as ``80mbit``."""
        for name, device in ((self.names[index], "eth0"), (self.hub, f"p{index}")):
            limit = ["tbf", "rate", rate, "burst", "64kb", "latency", "200ms"]
            command = ["tc", "-n", name, "qdisc", "add", "dev", device, "root", *limit]
            if subprocess.run(command, check=False, capture_output=True).returncode:
                pytest.skip("needs the token bucket filter of tc")


class Machine:
    """Where processes have a network of their own, a ``/dev/shm`` and a temporary folder.

    Processes of one machine share them: the first makes them, the others join it.
    """

    def __init__(self, folder, network=None, index=0, memory="64m", disk="64m"):
        self.folder, self.network, self.index = folder, network, index
        self.memory, self.disk = memory, disk
        folder.mkdir(parents=True)
        for name in ("tmp", "shm"):
            (folder / name).mkdir()
        for name, size in (("shm", memory), ("tmp", disk)):
            words = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder / name)]
            try:
                subprocess.run(words, check=True, capture_output=True)
            except (OSError, subprocess.CalledProcessError) as error:
                self.remove()
                pytest.skip(f"needs to mount, which root may: {error}")

    def remove(self):
        for name in ("tmp", "shm"):
            subprocess.run(["umount", str(self.folder / name)], check=False, capture_output=True)

    def left(self):
        """What lies in its shared memory and its temporary folder."""
        return sorted(
            str(one.relative_to(self.folder))
            for name in ("tmp", "shm")
            for one in (self.folder / name).rglob("*")
        )

    def start(self, function, *arguments):
        """Run a function there; returns the process, and the end of a pipe that it writes to."""
        ours, theirs = FORK.Pipe()
        process = FORK.Process(target=self._enter, args=(theirs, function, arguments), daemon=True)
        process.start()
        theirs.close()
        return process, ours

    def words(self, *command):
        """The words that run a command there."""
        share = f'mount --make-rprivate / && mount --bind "{self.folder}/shm" /dev/shm'
        within = [] if self.network is None else ["ip", "netns", "exec"]
        within += [] if self.network is None else [self.network.names[self.index]]
        temporary = f'export TMPDIR="{self.folder}/tmp"'
        script = f'{share} && {temporary} && exec "$@"'
        return [*within, "unshare", "-m", "sh", "-c", script, "sh", *command]

    def _enter(self, pipe, function, arguments):
        try:
            libc = ctypes.CDLL(None, use_errno=True)

            def do(name, *words):
                if getattr(libc, name)(*words) != 0:
                    raise OSError(ctypes.get_errno(), name)

            if self.network is not None:
                with Path("/var/run/netns", self.network.names[self.index]).open() as file:
                    do("setns", file.fileno(), _NEWNET)
            do("unshare", _NEWNS)
            do("mount", b"none", b"/", None, _PRIVATE, None)
            do("mount", str(self.folder / "shm").encode(), b"/dev/shm", None, 4096, None)  # MS_BIND
            os.environ["TMPDIR"] = str(self.folder / "tmp")
            import tempfile

            tempfile.tempdir = None
            function(pipe, *arguments)
        except BaseException:
            traceback.print_exc(file=sys.stderr)
            os._exit(1)
        os._exit(0)
