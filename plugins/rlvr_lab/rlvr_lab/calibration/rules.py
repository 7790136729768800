"""The rule that a judge is compared with: a problem's verifier that is not a judge itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlvr_core.api import ChecksProblems, DataError, NeedsCalibration, Problem, RlvrError, Verifier
from rlvr_core.config.model import ComponentRef
from rlvr_core.config.resolve import build
from rlvr_core.plugins.host import Host
from rlvr_core.verify.reward import RewardPlan
from rlvr_core.verify.verdicts import VerifierSpec


class Rule:
    """Finds the rule of each problem.

    The rule is the verifier that decides a problem's outcome in the run or, if that is the judge
    itself, the problem's own verifier.

    Args:
        plan: The run's verifiers.
        problems: The problems to find rules for.
        host: The plugins.

    Attributes:
        specs: How to construct the rules, for a pool of processes.
    """

    def __init__(self, plan: RewardPlan, problems: Sequence[Problem], host: Host) -> None:
        self.specs: dict[str, VerifierSpec] = {}
        self._rules: dict[str, Any] = {}
        self._names: dict[str, str | None] = {}
        rules = {name: self._own(name, host) for name in {asking.verifier for asking in problems}}
        for problem in problems:
            main = plan.main_name(problem)
            if _judges_alone(plan.verifiers[main]):
                self._rules[main], self.specs[main] = plan.verifiers[main], plan.specs[main]
                name: str | None = main
            else:
                name = rules[problem.verifier]
            self._names[problem.id] = name if self._fits(name, problem) else None

    def name(self, problem: Problem) -> str | None:
        """Return the name of a problem's rule; None if it has none."""
        return self._names[problem.id]

    def verifier(self, problem: Problem) -> Any:
        """Return a problem's rule; None if it has none."""
        name = self.name(problem)
        return None if name is None else self._rules[name]

    def _own(self, name: str, host: Host) -> str | None:
        """Construct a verifier that problems name; None if it is a judge, or needs options."""
        try:
            entry = host.entry("verifier", name, "data: problems ask for it")
            rule = build(host, "verifier", ComponentRef(use=name), "data: problems ask for it")
        except RlvrError:
            return None
        if not _judges_alone(rule):
            return None
        key = f"rule: {entry.name}"  # the run may have the same verifier with other options
        self._rules[key], self.specs[key] = rule, VerifierSpec(entry.target, {})
        return key

    def _fits(self, name: str | None, problem: Problem) -> bool:
        verifier = None if name is None else self._rules[name]
        try:
            if isinstance(verifier, ChecksProblems):
                verifier.check(problem)
        except DataError:
            return False
        return name is not None


def _judges_alone(verifier: object) -> bool:
    return isinstance(verifier, Verifier) and not isinstance(verifier, NeedsCalibration)
