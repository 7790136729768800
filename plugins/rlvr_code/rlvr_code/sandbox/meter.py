"""How much time a program has had: processor time, and time by the clock less what it waited.

On a busy machine a program that computes for one second may take ten by the clock. What counts
against its limits is the processor time that it used, and, so that one that sleeps ends too, the
time by the clock without that in which it was ready to run and another process had the processor.
The kernel counts both for each thread (``/proc/PID/task/TID/schedstat``), a wait when it is over;
so a program that is ready to run just now is not one that sleeps, whatever the counts say. Time in
which the whole machine stood still, this process included, is nobody's.
"""

from __future__ import annotations

import select
import threading
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
_AGAIN = 0.05
"""Seconds until one that was about to be ready to run is looked at again."""


class BusyError(Exception):
    """The machine was too busy to say whether the program keeps its limits."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Processor time of some processes, in seconds.

    Attributes:
        cpu: Processor time.
        waited: Time ready to run, waiting for a processor; None where the kernel does not tell.
    """

    cpu: float = 0.0
    waited: float | None = 0.0


class Family:
    """Measures the use of all processes of some servers from now on.

    It adds up what each process and thread has used since it was seen last: one that ends takes
    nothing of that along, and what it had used before is not counted.

    Args:
        servers: The servers.
    """

    def __init__(self, servers: Sequence[Server]) -> None:
        self._servers = servers
        self._tells = all(server.plan.variant not in ("docker", "podman") for server in servers)
        self._cpu: dict[int, float] = {}
        self._waited: dict[int, float] = {}
        self._used = Usage()
        self.look()
        self._used = Usage(0.0, 0.0 if self._tells else None)

    def look(self) -> Usage:
        """Return their use; this thread serves them, so its waiting counts as theirs."""
        cpu, waited = self._used.cpu, self._used.waited
        threads = [_this_thread()]
        for server in self._servers if self._tells else ():
            for pid in _family(server.pid):
                try:
                    now = time.clock_gettime((~pid << 3) | 2)  # the clock of its processor time
                except OSError:
                    continue  # it has ended
                cpu += _since(self._cpu, pid, now)
                threads += _threads(pid)
        for thread in threads:
            seconds = _waited(thread)
            if seconds is not None and waited is not None:
                waited += _since(self._waited, int(thread.name), seconds)
            elif thread.exists():
                waited = None  # it has not ended: this kernel does not count
        self._used = Usage(cpu, waited)
        return self._used

    def ready(self) -> bool:
        """Whether a thread of theirs runs just now, or waits for a processor."""
        pids = [pid for server in self._servers if self._tells for pid in _family(server.pid)]
        return any(_runnable(thread) for pid in pids for thread in _threads(pid))


class Timer:
    """The time of one program: its current test's, and that of all its tests together.

    Args:
        case_seconds: Processor time for each test.
        total_seconds: Processor time for all of them.
    """

    def __init__(self, case_seconds: float, total_seconds: float) -> None:
        self._case, self._total = case_seconds, total_seconds
        self._cpu = self._awake = self._clock = 0.0  # of tests that are over
        self._servers: Sequence[Server] = ()
        self._family = Family(())
        self._began = time.monotonic()
        self._stood_still, self._last_news = 0.0, False

    def begin(self, *servers: Server) -> None:
        """Begin a test; the time since the last ``begin`` or ``end`` is that of the one before.

        Args:
            servers: Those whose programs work on it.
        """
        if self._servers:
            self.end()
        self._servers, self._family = servers, Family(servers)
        self._began, self._stood_still, self._last_news = time.monotonic(), 0.0, False

    def end(self) -> None:
        """End a test; starting a server, for one, is on nobody's time."""
        if self._servers:
            clock, cpu, awake = self._spent()
            self._clock += clock
            self._cpu += cpu
            self._awake += awake
        self._servers = ()

    @property
    def over(self) -> bool:
        """Whether the time of all tests is over; asked between tests."""
        return self._cpu >= self._total or self._awake >= CLOCK * self._total

    def left(self) -> float:
        """Seconds in which the current test cannot reach a limit; 0 when it has.

        Raises:
            BusyError: If the limit on the clock is reached, and not the program's doing.
        """
        limit = min(self._case, self._total - self._cpu)
        clock = self._gone_by()
        if clock < limit:  # cheap: no program of one thread can be beyond a limit
            return min(limit - clock, _LOOK)
        clock, cpu, awake = self._spent()
        slept = min(CLOCK * self._case, CLOCK * self._total - self._awake)
        left = min(limit - cpu, slept - awake)
        most = min(PATIENCE * self._case, PATIENCE * self._total - self._clock)
        if left <= 0:
            if cpu >= limit:
                return 0.0
            if not self._family.ready():
                if self._family.look().waited is None and _busy():
                    raise BusyError("the machine is busy, and does not tell how long programs wait")
                return 0.0
            left = _AGAIN
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
            here = [server for server in self._servers if server.pending]
            if here := here or self._select(left):
                return here
        if self._last_news or self._family.look().cpu >= min(self._case, self._total - self._cpu):
            return []
        self._last_news = True  # what is here already was in time; more of it would not be
        here = [server for server in self._servers if server.pending]
        return here or select.select(self._servers, [], [], 0.0)[0]

    def _select(self, seconds: float) -> list[Server]:
        """Wait for news, and see whether that took longer than it can."""
        thread = _this_thread()
        began, before = time.monotonic(), _waited(thread) or 0.0
        news = select.select(self._servers, [], [], seconds)[0]
        waited = (_waited(thread) or 0.0) - before
        self._stood_still += max(0.0, time.monotonic() - began - seconds - waited)
        return news

    def _spent(self) -> tuple[float, float, float]:
        """Return the current test's seconds: wall, processor, and wall without waiting."""
        clock, now = self._gone_by(), self._family.look()
        return clock, now.cpu, max(clock - (now.waited or 0.0), 0.0)

    def _gone_by(self) -> float:
        """Seconds by the clock of the current test."""
        return time.monotonic() - self._began - self._stood_still


def _since(seen: dict[int, float], key: int, now: float) -> float:
    """Return the increase since the last reading; a smaller one is of another process."""
    before = seen.get(key, 0.0)
    seen[key] = now
    return now - before if now >= before else now


def _family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    pids = [pid]
    for member in pids:  # grows meanwhile
        try:
            children = Path(f"/proc/{member}/task/{member}/children").read_text()
        except OSError:
            continue
        pids += map(int, children.split())
    return pids


def _threads(pid: int) -> list[Path]:
    try:
        return list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return []  # it has ended


def _this_thread() -> Path:
    return Path(f"/proc/self/task/{threading.get_native_id()}")


def _waited(thread: Path) -> float | None:
    try:
        return int((thread / "schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, LookupError):
        return None


def _runnable(thread: Path) -> bool:
    try:
        state = (thread / "stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, LookupError):
        return False  # it has ended
    return state == "R"


def _busy() -> bool:
    """Whether this thread gets less than its share of a processor just now."""
    clock, cpu = time.monotonic(), time.thread_time()
    while time.monotonic() < clock + _SPIN:
        pass
    return time.thread_time() - cpu < _SHARE * _SPIN
