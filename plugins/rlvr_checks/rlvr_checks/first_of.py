"""The verifier ``checks/first-of``: a rule, and a second verifier for what the rule fails."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import Field

from rlvr_core.api import (
    ChecksProblems,
    Completion,
    ComponentConfig,
    ConfigError,
    GivesGold,
    GroupsScored,
    GroupVerifier,
    Json,
    LimitsTime,
    Metric,
    NeedsCalibration,
    Problem,
    RunError,
    StepFinished,
    Verdict,
    Verifier,
    VerifierTraits,
    config_class,
    traits_of,
)
from rlvr_core.toolkit import ComponentRef, Host, build, load_host, outcome

_log = logging.getLogger(__name__)

AUTO = "auto"
SECOND = "second_alone"
"""Part of a verdict: 1 if only the second verifier passed the answer, else 0."""
MINIMUM = 20
"""Minimum passes in the window to compare the share with its bound."""


class FirstOf:
    """Passes what the first verifier passes; asks the second one about the rest.

    The second verifier judges only what the first one has judged and not passed. A verdict of the
    first without a score, such as an error or a timeout, is not a no: it is the verdict. So is one
    of the second.

    In a run it is a guard as well: it reports the share of passes that only the second verifier
    granted, and stops the run, or warns, when that is above ``max_share``.
    """

    class Config(ComponentConfig):
        """Options of ``checks/first-of``."""

        first: ComponentRef
        """The rule: a verifier with its options, or ``auto``, each problem's own."""
        second: ComponentRef
        """The verifier that is asked where the rule says no, such as ``checks/judge``."""
        max_share: Annotated[float, Field(ge=0, le=1)] = 0.5
        """Largest share of the passes of ``window`` steps that the second verifier may have granted
        alone; 1 is no bound."""
        window: Annotated[int, Field(gt=0)] = 10
        """Steps over which the share is taken."""
        above: Literal["stop", "warn"] = "stop"
        """The reaction above ``max_share``."""
        timeout: Annotated[float, Field(gt=0)] = 30.0
        """Seconds a verdict of either verifier may take, if it sets no limit of its own."""

    reports = (
        Metric(
            "first_of/second_share",
            "Of the answers that passed checks/first-of, the share that its second verifier alone "
            "passed.",
            "share",
        ),
        Metric(
            "first_of/asked",
            "Share of its verdicts for which the second verifier was asked.",
            "share",
        ),
    )

    def __init__(self, config: Config) -> None:
        self._config = config
        self._first_verifiers: dict[str, Any] = {}
        self._second = _verifier(config.second, "second")
        if config.first.use != AUTO:
            self._first_verifiers[AUTO] = _verifier(config.first, "first")
        elif config.first.with_:
            raise ConfigError("checks/first-of: 'first: auto' takes no options")
        self._steps: deque[tuple[int, int]] = deque(maxlen=config.window)
        self._verdict_count = self._second_calls = 0

    @staticmethod
    def time_limit(config: FirstOf.Config) -> float:
        """Return the seconds for both verifiers, one after the other."""
        return sum(_limit(ref, config.timeout) for ref in (config.first, config.second))

    def check(self, problem: Problem) -> None:
        """Have both verifiers check the problem.

        Raises:
            DataError: If one of them cannot judge it.
        """
        for verifier in (self._first(problem), self._second):
            if isinstance(verifier, ChecksProblems):
                verifier.check(problem)

    def gold(self, problem: Problem) -> str | None:
        """Return the gold answer of the first verifier, else of the second."""
        known = (self._first(problem), self._second)
        answers = (verifier.gold(problem) for verifier in known if isinstance(verifier, GivesGold))
        return next((answer for answer in answers if answer is not None), None)

    def calibration(self) -> Mapping[str, Any] | None:
        """Return the bounds of the second verifier if it is a model; see ``NeedsCalibration``."""
        second = self._second
        return second.calibration() if isinstance(second, NeedsCalibration) else None

    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        """Return the first verifier's verdict if it passes or has no score, else the second's."""
        return self.verify_group(problem, [completion])[0]

    def verify_group(self, problem: Problem, completions: Sequence[Completion]) -> list[Verdict]:
        """Judge each completion; those that the first verifier fails go to the second together."""
        first = self._first(problem)
        verdicts = _judged(first, problem, completions)
        failed = [i for i, verdict in enumerate(verdicts) if outcome(verdict) is False]
        remaining = [completions[i] for i in failed]
        for i, second in zip(failed, _judged(self._second, problem, remaining), strict=True):
            verdicts[i] = _combined(verdicts[i], second)
        return [
            verdict
            if verdict.score is None or SECOND in verdict.parts
            else replace(verdict, parts={**verdict.parts, SECOND: 0.0})
            for verdict in verdicts
        ]

    def _first(self, problem: Problem) -> Any:
        if AUTO in self._first_verifiers:
            return self._first_verifiers[AUTO]
        if problem.verifier not in self._first_verifiers:
            self._first_verifiers[problem.verifier] = _verifier(
                ComponentRef(use=problem.verifier), "first"
            )
        return self._first_verifiers[problem.verifier]

    # -- as a guard ----------------------------------------------------------------------------

    def on_groups(self, event: GroupsScored) -> None:
        """Count the passes of a step; see ``Guard``."""
        verdicts = [
            verdict
            for group in event.groups
            for member in group.members
            for verdict in member.verdicts.values()
            if SECOND in verdict.parts
        ]
        passed = [verdict for verdict in verdicts if outcome(verdict)]
        self._verdict_count = len(verdicts)
        self._second_calls = sum("first" in verdict.parts for verdict in verdicts)
        self._steps.append((len(passed), sum(verdict.parts[SECOND] == 1.0 for verdict in passed)))

    def report(self) -> Mapping[str, float]:
        """Return the shares of the step; see ``Reporter``."""
        passed, alone = self._steps[-1] if self._steps else (0, 0)
        shares = {"first_of/second_share": alone / passed} if passed else {}
        return shares | (
            {"first_of/asked": self._second_calls / self._verdict_count}
            if self._verdict_count
            else {}
        )

    def on_step(self, event: StepFinished) -> None:
        """Compare the share of the window with its bound; see ``Guard``.

        Raises:
            RunError: If it is above, and ``above`` is ``stop``.
        """
        passed, alone = (sum(counts) for counts in zip(*self._steps, strict=True))
        share = alone / max(passed, 1)
        if passed < MINIMUM or share <= self._config.max_share:
            return
        second = self._config.second.use
        what = (
            f"{second} alone passed {alone} of the {passed} answers that passed checks/first-of in "
            f"the last {len(self._steps)} steps; max_share is {self._config.max_share:g}"
        )
        if self._config.above == "warn":
            _log.warning("step %d: %s", event.step, what)
            return
        raise RunError(
            what,
            remedy=(
                f"read what it passed in the run's samples: the policy may have learned to please "
                f"{second}",
                "widen it with max_share, or only warn with above: warn",
            ),
        )

    def state_dict(self) -> dict[str, Json]:
        """Return the counts of the window."""
        return {"steps": [list(counts) for counts in self._steps]}

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Restore the window from ``state_dict``."""
        self._steps.clear()
        self._steps.extend((passed, alone) for passed, alone in state["steps"])


@cache
def _host() -> Host:
    return load_host()


def _verifier(ref: ComponentRef, option: str) -> Any:
    verifier = build(_host(), "verifier", ref, f"the option {option} of checks/first-of")
    if not isinstance(verifier, Verifier):
        raise ConfigError(
            f"checks/first-of: {ref.use} compares the completions of a group with each other, so "
            "it has no verdict on one alone",
            where=f"the option {option} of checks/first-of",
        )
    return verifier


def _limit(ref: ComponentRef, usual: float) -> float:
    if ref.use == AUTO:
        return usual
    cls = _host().entry("verifier", ref.use, "checks/first-of").load()
    options = config_class(cls)(**ref.with_)
    return float(cls.time_limit(options)) if isinstance(cls, LimitsTime) else usual


def _judged(verifier: Any, problem: Problem, completions: Sequence[Completion]) -> list[Verdict]:
    """Return the verdicts of one verifier, checked against its declared range of scores."""
    if not completions:
        return []
    if isinstance(verifier, GroupVerifier) and len(completions) > 1:
        verdicts = list(verifier.verify_group(problem, completions))
    else:
        verdicts = [verifier.verify(problem, completion) for completion in completions]
    limits = traits_of(verifier, VerifierTraits).reward_range
    for verdict in verdicts:
        if not isinstance(verdict, Verdict):
            raise TypeError(f"{type(verifier).__name__} gave {type(verdict).__name__}, no Verdict")
        if limits and verdict.score is not None and not limits[0] <= verdict.score <= limits[1]:
            raise ValueError(
                f"{type(verifier).__name__}: score {verdict.score} is outside of its reward_range"
            )
    if len(verdicts) != len(completions):
        raise ValueError(f"{type(verifier).__name__} gave {len(verdicts)} verdicts")
    return verdicts


def _combined(first: Verdict, second: Verdict) -> Verdict:
    """Combine both verdicts on an answer that the first verifier failed."""
    if second.score is None:
        return second
    passed = outcome(second)
    base = second if passed else replace(first, usage=second.usage)
    parts = {"first": first.score or 0.0, "second": second.score, SECOND: float(bool(passed))}
    detail = f"second: {second.detail}" if passed else f"{first.detail}; second: {second.detail}"
    return replace(base, passed=passed, parts={**base.parts, **parts}, detail=detail)
