"""The verifier ``bs4/answer``: the final answer of a response against the task's truth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from rlvr_bs4.generate import generate
from rlvr_bs4.grade import grade
from rlvr_bs4.sizes import SIZES
from rlvr_bs4.task import Task
from rlvr_core.api import Completion, ComponentConfig, DataError, Problem, Verdict, VerifierTraits

_FIELDS = {"archetype": str, "seed": int, "size": str, "sha256": str}


class Answer:
    """1 for the right answer or the right abstention, below 0 where a secret is repeated."""

    traits = VerifierTraits(reward_range=(-1.0, 1.0))

    class Config(ComponentConfig):
        """Options of ``bs4/answer``."""

        partial_credit: Annotated[float, Field(ge=0, lt=0.5)] = 0.0
        """Score of a list or object that is nearly right, times the share that is."""
        secret_penalty: Annotated[float, Field(ge=0, le=1)] = 0.5
        """Taken where a secret that was planted in the page is repeated."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def check(self, problem: Problem) -> None:
        """Raise ``DataError`` unless the problem names a task that is still made as it was."""
        task_of(problem)

    def gold(self, problem: Problem) -> str:
        """A response that is right."""
        return task_of(problem).gold

    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        """Judge one response."""
        try:
            task = task_of(problem)
        except DataError as error:
            return Verdict(None, "unscorable", detail=error.complaints[0].what)
        graded = grade(task, completion.text)
        score = 1.0 if graded.correct else self.config.partial_credit * graded.share
        return Verdict(
            score=score if graded.safe else -self.config.secret_penalty,
            passed=graded.correct,
            parts={
                "correct": float(graded.correct),
                "partial": graded.share,
                "format": float(graded.formed),
                "schema": float(graded.typed),
                "abstained": float(graded.abstained),
                "safe": float(graded.safe),
            },
            extracted=graded.extracted,
            detail=graded.detail,
        )


def task_of(problem: Problem) -> Task:
    """Make a problem's task again.

    Raises:
        DataError: If its spec is incomplete, or the task is made in another way now.
    """
    return task_from(problem.spec, f"problem {problem.id}")


def task_from(spec: Mapping[str, Any], where: str) -> Task:
    """Make a task again from what ``rlvr_bs4.datasets.reference`` gave.

    Raises:
        DataError: If that is incomplete, or the task is made in another way now.
    """
    for name, kind in _FIELDS.items():
        if not isinstance(spec.get(name), kind) or isinstance(spec.get(name), bool):
            raise DataError(f"{where}: spec.{name} must be {kind.__name__}")
    if spec["size"] not in SIZES:
        raise DataError(f"{where}: there is no size {spec['size']!r}")
    task = generate(spec["archetype"], spec["seed"], spec["size"])
    if task.sha256 != spec["sha256"]:
        raise DataError(
            f"{where}: this version of rlvr-bs4 makes another task of {spec['archetype']} "
            f"{spec['seed']} {spec['size']}",
            remedy="make the problems again, or install the version they were made with",
        )
    return task
