"""The questions of ``bs4/pages`` and ``bs4/bench``, for the environment ``bs4/web``."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from rlvr_bs4 import datasets, prompt
from rlvr_bs4.datasets import Pages
from rlvr_bs4.evals import Bench
from rlvr_bs4.task import Task
from rlvr_bs4.web.environment import ENVIRONMENT
from rlvr_core.api import Problem

DATASET = "bs4/web"


class Web(Pages):
    """Questions about generated sites, to be answered with tools in ``bs4/web``."""

    class Config(Pages.Config):
        """Options of ``bs4/web``, those of ``bs4/pages``."""

    def _problem(self, task: Task) -> Problem:
        return problem(task)


class WebBench(Bench):
    """The benchmark of the manifest, answered greedily with tools."""

    class Config(Bench.Config):
        """Options of ``bs4/web-bench``, those of ``bs4/bench``."""

        max_tokens: Annotated[int, Field(gt=0)] = 4096
        """Cap on a conversation, in tokens."""

    def problem(self, task: Task) -> Problem:
        """A task, to be played in ``bs4/web``."""
        return problem(task)


def problem(task: Task) -> Problem:
    """A task as a problem of the environment."""
    return replace(
        datasets.problem(task),
        prompt=prompt.ask(task),
        verifier="env/environment",
        dataset=DATASET,
        environment=ENVIRONMENT,
    )
