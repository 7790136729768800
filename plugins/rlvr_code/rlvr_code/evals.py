"""Evaluations: MBPP's test split and HumanEval, greedy by default, sampled by ``rlvr passk``."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Annotated, Any

from pydantic import Field

from rlvr_code.humaneval import HumanEval
from rlvr_code.mbpp import Mbpp
from rlvr_code.rows import Common
from rlvr_core.api import EvalReport, Group, Problem, SamplingParams

PASSK = (5, 10, 100)


class _Options(Common):
    """Options of an evaluation on programs."""

    max_tokens: Annotated[int, Field(gt=0)] = 512
    """Cap on an answer, in tokens."""
    temperature: Annotated[float, Field(ge=0)] = 0.0
    """Sampling temperature; 0 is greedy. pass@k is commonly measured at 0.2 to 0.8."""
    n: Annotated[int, Field(gt=0)] = 1
    """Completions per problem; with more than one, set a temperature."""


class _Test:
    """Base of both evaluations."""

    def __init__(self, config: _Options) -> None:
        self.config = config
        self.n = config.n
        self.sampling = SamplingParams(temperature=config.temperature, max_tokens=config.max_tokens)

    def source(self) -> dict[str, Any]:
        """The options that say which problems there are."""
        return self.config.model_dump(exclude={"max_tokens", "temperature", "n"})

    def score(self, groups: Sequence[Group]) -> EvalReport:
        """Accuracy, pass@k, share of tests, length and truncation."""
        return report(groups)


class MbppTest(_Test):
    """The 500 test problems of MBPP."""

    class Config(_Options):
        """Options of MBPP's test split."""

        sanitized: bool = False
        """The version checked by hand: 257 problems."""
        shots: Annotated[int, Field(ge=0, le=3)] = 3
        """Worked examples in front."""

    def problems(self) -> list[Problem]:
        """The problems in the order of the source."""
        return list(Mbpp(Mbpp.Config(split="test", **self.source())).load())


class HumanEvalTest(_Test):
    """The 164 problems of HumanEval."""

    class Config(_Options):
        """Options of HumanEval."""

    def problems(self) -> list[Problem]:
        """The problems in the order of the source."""
        return list(HumanEval(HumanEval.Config(**self.source())).load())


def report(groups: Sequence[Group]) -> EvalReport:
    """Means over problems.

    ``accuracy`` counts completions with an outcome only; ``unscored`` is the share of the others.
    ``pass@k`` is the chance that one of k completions passes, without bias (Chen et al. 2021,
    arXiv:2107.03374, eq. 1), for each usual k of which every problem has as many outcomes.
    ``tests`` is the mean share of tests passed.
    """
    members = [group.members for group in groups if group.members]
    if not members:
        return EvalReport(metrics={}, n=0)
    everyone = [member for group in members for member in group]
    metrics = {
        "truncated": fmean(member.completion.finish_reason == "length" for member in everyone),
        "unscored": fmean(member.passed is None for member in everyone),
    }
    lengths = [n for member in everyone if (n := member.completion.n_tokens) is not None]
    if lengths:
        metrics["length"] = fmean(lengths)
    known = [[member.passed for member in group if member.passed is not None] for group in members]
    known = [outcomes for outcomes in known if outcomes]
    if known:
        metrics["accuracy"] = fmean(fmean(outcomes) for outcomes in known)
        fewest = min(map(len, known))
        for k in PASSK:
            if k <= fewest:
                chances = (pass_at_k(len(o), sum(map(bool, o)), k) for o in known)
                metrics[f"pass@{k}"] = fmean(chances)
    return EvalReport(metrics=metrics, n=len(members))


def pass_at_k(n: int, correct: int, k: int) -> float:
    """Chance that k of n completions, drawn without replacement, include a correct one."""
    miss = 1.0
    for drawn in range(k):
        miss *= max(n - correct - drawn, 0) / (n - drawn)
    return 1.0 - miss
