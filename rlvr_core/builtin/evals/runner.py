"""Runs an eval task through the run's own engine, prompts and verifiers.

The same generator that samples for training samples here, so that a prompt can not differ between
the two (T38).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlvr_core.api.types import Draw, EvalReport

if TYPE_CHECKING:
    from rlvr_core.api.protocols import EvalTask
    from rlvr_core.api.types import Sampled
    from rlvr_core.rollout.collect import Generator


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A finished evaluation.

    Attributes:
        name: Full name of the task.
        temperature: It sampled at.
        report: Its metrics.
        sampled: Every judged group, in the task's order.
    """

    name: str
    temperature: float
    report: EvalReport
    sampled: list[Sampled]


@dataclass(frozen=True, slots=True)
class NamedTask:
    """An eval task and the name it goes by in records."""

    name: str
    task: EvalTask


def evaluate(named: NamedTask, generator: Generator, *, version: int, step: int) -> Evaluation:
    """Sample, judge and score the task's problems under the engine's current weights."""
    task = named.task
    draws = [Draw(problem, task.n, index) for index, problem in enumerate(task.problems())]
    sampled = generator.generate(draws, task.sampling, version=version, step=step)
    report = task.score([one.group for one in sampled])
    return Evaluation(named.name, task.sampling.temperature, report, sampled)
