"""Assertions on a program's functions.

Where its functions take and give plain data, the program runs in one sandbox and the test code in
another. A call in the test code goes to the program as plain arguments and comes back as plain
data; the expected values never leave the tester's sandbox; its results come on the tester's own
pipe, each with a nonce that only the tester was told. Tests that have to hold objects of the
program run in its own process instead, where it could forge what comes of them.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace

from rlvr_code import source
from rlvr_code.inside import serve, tester
from rlvr_code.judge.outcome import Budget, Outcome, Tally, ended
from rlvr_code.judge.rounds import limits_of, until_done, with_server
from rlvr_code.judge.talk import FailedError, Talk
from rlvr_code.sandbox.meter import Timer
from rlvr_code.sandbox.sandbox import Sandbox, as_bytes
from rlvr_code.sandbox.server import BrokenError, Server


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
    """

    tests: tuple[str, ...]
    setup: str = ""
    late: str = ""
    program: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    given: str = ""


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

    def some(tally: Tally, timer: Timer) -> None:
        with programs.server() as program, testers.server() as server:
            try:
                _Match(program, server, code, tests, tally, budget, timer).play()
            except BaseException:
                program.close()  # their state is unknown
                server.close()
                raise

    return until_done(len(tests.tests), budget, some)


def judge_beside(sandbox: Sandbox, code: str, tests: Tests, budget: Budget) -> Outcome:
    """Run tests in the process of the program, which could forge what comes of them.

    Args:
        sandbox: Where that runs.
        code: The program.
        tests: The test code.
        budget: Time and memory.
    """
    limits = limits_of(budget)

    def some(server: Server, tally: Tally, timer: Timer) -> None:
        server.open("share", as_bytes(_with_given(code, tests)), {}, limits)
        timer.begin(server)
        talk = Talk(server, limits)
        if talk.loaded_or_failed(timer, tally):
            talk.tell(tester.TEST, _job(tests, 0, ""))
            _ask_all(talk, tests, tally, timer)
        timer.end()
        talk.end()

    outcome = with_server(sandbox, len(tests.tests), budget, some)
    return replace(outcome, beside=True)


def _ask_all(talk: Talk, tests: Tests, tally: Tally, timer: Timer) -> None:
    """Have one test after the other run, up to one that ends the program."""
    try:
        while not tally.done and not timer.over:
            timer.begin(talk.server)
            nonce = os.urandom(16).hex()
            talk.tell(tester.TEST, as_bytes(tests.tests[tally.seen]))
            talk.tell(tester.TEST, nonce.encode())
            if talk.unasked:
                raise FailedError("it broke the protocol")
            kind, body = talk.wait(timer)
            tally.add(_result(kind, body, nonce))
    except FailedError as error:
        tally.add(str(error))


def _result(kind: bytes, body: bytes, nonce: str) -> str:
    """Why a test in the program's process failed; empty if it passed."""
    try:
        given, why = json.loads(body)
    except (ValueError, TypeError, RecursionError) as error:
        raise FailedError("it broke the protocol") from error
    if kind != tester.RESULT or given != nonce or not isinstance(why, str):
        raise FailedError("it broke the protocol")
    return why


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
        self._limits = limits_of(budget)

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
        if not candidate.loaded_or_failed(self._timer, self._tally):
            candidate.end()
            return
        job = _job(self._tests, self._tally.seen, self._nonce)
        self._server.open("test", job, {}, self._limits)
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
        """Pass messages on until the tests are over.

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
                    if kind == serve.ASK:
                        self._awaited += 1
                        candidate.tell(kind, body)
                    elif self._decided(kind, body):
                        return

    def _answered(self, kind: bytes) -> None:
        """Check that a program speaks only when it is asked."""
        if kind != serve.ANSWER or self._awaited == 0:
            raise FailedError("it broke the protocol")
        self._awaited -= 1

    def _decided(self, kind: bytes, body: bytes) -> bool:
        """Understand the tester; whether it has finished."""
        nonce, *rest = json.loads(body)
        if nonce != self._nonce:
            raise BrokenError("the results of other tests were told")
        if kind == tester.BEGIN:
            self._timer.begin(self._program, self._server)
        elif kind == tester.RESULT:
            self._tally.add(rest[1], bool(rest[2]))
        elif kind == tester.FINISHED:
            if rest[0]:
                self._tally.needs_objects |= bool(rest[1])
                raise FailedError(rest[0])
            return True
        return False


def _job(tests: Tests, first: int, nonce: str) -> bytes:
    """Return the job of the process that runs the tests from number ``first`` on."""
    job = {
        "setup": tests.setup,
        "late": tests.late,
        "tests": tests.tests[first:],
        "program": tests.program,
        "classes": tests.classes,
        "given": sorted(source.defined(tests.given)),
        "nonce": nonce,
    }
    return json.dumps(job).encode()
