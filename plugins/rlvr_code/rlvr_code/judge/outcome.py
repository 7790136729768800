"""What became of the tests of one program."""

from __future__ import annotations

from dataclasses import dataclass

from rlvr_code.sandbox.limits import Result
from rlvr_code.sandbox.meter import BusyError


@dataclass(frozen=True, slots=True)
class Budget:
    """How long tests may take, and when to give up.

    Attributes:
        case_seconds: Processor time of each test; loading the program counts as one.
        total_seconds: Of all of them together.
        stop_after: Failures in a row after which the rest counts as failed.
        memory_mb: Memory of the program.
    """

    case_seconds: float
    total_seconds: float
    stop_after: int
    memory_mb: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the tests.

    Attributes:
        passed: Tests passed.
        total: Tests there are, those not run included.
        why: Why the first failed test did; empty if none did.
        needs_objects: Whether the tests ask for what is no plain data, whatever the program does.
        beside: Whether the tests ran in the program's process, which could have forged it.
    """

    passed: int
    total: int
    why: str = ""
    needs_objects: bool = False
    beside: bool = False

    @property
    def all_passed(self) -> bool:
        """Whether there are tests and each passed."""
        return self.passed == self.total > 0


class Tally:
    """Counts results as they come, and says when to stop."""

    def __init__(self, total: int, budget: Budget) -> None:
        self._total, self._budget = total, budget
        self._passed = 0
        self._row = 0
        self._why = ""
        self.needs_objects = False
        self.seen = 0

    def add(self, why: str, needs_objects: bool = False) -> None:
        """Count a test; ``why`` is empty if it passed, and may be the program's words."""
        self.seen += 1
        self.needs_objects |= needs_objects
        self._passed += not why
        self._row = self._row + 1 if why else 0
        if why and not self._why:
            reason = why.encode("utf-8", "backslashreplace").decode()  # halves of surrogate pairs
            self._why = f"test {self.seen} of {self._total}: {reason}"

    @property
    def done(self) -> bool:
        """Whether no more tests are wanted."""
        return self.seen >= self._total or self._row >= self._budget.stop_after

    def outcome(self) -> Outcome:
        """The result so far; tests not run have failed."""
        return Outcome(self._passed, self._total, self._why, self.needs_objects)


def ended(result: Result) -> str:
    """How a program ended, in words.

    Raises:
        BusyError: If the sandbox ended it by the clock, which the judge should have done long ago.
    """
    match result.reason:
        case "wall":
            raise BusyError(f"the program was not watched for {result.seconds:.1f} s")
        case "killed":
            return "time limit"
        case "cpu":
            return "limit of processor time"
        case "files":
            return "more files than it may have"
        case "broke":
            return "it took the sandbox down"
        case "signal":
            return f"ended by signal {-result.exit}"
    last = result.stderr.strip().rpartition("\n")[2]
    return f"ended with status {result.exit}" + (f": {last[:200]}" if last else "")
