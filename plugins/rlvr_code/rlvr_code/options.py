"""Shared parts of the verifiers of programs: options, sandboxes, and the way to a verdict."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Annotated, Any, Generic, Literal, TypedDict, TypeVar

from pydantic import Field

from rlvr_code import packages, source
from rlvr_code.judge.outcome import Budget, Outcome
from rlvr_code.sandbox.backends import Choice
from rlvr_code.sandbox.meter import PATIENCE, BusyError
from rlvr_code.sandbox.sandbox import Sandbox
from rlvr_core.api import Completion, ComponentConfig, DataError, Problem, Verdict, VerifierTraits

MARGIN = 60.0
"""Seconds beyond its own limit after which a verifier is given up; servers take time to start."""
LONGEST = 200_000
"""The longest response that is read, in characters; a longer one has no program."""
_KEPT = 10_000

Seconds = Annotated[float, Field(gt=0)]


class JudgeConfig(ComponentConfig):
    """Options that all verifiers of programs share."""

    score: Literal["all", "fraction"] = "all"
    """``all``: 1 if every test passes, else 0. ``fraction``: the share that passes."""
    case_seconds: Seconds = 5.0
    """Processor seconds that one test may take; loading the program counts as one. By the clock it
    may take twice as long, not counting the time in which it waits for a processor."""
    total_seconds: Seconds = 30.0
    """Processor seconds that all tests of a program may take together; the clock likewise."""
    stop_after: Annotated[int, Field(gt=0)] | None = None
    """Failed tests in a row after which the rest counts as failed; 1 for ``all``, 3 for
    ``fraction`` if absent."""
    memory_mb: Annotated[int, Field(ge=16)] = 512
    """Memory of a program."""
    cut: bool = True
    """End a program that is in no fence after the definitions it was asked for and what they
    need."""
    trim: bool = True
    """Leave out the end of a program that is in no fence, or in one that is never closed, if only
    what is before it parses: for base models, which write on, and for answers cut off by a length
    limit. What stands in a closed fence is run as it is, and fails if it does not compile."""
    backend: Choice = "auto"
    """The sandbox: the first that works of bwrap, namespaces, landlock, podman and docker, or one
    by name; ``unsafe`` is none at all."""
    python: str | None = None
    """The interpreter that runs programs, at least 3.11; the trainer's own, without its packages,
    if absent."""
    image: str = "python:3.11-slim"
    """Image of docker and podman."""
    packages: tuple[str, ...] = ()
    """Installed packages that programs and tests may import, such as ``numpy``, with what they
    require; the sandbox has no others. They are the trainer's own: ``python`` and ``image`` must be
    of the same version of Python."""

    def budget(self) -> Budget:
        """Time and memory of the tests."""
        stop_after = self.stop_after or (1 if self.score == "all" else 3)
        return Budget(self.case_seconds, self.total_seconds, stop_after, self.memory_mb)


class Sandboxes:
    """The sandboxes of one verifier, made when first used: where programs run, and test code.

    Args:
        config: Of the verifier.
        show: Paths that programs read besides Python's.
    """

    def __init__(self, config: JudgeConfig, show: tuple[str, ...] = ()) -> None:
        self._config, self._show = config, show
        self._made: dict[str, Sandbox] = {}

    @property
    def programs(self) -> Sandbox:
        """Where programs run."""
        return self._get("programs")

    @property
    def testers(self) -> Sandbox:
        """Where test code runs."""
        return self._get("testers")

    def _get(self, name: str) -> Sandbox:
        if name not in self._made:
            config, shown = self._config, packages.shown(self._config.packages)
            self._made[name] = Sandbox(
                config.backend,
                python=config.python,
                image=config.image,
                packages=shown.folders,
                warm=shown.modules,
                show=self._show,
            )
        return self._made[name]

    def close(self) -> None:
        """End them."""
        for sandbox in self._made.values():
            sandbox.close()
        self._made.clear()


class How(TypedDict):
    """Options of ``extract.program``."""

    cut: bool
    trim: bool


Prepared = TypeVar("Prepared")


class ProgramVerifier(ABC, Generic[Prepared]):
    """Base of the verifiers: from a response to a verdict."""

    traits = VerifierTraits(
        reward_range=(0.0, 1.0), beside=("backend", "python", "image"), repeatable=False
    )

    def __init__(self, config: Any) -> None:
        self.config = config
        self.sandboxes = Sandboxes(config)

    @staticmethod
    def time_limit(config: JudgeConfig) -> float:
        """Seconds after which a verdict is given up from outside."""
        return PATIENCE * config.total_seconds + MARGIN

    @property
    def how(self) -> How:
        """Options of ``extract.program``."""
        return How(cut=self.config.cut, trim=self.config.trim)

    @abstractmethod
    def prepare(self, problem: Problem) -> Prepared:
        """The tests of a problem.

        Raises:
            DataError: If its spec does not give them.
        """

    def test_code(self, problem: Problem) -> Sequence[str]:
        """The problem's own Python code that is run."""
        return ()

    @abstractmethod
    def extract(self, problem: Problem, tests: Prepared, text: str) -> str:
        """The program in a response."""

    @abstractmethod
    def judge(self, problem: Problem, tests: Prepared, code: str) -> Outcome:
        """Run the tests and return the outcome."""

    def check(self, problem: Problem) -> None:
        """Refuse a problem that cannot be judged, and a machine without sandbox.

        Raises:
            DataError: If the spec lacks something, tests above all.
            MachineError: If there is no sandbox to run programs in.
        """
        self.prepare(problem)
        for code in self.test_code(problem):
            if missing := self.undeclared(code):
                raise DataError(
                    f"{problem.id}: the tests import {', '.join(missing)}, which the sandbox does "
                    "not have, so that no program would pass",
                    remedy="declare it in the verifier's option packages",
                )
        _ = self.sandboxes.programs  # made, not started

    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        """Judge one response."""
        try:
            tests = self.prepare(problem)
        except DataError as error:
            return Verdict(score=None, status="unscorable", detail=error.complaints[0].what)
        if len(completion.text) > LONGEST:
            why = f"a response of {len(completion.text):,} characters is not read"
            return Verdict(score=0.0, passed=False, parts={"tests": 0.0}, detail=why)
        try:
            code = self.extract(problem, tests, completion.text)
        except (source.OverBudgetError, RecursionError, MemoryError) as error:
            why = f"no program can be read from the response: {error or type(error).__name__}"
            return Verdict(score=0.0, passed=False, parts={"tests": 0.0}, detail=why[:300])
        try:
            outcome = self.judge(problem, tests, code)
        except BusyError as error:
            return Verdict(score=None, status="busy", detail=f"the machine is busy: {error}"[:300])
        share = outcome.passed / outcome.total
        missing = [] if outcome.all_passed else self.undeclared(code)
        note = f"; the sandbox has no {', '.join(missing)}: see packages" if missing else ""
        if outcome.beside:
            note += "; judged in the program's own process, which could have forged it"
        return Verdict(
            score=share if self.config.score == "fraction" else float(outcome.all_passed),
            passed=outcome.all_passed,
            parts={"tests": share}
            | ({"undeclared_import": 1.0} if missing else {})
            | ({"in_process": 1.0} if outcome.beside else {}),
            extracted=code[:_KEPT],
            detail=(outcome.why or f"all {outcome.total} tests pass") + note,
        )

    def undeclared(self, code: str) -> list[str]:
        """Modules that a program imports and the sandbox does not have."""
        there = sys.stdlib_module_names | {"solution", "pytest"}
        there |= {module for name in self.config.packages for module in packages.modules(name)}
        return sorted(source.imported_modules(code) - there)[:5]

    def close(self) -> None:
        """End the sandboxes."""
        self.sandboxes.close()
