"""How much time a program has had: processor time, and time by the clock less what it waited.

On a busy machine a program that computes for one second may take ten by the clock. What counts
against its limits is the processor time that it used, and, so that one that sleeps ends too, the
time by the clock without that in which it was ready to run and another process had the processor.
The kernel counts both for each process (``/proc/PID/schedstat``).
"""

from __future__ import annotations

import select
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rlvr_code.sandbox.server import Server

CLOCK = 2.0
"""Seconds by the clock, waiting left out, that a program may take for each of processor time."""
PATIENCE = 10.0
"""Seconds by the clock, waiting included, for each; after them the machine is too busy to judge."""
_SHARE = 0.8
"""Share of a processor that this process gets on a machine that is not busy."""
_SPIN = 0.05
_LOOK = 1.0


class BusyError(Exception):
    """The machine was too busy to say whether the program keeps its limits."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What some processes have used, in seconds.

    Attributes:
        cpu: Processor time.
        waited: Time ready to run, waiting for a processor; None where the kernel does not tell.
    """

    cpu: float = 0.0
    waited: float | None = 0.0


class Timer:
    """The time of one program: its current test's, and that of all its tests together.

    Args:
        case_seconds: Processor time for each test.
        total_seconds: Processor time for all of them.
    """

    def __init__(self, case_seconds: float, total_seconds: float) -> None:
        self._case, self._total = case_seconds, total_seconds
        self._cpu = self._own = self._clock = 0.0  # of tests that are over
        self._servers: Sequence[Server] = ()
        self._began = time.monotonic()
        self._base = Usage()

    def begin(self, *servers: Server) -> None:
        """Begin a test; the time since the last ``begin`` or ``end`` is that of the one before.

        Args:
            servers: Those whose programs work on it.
        """
        if self._servers:
            self.end()
        self._servers = servers
        self._began, self._base = time.monotonic(), _usage(servers)

    def end(self) -> None:
        """End a test; starting a server, for one, is on nobody's time."""
        if self._servers:
            clock, cpu, own = self._spent()
            self._clock += clock
            self._cpu += cpu
            self._own += own
        self._servers = ()

    @property
    def over(self) -> bool:
        """Whether the time of all tests is over; asked between tests."""
        return self._cpu >= self._total or self._own >= CLOCK * self._total

    def left(self) -> float:
        """Seconds in which the current test cannot reach a limit; 0 when it has.

        Raises:
            BusyError: If the limit on the clock is reached, and not the program's doing.
        """
        limit = min(self._case, self._total - self._cpu)
        clock = time.monotonic() - self._began
        if clock < limit:  # cheap: no program of one thread can be beyond a limit
            return min(limit - clock, _LOOK)
        clock, cpu, own = self._spent()
        slept = min(CLOCK * self._case, CLOCK * self._total - self._own)
        left = min(limit - cpu, slept - own)
        if left <= 0:
            if self._base.waited is None and cpu < limit and _busy():
                raise BusyError("the machine is busy, and does not tell how long programs wait")
            return 0.0
        most = min(PATIENCE * self._case, PATIENCE * self._total - self._clock)
        if clock >= most:
            raise BusyError(
                f"in {clock:.1f} s by the clock the program had the processor for {cpu:.1f} s, and "
                "waited for it most of the others"
            )
        return max(min(left, most - clock, _LOOK), 0.001)

    def ready(self) -> list[Server]:
        """The servers that have news; none when the time of the current test is over.

        Raises:
            BusyError: See ``left``.
        """
        while (left := self.left()) > 0:
            here = [one for one in self._servers if one.pending]
            if here := here or select.select(self._servers, [], [], left)[0]:
                return here
        return []

    def _spent(self) -> tuple[float, float, float]:
        """Of the current test: by the clock, of the processor, by the clock without waiting."""
        clock, now = time.monotonic() - self._began, _usage(self._servers)
        cpu = max(now.cpu - self._base.cpu, 0.0)
        waited = max((now.waited or 0.0) - (self._base.waited or 0.0), 0.0)
        return clock, cpu, max(clock - waited, 0.0)


def waited(server: Server) -> float:
    """Seconds that a server's processes have waited for a processor; 0 where nobody tells."""
    return _usage([server]).waited or 0.0


def _usage(servers: Sequence[Server]) -> Usage:
    """Of all processes of some servers, and of the waiting of this thread, which serves them."""
    cpu, waited = 0.0, _waited(Path("/proc/thread-self"))
    for server in servers:
        if server.plan.variant in ("docker", "podman"):
            waited = None  # its processes descend from none that is known here
            continue
        for pid in _family(server.pid):
            try:
                cpu += time.clock_gettime((~pid << 3) | 2)  # the clock of its processor time
            except OSError:
                continue  # it has ended
            threads = _waiting_of_threads(pid)
            waited = None if waited is None or threads is None else waited + threads
    return Usage(cpu, waited)


def _family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    found = [pid]
    for one in found:  # grows meanwhile
        try:
            children = Path(f"/proc/{one}/task/{one}/children").read_text()
        except OSError:
            continue
        found += map(int, children.split())
    return found


def _waiting_of_threads(pid: int) -> float | None:
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return 0.0  # it has ended
    each = [_waited(thread) for thread in threads]
    known = [one for one in each if one is not None]
    return sum(known) if known or not each else None


def _waited(thread: Path) -> float | None:
    try:
        return int((thread / "schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, LookupError):
        return None


def _busy() -> bool:
    """Whether this thread gets less than its share of a processor just now."""
    clock, cpu = time.monotonic(), time.thread_time()
    while time.monotonic() < clock + _SPIN:
        pass
    return time.thread_time() - cpu < _SHARE * _SPIN
