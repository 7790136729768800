"""Programs per second in each sandbox, against a fresh interpreter per program.

    python benchmarks/sandbox.py [--quick | --seconds S] [--workers N] [--python PATH] [--json FILE]

Every side runs the same small program, standard input to standard output, in short turns one after
the other, so that a busy machine slows all of them. ``fresh`` starts ``python -I -S`` with nothing
around it; ``fresh sandbox`` closes a whole sandbox around each program, as one without a fork
server would. ``x fresh`` is programs per second over those of ``fresh`` with as many workers.
``cpu`` is processor time per program, of everything that was started. ``memory`` is what a warm
server holds when it is idle, its pages that others share counted in parts (PSS), and what a program
that sleeps adds; without root it may be out of sight.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

from rlvr_code.sandbox import Limits, Sandbox
from rlvr_code.sandbox.backends import survey
from rlvr_code.sandbox.launch import Plan, Variant
from rlvr_code.sandbox.layout import layout
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


def fresh(python: str) -> Callable[[], str]:
    """A fresh interpreter for each program."""

    def once() -> str:
        done = subprocess.run(
            [python, "-I", "-S", "-c", PROGRAM], input=GIVEN, capture_output=True, text=True
        )
        return done.stdout

    return once


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


def memory(variant: Variant, python: str | None) -> tuple[float, float] | None:
    """MiB of an idle server, and what a sleeping program adds; None if the kernel does not tell.

    Nor of a container, whose processes are not below ours.
    """
    if variant in ("docker", "podman"):
        return None
    server = Server(Plan.make(variant, python))
    try:
        inside = psutil.Process(server._launched.process.pid)
        server.open("script", PROGRAM.encode(), {}, LIMITS)
        Run(server, LIMITS, GIVEN.encode(), last=True).finish()  # now all its processes are there
        idle = _pss(inside)
        server.open("serve", b"", {}, LIMITS)
        run = Run(server, LIMITS)
        while not run.said:
            run.take(*server.wait(time.monotonic() + 60))
        busy = _pss(inside)
        run.kill()
        run.finish()
        return idle, busy - idle
    except psutil.AccessDenied:
        return None
    finally:
        server.close()


def _pss(top: psutil.Process) -> float:
    found = [top, *top.children(recursive=True)]
    return sum(one.memory_full_info().pss for one in found) / (1 << 20)


def sides(workers: Sequence[int], python: str | None) -> list[Side]:
    """Every side that this machine has."""
    found = []
    executable = layout(python).python
    working = [one.variant for one in survey(python) if one.works]
    for count in workers:
        found.append(Side("fresh", count, fresh(executable), lambda: None))
        for variant in working:
            sandbox = Sandbox(variant, python=python, size=count)
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
    parser.add_argument("--quick", action="store_true", help="two turns of each side")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each side")
    parser.add_argument("--workers", type=int, default=4, help="programs at once, beside one")
    parser.add_argument("--python", help="the interpreter [this one]")
    parser.add_argument("--json", type=Path, help="write every turn here")
    given = parser.parse_args()
    found = sides((1, given.workers), given.python)
    turns = 2 if given.quick else max(2, round(given.seconds / TURN))
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
    print("\n| warm server | idle MiB | a program adds, MiB |\n|---|---|---|")
    for variant in (one.variant for one in survey(given.python) if one.works):
        if held := memory(variant, given.python):
            print(f"| {variant} | {held[0]:.1f} | {held[1]:.1f} |")
    if given.json:
        rows = [
            {key: value for key, value in asdict(side).items() if key not in ("once", "close")}
            for side in found
        ]
        given.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
