"""What puts a run somewhere, and knows of its jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from rlvr_core.api.types import (
    Json,
)


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """What a launcher is to start.

    Attributes:
        arguments: The words after ``rlvr`` that do it, ``run`` first, or ``eval``.
        name: ``run.name``; of an evaluation its model's.
        engine_apart: Whether the config's engine works in processes of its own.
        files: The YAML files the config was read from, the one named in ``arguments`` first.
        references: Values of the config that name files or folders of this machine.
        continues: URI of the runs of an earlier job, with the newest of which this one goes on.
        uris: URIs that the configs name.
        beside: By which config checkpoints are evaluated while the run trains; None: not at all.
    """

    arguments: tuple[str, ...]
    name: str
    engine_apart: bool = False
    files: tuple[Path, ...] = ()
    references: tuple[Reference, ...] = ()
    continues: str = ""
    uris: tuple[str, ...] = ()
    beside: EvaluatedBeside | None = None


@dataclass(frozen=True, slots=True)
class Reference:
    """A value of a config that names a file or folder of this machine.

    Attributes:
        key: Its place, as ``--set`` takes it.
        value: The value as written.
        path: What it names, absolute.
    """

    key: str
    value: str
    path: Path


@dataclass(frozen=True, slots=True)
class EvaluatedBeside:
    """What ``rlvr launch --eval-config`` asks for: ``rlvr watch --config`` beside the training.

    Attributes:
        config: The YAML file, checked; the checkpoint takes the place of its ``model.path``.
        files: The YAML files it was read from, itself first.
        references: Values of it that name files or folders of this machine.
        uris: URIs that it names.
    """

    config: Path
    files: tuple[Path, ...]
    references: tuple[Reference, ...] = ()
    uris: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """What a launcher would do.

    Attributes:
        launcher: Its full name.
        lines: The plan for people.
        details: The plan for programs and for ``submit``: JSON, without secrets.
    """

    launcher: str
    lines: tuple[str, ...]
    details: Mapping[str, Json]


@runtime_checkable
class Launcher(Protocol):
    """Puts a run somewhere.

    One whose job outlives the command is a ``JobLauncher`` too. One whose job runs on machines
    that do not have this one's files says so by a class attribute ``elsewhere = True``: its config
    is then searched for secrets before it is asked for a plan. One that can evaluate models as
    well, as ``rlvr launch --eval`` asks, says ``evaluates = True``; one that evaluates checkpoints
    beside the training, as ``--eval-config`` asks, ``evaluates_beside = True``. One that goes on
    with the run of an earlier job, as ``rlvr launch --resume JOB`` asks, has a static method
    ``again(job, given)``: the options of that ``Job``, with those that are given now in their
    place. Of the job's ``details`` the command itself reads ``arguments``, ``set`` and
    ``eval_config``.
    """

    def plan(self, request: LaunchRequest) -> LaunchPlan:
        """What would be done. Pure: it starts nothing, and asks no machine and no network.

        Raises:
            ConfigError: If the options do not fit.
        """

    def submit(self, plan: LaunchPlan) -> int:
        """Do it; the exit code of the run, or 0 when the job goes on without this command."""


JobState = Literal["waiting", "running", "finished", "failed", "stopped", "unknown"]
"""What a job is doing; only the first two, and ``unknown``, may still change."""


@dataclass(frozen=True, slots=True)
class JobStatus:
    """What a launcher knows of a job.

    Attributes:
        state: In our words.
        detail: In the words of the place it runs at.
    """

    state: JobState
    detail: str = ""


@runtime_checkable
class JobLauncher(Launcher, Protocol):
    """A launcher whose job goes on without the command that submitted it.

    Its ``submit`` writes each job down with ``rlvr_core.builtin.jobs.jobs.JobBook``; ``rlvr jobs``
    makes it anew from the options written there, and names the job.
    """

    def status(self, job: str) -> JobStatus:
        """What a job is doing.

        Raises:
            MachineError: If that cannot be known.
        """

    def logs(self, job: str) -> Iterable[str]:
        """What it has printed so far, line by line."""

    def stop(self, job: str) -> None:
        """Ask it to stop; it writes a checkpoint first."""
