"""Programs per second in each sandbox, against a fresh interpreter per program.

    python benchmarks/sandbox.py [--seconds S] [--workers N]

Every side runs the same small program, standard input to standard output, in short turns one after
the other, so that a busy machine slows all of them. ``fresh`` starts ``python -I -S`` with nothing
around it; ``fresh sandbox`` closes a whole sandbox around each program, as one without a fork
server would. ``x fresh`` is programs per second over those of ``fresh`` with as many workers.
``cpu`` is processor time per program, of everything that was started.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import psutil

from rlvr_code.sandbox import Limits, Sandbox
from rlvr_code.sandbox.backends import survey
from rlvr_code.sandbox.server import Run, Server

PROGRAM = """
import collections, math, re
words = re.findall(r"[a-z]+", input())
print(sum(math.isqrt(len(word)) for word in words), collections.Counter(words).most_common(1)[0][0])
"""
GIVEN = "the cat sat on the mat and the dog sat on the cat\n"
EXPECTED = "13 the\n"
LIMITS = Limits(wall_seconds=60)
TURN = 0.5
"""Seconds of a turn."""


@dataclass(slots=True)
class Side:
    """One way to run a program.

    Attributes:
        name: What it is called.
        workers: Programs at once.
        once: Runs one program and gives its output.
        close: Ends what it started.
        rates: Programs per second of each turn.
        cpu: Processor seconds per program of each turn.
    """

    name: str
    workers: int
    once: Callable[[], str]
    close: Callable[[], None]
    rates: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def turn(self, seconds: float) -> None:
        """Run programs for a while."""
        begin, busy = time.perf_counter(), _busy()
        until = begin + seconds

        def work(_: int) -> int:
            done = 0
            while time.perf_counter() < until or done == 0:
                output = self.once()
                if output != EXPECTED:
                    raise SystemExit(f"{self.name} gave {output!r}")
                done += 1
            return done

        with ThreadPoolExecutor(self.workers) as threads:
            done = sum(threads.map(work, range(self.workers)))
        self.rates.append(done / (time.perf_counter() - begin))
        self.cpu.append((_busy() - busy) / done)


def _busy() -> float:
    """Processor seconds of this process and all it has started."""
    total = sum(
        used.ru_utime + used.ru_stime
        for used in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )
    for child in psutil.Process().children(recursive=True):
        try:
            used = child.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += used.user + used.system + used.children_user + used.children_system
    return total


def fresh() -> str:
    """A fresh interpreter for the program."""
    words = [sys.executable, "-I", "-S", "-c", PROGRAM]
    return subprocess.run(words, input=GIVEN, capture_output=True, text=True).stdout


def fresh_sandbox(sandbox: Sandbox) -> Callable[[], str]:
    """A fresh sandbox for each program."""

    def once() -> str:
        server = Server(sandbox.plan)
        server.open("script", PROGRAM.encode(), {}, LIMITS)
        result = Run(server, LIMITS, GIVEN.encode()).finish()
        server.close()
        return result.stdout

    return once


def warm(sandbox: Sandbox) -> Callable[[], str]:
    """The sandbox as it is used."""
    return lambda: sandbox.run(PROGRAM, stdin=GIVEN, limits=LIMITS).stdout


def sides(workers: Sequence[int]) -> list[Side]:
    """Every side that this machine has."""
    found = []
    working = [one.variant for one in survey() if one.works]
    for count in workers:
        found.append(Side("fresh", count, fresh, lambda: None))
        for variant in working:
            sandbox = Sandbox(variant, size=count)
            found.append(Side(variant, count, warm(sandbox), sandbox.close))
            if count == 1 and variant != "unsafe":
                name = f"fresh sandbox, {variant}"
                found.append(Side(name, count, fresh_sandbox(sandbox), sandbox.close))
    return found


def table(found: Sequence[Side]) -> str:
    """What was measured, for people."""
    base = {side.workers: statistics.median(side.rates) for side in found if side.name == "fresh"}
    lines = [
        "| programs run in | at once | programs/s | x fresh | cpu ms |",
        "|---|---|---|---|---|",
    ]
    for side in found:
        rate, cpu = statistics.median(side.rates), statistics.median(side.cpu)
        lines.append(
            f"| {side.name} | {side.workers} | {rate:.1f} | {rate / base[side.workers]:.1f} | "
            f"{1000 * cpu:.1f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=10.0, help="of each side")
    parser.add_argument("--workers", type=int, default=4, help="programs at once, beside one")
    given = parser.parse_args()
    found = sides((1, given.workers))
    turns = max(2, round(given.seconds / TURN))
    for side in found:
        side.turn(0.0)
    for side in found:
        side.rates.clear()
        side.cpu.clear()
    for _ in range(turns):
        for side in found:
            side.turn(TURN)
    for side in found:
        side.close()
    print(f"Python {sys.version.split()[0]}, {psutil.cpu_count()} cores, {turns} turns\n")
    print(table(found))


if __name__ == "__main__":
    main()
