"""What programs might leave behind on this machine, for every style of test and every sandbox."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections import defaultdict
from pathlib import Path

import psutil

SECONDS = 20.0
"""Time for things to go away: a killed process is buried a little later."""
REST = 0.5
"""Seconds without a change before what is there counts as what was there before."""
STRANGERS = "processes of the sandbox's users elsewhere"
PLACES = ("/tmp", "/dev/shm", "/var/tmp", "/dev/mqueue", "/")
TABLES = ("tcp", "tcp6", "udp", "udp6", "raw", "unix", "packet", "netlink")
KEYS = (4242, 4243)
LIST = "import os\nprint(os.listdir('.'), os.listdir('/tmp') if os.path.islink('/tmp') else [])"


class Leftovers:
    """Compares what is there with what was there before, once the sandboxes are idle again.

    Args:
        sandboxes: Those whose programs are looked after. They start a server each, if they have
            none.
    """

    def __init__(self, *sandboxes):
        self._sandboxes = sandboxes
        self._users: set[int] = set()
        gc.collect()  # what earlier tests left is not to go meanwhile
        self._folders = self._listed()
        self._before = self._settled()

    def check(self, what="it", seconds=SECONDS):
        """Fail if something is there that was not, or the other way round."""
        # once only, since the folders are emptied after this program, too; it starts lost servers
        folders = self._listed()
        assert folders == self._folders, f"{what} left files in the folders: {folders}"
        until = time.monotonic() + seconds
        while (found := self._no_fewer_descriptors(self._state())) != self._before:
            if time.monotonic() > until:
                pairs = {key: (self._before[key], now) for key, now in found.items()}
                left = {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}
                raise AssertionError(f"{what} left something behind: before and after {left}")
            time.sleep(0.01)

    def _no_fewer_descriptors(self, found):
        """Descriptors of ours that are closed are no program's doing."""
        return found | {"descriptors": max(found["descriptors"], self._before["descriptors"])}

    def _settled(self):
        """The state once it has not changed for a while, and nothing of earlier programs is left.

        On a busy machine a killed process may take longer to be buried than two looks are apart.
        """
        until, since, last = time.monotonic() + SECONDS, time.monotonic(), None
        while last is None or time.monotonic() < since + REST or last[STRANGERS]:
            if (found := self._state()) != last:
                since, last = time.monotonic(), found
            assert time.monotonic() < until, f"it does not come to rest: {last}"
            time.sleep(0.05)
        return last

    def _listed(self):
        return [sandbox.run(LIST).stdout for sandbox in self._sandboxes]

    def _state(self):
        """Everything else that is compared."""
        inside, strangers, children = self._processes()
        return {
            "processes, their threads and descriptors": sorted(map(_size, inside)),
            STRANGERS: sorted(strangers),
            "children": children,
            "threads": threading.active_count(),
            "descriptors": psutil.Process().num_fds(),
            "sockets": self._sockets(inside),
            "files": sorted(_files()),
            "shared memory, semaphores, queues": self._ipc(),
            "keys": _text("/proc/keys").count("left"),
        }

    def _processes(self):
        """Processes of the servers, others of the same users, and how many children we have."""
        below, user = defaultdict(list), {}
        for one in psutil.process_iter(["ppid", "uids"]):
            below[one.info["ppid"]].append(one.pid)
            user[one.pid] = one.info["uids"].real if one.info["uids"] else -1

        def tree(pid):
            return [pid, *(other for child in below[pid] for other in tree(child))]

        inside = set()
        for server in [one for sandbox in self._sandboxes for one in sandbox._idle]:
            launched = server._launched
            inside.update(pid for pid in tree(launched.process.pid) if pid in user)
            if launched.container is not None:  # its processes are the container tool's children
                given = launched.process.args
                self._users.add(int(given[given.index("--user") + 1].partition(":")[0]))
        # under root each server has a user of its own, which whatever it leaves would have too
        self._users |= {user[pid] for pid in inside} - {os.getuid()}
        theirs = {pid for pid, uid in user.items() if uid in self._users}
        if self._containers():  # what the tool itself does is its own affair
            inside = theirs
        return inside, theirs - inside, len(tree(os.getpid()))

    def _containers(self):
        return any(one._launched.container for box in self._sandboxes for one in box._idle)

    def _sockets(self, inside):
        """Lines of the tables of sockets; of this machine's own only what bears the mark."""
        count = 0
        for net, pid in {_net(pid): pid for pid in inside}.items():
            if net not in (None, _net(os.getpid())):
                count += sum(_text(f"/proc/{pid}/net/{table}").count("\n") for table in TABLES)
        for table in ("tcp", "tcp6", "udp", "udp6"):
            rows = (row.split() for row in _text(f"/proc/net/{table}").splitlines()[1:])
            count += sum(int(row[7]) in self._users for row in rows)
        return count + _text("/proc/net/unix").count("left")

    def _ipc(self):
        """How many objects there are of the sandbox's users, or with the keys of attacks."""
        count = 0
        for kind in ("shm", "sem", "msg"):
            head, *rows = [
                line.split() for line in _text(f"/proc/sysvipc/{kind}").splitlines()
            ] or [[]]
            for row in rows:
                one = dict(zip(head, map(int, row), strict=True))
                count += one["uid"] in self._users or one["key"] in KEYS
        return count


def _size(pid):
    """Threads and descriptors of a process, as far as they may be counted."""
    try:
        process = psutil.Process(pid)
        return process.num_threads(), process.num_fds()
    except psutil.AccessDenied:
        return 1, -1
    except psutil.NoSuchProcess:
        return 0, 0


def _net(pid):
    try:
        return os.readlink(f"/proc/{pid}/ns/net")  # noqa: PTH115
    except OSError:
        return None


def _files():
    for place in map(Path, PLACES):
        if place.is_dir():
            yield from (str(path) for path in place.iterdir() if "left" in path.name)


def _text(path):
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
