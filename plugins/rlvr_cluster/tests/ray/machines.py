"""Processes that are machines of their own: network, shared memory and temporary folder.

They are network namespaces on one bridge. Only root may make them.
"""

import os
import subprocess

import pytest


def ip(*words):
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


class Network:
    """Some machines on one bridge, with the IPv4 addresses ``10.213.78.N``."""

    def __init__(self, n):
        self.names = [f"rlvr-{os.getpid()}-{index}" for index in range(n)]
        self.hub = f"rlvr-{os.getpid()}-hub"
        self._made = []

    def address(self, index):
        return f"10.213.78.{index + 1}"

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
                ip("-n", name, "addr", "add", f"{self.address(index)}/24", "dev", "eth0")
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


class Machine:
    """Where processes have a network of their own, a ``/dev/shm`` and a temporary folder."""

    def __init__(self, folder, network, index, memory, disk):
        self.folder, self.network, self.index = folder, network, index
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

    def words(self, *command):
        """The words that run a command there."""
        share = f'mount --make-rprivate / && mount --bind "{self.folder}/shm" /dev/shm'
        within = ["ip", "netns", "exec", self.network.names[self.index]]
        temporary = f'export TMPDIR="{self.folder}/tmp"'
        script = f'{share} && {temporary} && exec "$@"'
        return [*within, "unshare", "-m", "sh", "-c", script, "sh", *command]
