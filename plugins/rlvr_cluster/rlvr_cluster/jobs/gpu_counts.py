"""Counts of processes and GPUs, where the cluster itself says which GPUs a job gets."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from rlvr_core.api import LaunchRequest
from rlvr_core.launch.processes import ProcessConfig, count_of, environment_of


def _number(value: object) -> object:
    """Refuse a list of GPUs where their number is wanted."""
    words = value if isinstance(value, list) else [value]
    if len(words) != 1 or "," in str(words[0]):
        raise ValueError("the cluster says which GPUs a job gets: give their number, as in 2")
    return words[0]


GpuCount = Annotated[int, Field(gt=0), BeforeValidator(_number)]
"""A number of GPUs, where the cluster itself says which."""


def counted(
    processes: int | None, gpus: int | None, engine_gpus: int | None, request: LaunchRequest
) -> tuple[int, list[str]]:
    """Count the processes on each machine of a cluster, which itself says which GPUs they get.

    Returns:
        Their number, and what the ``rlvr launch`` that starts them there is told.

    Raises:
        ConfigError: If the numbers do not match each other or the run.
    """
    # places within what the cluster gives the machine
    every = list(range((gpus or 0) + (engine_gpus or 0)))
    train, engine = every[: gpus or 0], every[gpus or 0 :]
    there = ProcessConfig(processes=processes, gpus=train or None, engine_gpus=engine or None)
    environment_of(there, request, None)
    count = count_of(there)
    words = ["--processes", str(count)]
    for flag, places in (("--gpus", train), ("--engine-gpus", engine)):
        words += [flag, ",".join(map(str, places))] if places else []
    return count, words
