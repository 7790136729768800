"""Evaluation tasks: held-out problems of generators, with frozen sampling."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean
from typing import Annotated

from pydantic import Field

from rlvr_core.api import ComponentConfig, EvalReport, Group, Judged, Problem, SamplingParams
from rlvr_gym.datasets import Choice, Tasks
from rlvr_gym.tiny import MAX_TOKENS, Tiny


class Heldout:
    """Held-out problems of one or several generators, the same ones at every call."""

    class Config(Choice):
        """Options of ``gym/heldout``: those of ``gym/tasks``, and how to sample."""

        n_problems: Annotated[int, Field(gt=0)] = 200
        """How many problems in all."""
        temperature: Annotated[float, Field(ge=0)] = 0.0
        """Sampling temperature; 0 is greedy."""
        max_tokens: Annotated[int, Field(gt=0)] = 1024
        """Cap on an answer, in tokens."""

    n = 1

    def __init__(self, config: Config) -> None:
        self.config = config
        self.sampling = SamplingParams(temperature=config.temperature, max_tokens=config.max_tokens)

    def problems(self) -> list[Problem]:
        """The problems."""
        config = self.config
        options = config.model_dump(exclude={"n_problems", "temperature", "max_tokens"})
        source = Tasks.Config(**options, n=config.n_problems, split="heldout")
        return list(Tasks(source).load())

    def score(self, groups: Sequence[Group]) -> EvalReport:
        """Accuracy, in all and by generator and level, truncation and length."""
        return report(groups)


class TinyHeldout:
    """Sums of ``gym/tiny`` that are never trained on, sampled at temperature 1 as in training."""

    class Config(ComponentConfig):
        """Options of the held-out sums."""

        n_problems: Annotated[int, Field(gt=0)] = 256
        """How many problems."""

    n = 1
    sampling = SamplingParams(temperature=1.0, max_tokens=MAX_TOKENS)

    def __init__(self, config: Config) -> None:
        self.config = config

    def problems(self) -> list[Problem]:
        """The problems, the same ones at every call."""
        return list(Tiny(Tiny.Config(split="heldout", n=self.config.n_problems)).load())

    def score(self, groups: Sequence[Group]) -> EvalReport:
        """Accuracy, truncation and length."""
        return report(groups)


class TinyHeldoutGreedy(TinyHeldout):
    """Held-out sums, answered greedily."""

    sampling = SamplingParams(temperature=0.0, max_tokens=MAX_TOKENS)


def report(groups: Sequence[Group]) -> EvalReport:
    """Means over problems of means over each problem's completions.

    ``accuracy`` counts completions with an outcome only, ``unscored`` is the share of the others;
    ``accuracy/chain_sum@2`` is that of a generator at a level, where there are several.
    """
    groups = [group for group in groups if group.members]
    if not groups:
        return EvalReport(metrics={}, n=0)
    everyone: list[Judged] = [member for group in groups for member in group.members]
    metrics = {
        "unscored": fmean(member.passed is None for member in everyone),
        "truncated": fmean(member.completion.finish_reason == "length" for member in everyone),
    }
    if lengths := [n for member in everyone if (n := member.completion.n_tokens) is not None]:
        metrics["length"] = fmean(lengths)
    shares: dict[str, list[float]] = defaultdict(list)
    for group in groups:
        if known := [member.passed for member in group.members if member.passed is not None]:
            shares[_part(group.problem)].append(fmean(known))
    if shares:
        metrics["accuracy"] = fmean(share for part in shares.values() for share in part)
    if len(shares) > 1:
        metrics |= {
            f"accuracy/{part}": fmean(outcomes) for part, outcomes in sorted(shares.items())
        }
    return EvalReport(metrics=metrics, n=len(groups))


def _part(problem: Problem) -> str:
    level = problem.tags.get("level")
    return str(problem.tags["task"]) + ("" if level is None else f"@{level}")
