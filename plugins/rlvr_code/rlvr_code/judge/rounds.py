"""Rounds of a judge: as many servers as it takes, until every test is decided."""

from __future__ import annotations

from collections.abc import Callable

from rlvr_code.judge.outcome import Budget, Outcome, Tally
from rlvr_code.sandbox.limits import Limits
from rlvr_code.sandbox.meter import PATIENCE, Timer
from rlvr_code.sandbox.sandbox import Sandbox
from rlvr_code.sandbox.server import BrokenError, Server

MARGIN = 5.0
"""Seconds of grace before the sandbox itself ends what the judge should have ended."""
BREAKS = 2
"""How often a program may take the sandbox down before that is its result."""


def until_done(total: int, budget: Budget, some: Callable[[Tally, Timer], None]) -> Outcome:
    """Go through tests with as many servers as it takes.

    Args:
        total: Tests there are.
        budget: Time and memory.
        some: Runs tests from the first not decided to one that ends the program. It closes the
            servers that it leaves in the middle of something.
    """
    tally = Tally(total, budget)
    timer = Timer(budget.case_seconds, budget.total_seconds)
    breaks = 0
    while not tally.done and not timer.over:
        try:
            some(tally, timer)
        except BrokenError:
            breaks += 1
        finally:
            timer.end()
        if breaks == BREAKS:
            tally.add("it took the sandbox down")
            breaks = 0
    if not tally.done:
        tally.add("the time for all tests is over")
    return tally.outcome()


def limits_of(budget: Budget) -> Limits:
    """Of a process that is asked several things."""
    return Limits(
        cpu_seconds=budget.total_seconds + 1,
        wall_seconds=PATIENCE * budget.total_seconds + MARGIN,
        memory_mb=budget.memory_mb,
    )


def with_server(
    sandbox: Sandbox, total: int, budget: Budget, some: Callable[[Server, Tally, Timer], None]
) -> Outcome:
    """Go through tests on one server at a time; one that is left in the middle is closed."""

    def once(tally: Tally, timer: Timer) -> None:
        with sandbox.server() as server:
            try:
                some(server, tally, timer)
            except BaseException:
                server.close()
                raise

    return until_done(total, budget, once)
