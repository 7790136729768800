"""Assertions on a program's functions, made where the program cannot reach.

The program runs in one sandbox, the test code in another. A call in the test code goes to the
program as plain arguments and comes back as plain data; the expected values never leave the
tester's sandbox, and its results come on the tester's own pipe, each with a nonce that only the
tester was told.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace

from rlvr_code import source
from rlvr_code.inside import serve, tester
from rlvr_code.judge.outcome import Budget, Outcome, Tally, ended
from rlvr_code.judge.talk import FailedError, Talk
from rlvr_code.sandbox.limits import Limits
from rlvr_code.sandbox.meter import PATIENCE, BusyError, Timer
from rlvr_code.sandbox.sandbox import Sandbox, as_bytes
from rlvr_code.sandbox.server import BrokenError, Server

MARGIN = 5.0
"""Seconds of grace before the sandbox itself ends what the judge should have ended."""
BREAKS = 2
"""How often a program may take the sandbox down before that is its result."""


@dataclass(frozen=True, slots=True)
class Tests:
    """Test code.

    Attributes:
        tests: One text for each test.
        setup: Code before the program is known to the tests.
        late: Code after that.
        program: Names that are the program's, whatever the setup defines.
        classes: Those of them that the tests use as classes.
        given: Code that the program may take for granted, run before it.
        stored: Those of the program's names that the tests may set before they have read them.
    """

    tests: tuple[str, ...]
    setup: str = ""
    late: str = ""
    program: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    given: str = ""
    stored: tuple[str, ...] = ()


def judge(programs: Sandbox, testers: Sandbox, code: str, tests: Tests, budget: Budget) -> Outcome:
    """Run tests on a program.

    Args:
        programs: Where programs run.
        testers: Where test code runs; not the same, so that no program descends from a process
            that has seen tests.
        code: The program.
        tests: The test code.
        budget: Time and memory.
    """
    tally = Tally(len(tests.tests), budget)
    timer = Timer(budget.case_seconds, budget.total_seconds)
    breaks = 0
    while not tally.done and not timer.over:
        with programs.server() as program, testers.server() as server:
            try:
                _Match(program, server, code, tests, tally, budget, timer).play()
            except BrokenError:
                program.close()
                server.close()
                breaks += 1
            except BaseException:
                program.close()  # nobody knows what they are at
                server.close()
                raise
            finally:
                timer.end()
        if breaks == BREAKS:
            tally.add("it took the sandbox down")
            breaks = 0
    if not tally.done:
        tally.add("the time for all tests is over")
    found = tally.outcome()
    if found.crossed and not found.all_passed:
        found = replace(found, beside=_beside(programs, code, tests, budget))
    return found


def _beside(programs: Sandbox, code: str, tests: Tests, budget: Budget) -> bool:
    """Whether the tests pass in the program's own process, which proves nothing (see Outcome)."""
    if any(tester.RUN in one for one in tests.tests):
        return False  # files of pytest, which the sandbox does not have
    end = os.urandom(16).hex()
    parts = (tests.setup, _with_given(code, tests), tests.late, *tests.tests)
    run = f"""import sys
sys.modules["solution"] = sys.modules["__main__"]
for part in {[part.encode("utf-8", "replace") for part in parts]!r}:
    exec(compile(part, "solution", "exec", dont_inherit=True), globals())
print("\\n{end}")
"""
    seconds = min(2 * budget.case_seconds, budget.total_seconds)
    limits = Limits(
        cpu_seconds=seconds, wall_seconds=PATIENCE * seconds, memory_mb=budget.memory_mb
    )
    try:
        result = programs.run(run, limits=limits)
    except BusyError:
        return False
    return result.ok and end in result.stdout


def _with_given(code: str, tests: Tests) -> str:
    given = tests.given
    if not given:
        return code
    future = "from __future__ " in code  # must come first, and does no harm there
    return f"{'from __future__ import annotations' if future else ''}\n{given}\n{code}"


class _Match:
    """Program against tests, from the first test not decided to one that ends the program."""

    def __init__(
        self,
        program: Server,
        server: Server,
        code: str,
        tests: Tests,
        tally: Tally,
        budget: Budget,
        timer: Timer,
    ) -> None:
        self._program, self._server, self._code, self._tests = program, server, code, tests
        self._tally, self._timer = tally, timer
        self._nonce = os.urandom(16).hex()
        self._awaited = 0
        self._limits = Limits(
            cpu_seconds=budget.total_seconds + 1,
            wall_seconds=PATIENCE * budget.total_seconds + MARGIN,
            memory_mb=budget.memory_mb,
        )

    def play(self) -> None:
        """Play it; what is decided is in the tally.

        Raises:
            BrokenError: If a sandbox breaks.
            BusyError: If the machine is too busy for it.
        """
        self._timer.begin(self._program)
        self._program.open(
            "serve", as_bytes(_with_given(self._code, self._tests)), {}, self._limits
        )
        candidate = Talk(self._program, self._limits)
        try:
            candidate.loaded(self._timer)
        except FailedError as error:
            while not self._tally.done:
                self._tally.add(str(error))
            candidate.end()
            return
        self._server.open("test", self._job(), {}, self._limits)
        referee = Talk(self._server, self._limits)
        self._timer.begin(self._program, self._server)
        try:
            self._relay(candidate, referee)
        except FailedError as error:
            self._tally.add(str(error))
        self._timer.end()
        candidate.end()
        referee.end()

    def _relay(self, candidate: Talk, referee: Talk) -> None:
        """Carry messages to and fro until the tests are over.

        Raises:
            FailedError: If the current test is the last that this program can be asked.
        """
        while not self._tally.done:
            if candidate.run.result is not None and self._awaited:
                raise FailedError(ended(candidate.run.result))
            if referee.run.result is not None:
                raise FailedError(f"the tests themselves: {ended(referee.run.result)}")
            ready = self._timer.ready()
            if not ready:
                raise FailedError("time limit")
            if self._program in ready:
                for kind, body in candidate.take_in():
                    self._answered(kind)
                    referee.tell(kind, body)
            if self._server in ready:
                for kind, body in referee.take_in():
                    if kind in (serve.ASK, serve.BACK_ANSWER):
                        self._awaited += 1
                        candidate.tell(kind, body)
                    elif self._decided(kind, body):
                        return

    def _answered(self, kind: bytes) -> None:
        """See that a program speaks only when it is asked."""
        if kind not in (serve.ANSWER, serve.BACK) or self._awaited == 0:
            raise FailedError("it broke the protocol")
        self._awaited -= 1

    def _decided(self, kind: bytes, body: bytes) -> bool:
        """Understand the tester; whether it has finished."""
        nonce, *said = json.loads(body)
        if nonce != self._nonce:
            raise BrokenError("the results of other tests were told")
        if kind == tester.BEGIN:
            self._timer.begin(self._program, self._server)
        elif kind == tester.RESULT:
            self._tally.add(said[1], bool(said[2]))
        elif kind == tester.FINISHED:
            if said[0]:
                raise FailedError(said[0])
            return True
        return False

    def _job(self) -> bytes:
        job = {
            "setup": self._tests.setup,
            "late": self._tests.late,
            "tests": self._tests.tests[self._tally.seen :],
            "program": self._tests.program,
            "classes": self._tests.classes,
            "given": sorted(source.defined(self._tests.given)),
            "stored": self._tests.stored,
            "nonce": self._nonce,
        }
        return json.dumps(job).encode()
