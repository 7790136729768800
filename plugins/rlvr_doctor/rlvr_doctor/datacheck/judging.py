"""Judges responses as a run would: by the verifier of a problem, or in its environment."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from rlvr_core.api import (
    ChecksProblems,
    ClosesConversations,
    Completion,
    Done,
    GivesGold,
    Problem,
    Reply,
    RlvrError,
    Verdict,
)
from rlvr_core.toolkit import ComponentRef, VerifierPool, VerifierSpec, build, load_host, outcome

MEMORY_MB = 2048
SEED = 0
"""Seed of the conversations with environments."""


@dataclass(slots=True)
class Judge:
    """Judges responses, and counts missing verdicts.

    Attributes:
        verifier: The verifier and its options, in place of the one each problem names.
        timeout: Seconds that one verdict may take.
        workers: Number of processes.
    """

    verifier: ComponentRef | None = None
    timeout: float = 10.0
    workers: int = field(default_factory=lambda: os.cpu_count() or 1)
    failed: Counter[str] = field(default_factory=Counter)
    example: str = ""
    _pool: VerifierPool | None = None
    _names: dict[str, str] = field(default_factory=dict)
    _built: dict[str, Any] = field(default_factory=dict)
    _worlds: dict[str, Any] = field(default_factory=dict)

    def open(self, problems: Iterable[Problem]) -> None:
        """Look up the verifiers and environments of some problems, and check the problems.

        Raises:
            ConfigError: If a name or an option is wrong.
            DataError: If a verifier refuses a problem.
            PluginError: If a plugin is missing or broken.
        """
        problems, host, specs = list(problems), load_host(), {}
        for name in sorted({problem.verifier for problem in problems}):
            ref = self.verifier or ComponentRef(use=name)
            entry = host.entry("verifier", ref.use, "data: problems name it")
            self._names[name] = entry.name
            self._built[name] = build(host, "verifier", ref, "the verifier")
            specs[entry.name] = VerifierSpec(entry.target, ref.with_)
        for name in sorted({problem.environment for problem in problems if problem.environment}):
            ref = ComponentRef(use=name)
            self._worlds[name] = build(host, "environment", ref, "data: problems name it")
        for problem in problems:
            checks = [self._built[problem.verifier], self._worlds.get(problem.environment or "")]
            for check in checks:
                if isinstance(check, ChecksProblems):
                    check.check(problem)
        self._pool = VerifierPool(
            specs, workers=self.workers, timeout=self.timeout, memory_mb=MEMORY_MB
        )

    def __enter__(self) -> Judge:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            self._pool.close()

    def gold(self, problem: Problem) -> str | None:
        """Return a right response; None if the verifier has none."""
        verifier = self._built[problem.verifier]
        return verifier.gold(problem) if isinstance(verifier, GivesGold) else None

    def verdicts(self, problem: Problem, responses: Sequence[str]) -> Future[list[Verdict]]:
        """Judge responses to one problem; verdicts are in the same order."""
        answered: Future[list[Verdict]] = Future()
        if problem.environment is not None:
            answered.set_result([self._played(problem, text) for text in responses])
            return answered
        assert self._pool is not None, "open() comes first"
        name = self._names[problem.verifier]
        completions = [Completion.from_text(text) for text in responses]
        self._pool.submit_group(problem, completions, [name]).add_done_callback(
            lambda done: answered.set_result([verdicts[name] for verdicts in done.result()])
        )
        return answered

    def outcomes(self, problem: Problem, responses: Sequence[str]) -> Future[Mapping[str, bool]]:
        """Judge different responses to one problem: which of them pass."""
        different = list(dict.fromkeys(responses))
        passed: Future[Mapping[str, bool]] = Future()

        def note(done: Future[list[Verdict]]) -> None:
            verdicts = dict(zip(different, done.result(), strict=True))
            for text, verdict in verdicts.items():
                self._note(problem, text, verdict)
            passed.set_result({text: bool(outcome(verdict)) for text, verdict in verdicts.items()})

        self.verdicts(problem, different).add_done_callback(note)
        return passed

    def _note(self, problem: Problem, text: str, verdict: Verdict) -> None:
        if verdict.status not in ("ok", "unscorable"):
            self.failed[verdict.status] += 1
            self.example = self.example or (
                f"{problem.id}: {text[:80]!r}: {verdict.status}: {verdict.detail[:200]}"
            )

    def _played(self, problem: Problem, text: str) -> Verdict:
        """Return the verdict on a conversation of one reply; score 0 if it does not end there."""
        world = self._worlds[problem.environment or ""]
        try:
            state = world.start(problem, SEED)
            answer = world.step(state, Reply(text, 0, 0))
            if isinstance(world, ClosesConversations):
                world.close(state)
        except RlvrError:
            raise
        except Exception as error:
            return Verdict(None, "error", detail=f"{type(error).__name__}: {error}")
        if isinstance(answer, Done) and answer.verdict is not None:
            return answer.verdict
        return Verdict(0.0)
