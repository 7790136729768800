"""The evaluation task ``bs4/bench``."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Annotated

from pydantic import Field

from rlvr_bs4 import manifest
from rlvr_bs4.datasets import SIZES, problem
from rlvr_bs4.task import SizeName, Task
from rlvr_core.api import ComponentConfig, EvalReport, Group, Problem, SamplingParams


class Bench:
    """The benchmark of the manifest, answered greedily with the pages in the prompt."""

    class Config(ComponentConfig):
        """Options of ``bs4/bench``."""

        limit: Annotated[int, Field(gt=0)] | None = None
        """Take only so many tasks, from the start; any number is balanced over archetypes."""
        max_tokens: Annotated[int, Field(gt=0)] = 1024
        """Cap on an answer, in tokens."""
        max_size: SizeName = "large"
        """Leave larger pages out, for models with a short context."""

    n = 1

    def __init__(self, config: Config) -> None:
        self.config = config
        self.sampling = SamplingParams(temperature=0.0, max_tokens=config.max_tokens)

    def problems(self) -> list[Problem]:
        """The problems in the order of the manifest.

        Raises:
            DataError: If a task is no longer the one the manifest means.
        """
        allowed = SIZES[: SIZES.index(self.config.max_size) + 1]
        _, entries = manifest.read()
        chosen = [entry for entry in entries if entry.size in allowed]
        return [self.problem(entry.task()) for entry in chosen[: self.config.limit]]

    def problem(self, task: Task) -> Problem:
        """How a task is asked."""
        return problem(task)

    def score(self, groups: Sequence[Group]) -> EvalReport:
        """Accuracy, overall and by category, difficulty and size, and what answers were like."""
        metrics = _means(groups)
        for tag in ("subject", "level", "size"):
            for label in sorted({str(group.problem.tags[tag]) for group in groups}):
                part = [group for group in groups if group.problem.tags[tag] == label]
                metrics |= {
                    f"{name}/{label}": value
                    for name, value in _means(part).items()
                    if name == "accuracy"
                }
        return EvalReport(metrics=metrics, n=len(groups), basis=manifest.basis())


def _means(groups: Sequence[Group]) -> dict[str, float]:
    """Means over the completions that have an outcome; ``unscored`` is the share of the others."""
    everyone = [member for group in groups for member in group.members]
    judged = [member for member in everyone if member.passed is not None]
    if not everyone:
        return {}
    metrics = {"unscored": 1 - len(judged) / len(everyone)}
    if judged:
        metrics["accuracy"] = fmean(bool(member.passed) for member in judged)
        parts = [verdict.parts for member in judged for verdict in member.verdicts.values()]
        for name in ("format", "schema", "abstained", "safe", "bs4", "efficiency"):
            values = [part[name] for part in parts if name in part]
            metrics |= {name: fmean(values)} if values else {}
    return metrics
