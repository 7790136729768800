"""The launcher ``core/slurm``: a batch job on a cluster whose machines share their files."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from rlvr_core.errors import ConfigError, MachineError
from rlvr_core.launch.jobs import Job, JobBook
from rlvr_core.launch.processes import ProcessConfig, count_of, environment_of
from rlvr_core.protocols import JobState, JobStatus, LaunchPlan, LaunchRequest

_STATES: dict[str, JobState] = {
    "PENDING": "waiting",
    "CONFIGURING": "waiting",
    "REQUEUED": "waiting",
    "SUSPENDED": "waiting",
    "RUNNING": "running",
    "COMPLETING": "running",
    "COMPLETED": "finished",
    "CANCELLED": "stopped",
    "PREEMPTED": "stopped",
    "FAILED": "failed",
    "TIMEOUT": "failed",
    "NODE_FAIL": "failed",
    "OUT_OF_MEMORY": "failed",
    "BOOT_FAIL": "failed",
    "DEADLINE": "failed",
}

RUNS = "runs"
"""Folder of the jobs' run folders, in the directory the job was submitted from."""

_TEMPLATE = """\
#!/bin/bash
{directives}

set -euo pipefail
cd {directory}
{exports}
# the first machine of the job is where the processes meet
RLVR_HOSTS=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
export RLVR_HEAD="${{RLVR_HOSTS%%$'\\n'*}}"
# a job that is put back into the queue goes on with the run it has begun
export RLVR_DIR={runs}/slurm-"$SLURM_JOB_ID" RLVR_RESUME=
if compgen -G "$RLVR_DIR/*/run.json" > /dev/null; then RLVR_RESUME="--resume last"; fi

# SIGTERM comes {grace} seconds before the end: the run finishes its step and writes a checkpoint
srun --kill-on-bad-exit=1 bash -c {command}
"""


class SlurmLauncher:
    """A batch job; the command goes on without it."""

    class Config(ProcessConfig):
        """Options of ``core/slurm``; ``processes`` is the number on each machine."""

        nodes: Annotated[int, Field(gt=0)] = 1
        """Machines."""
        main_port: Annotated[int, Field(gt=0, lt=65536)] = 29500
        """A port that is free on the first machine."""
        partition: str | None = None
        """Partition; null takes the cluster's own choice."""
        account: str | None = None
        """Account to charge."""
        time: str | None = Field(default=None, pattern=r"^[0-9:-]+$")
        """Longest time, as ``sbatch`` takes it: ``04:00:00``, ``2-00:00:00``."""
        cpus: Annotated[int, Field(gt=0)] | None = None
        """Processors for each machine's task."""
        memory: str | None = Field(default=None, pattern=r"^[0-9]+[KMGT]?$")
        """Memory of each machine, as in ``64G``."""
        grace: Annotated[int, Field(gt=0)] = 120
        """Seconds before the end of the time at which the run is asked to stop."""
        extra: list[Annotated[str, Field(pattern=r"^--[^\s].*$")]] = []
        """More options of ``sbatch``, as ``--constraint=a100``."""
        log: str = "slurm-%j.log"
        """File of what the job prints; ``%j`` is its number."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def plan(self, request: LaunchRequest) -> LaunchPlan:
        """The batch script; see ``Launcher.plan``.

        Raises:
            ConfigError: If the options do not fit.
        """
        config = self._config
        if "\n" in "".join([*config.extra, config.log, config.partition or ""]):
            raise ConfigError("an option of sbatch is one line", where="--extra")
        processes = count_of(config)
        script = _TEMPLATE.format(
            directives="\n".join(f"#SBATCH {one}" for one in self._directives(request, processes)),
            directory=shlex.quote(str(Path.cwd())),
            exports="\n".join(
                f"export {name}={shlex.quote(value)}"
                for name, value in environment_of(config, request).items()
                if name != "CUDA_VISIBLE_DEVICES"  # slurm gives the job its own
            ),
            runs=shlex.quote(RUNS),
            grace=config.grace,
            command=shlex.quote(self._command(request, processes)),
        )
        lines = (
            f"sbatch gets this script for {request.name}: {config.nodes} machines, "
            f"{processes} processes on each",
            *script.splitlines(),
        )
        details = {
            "script": script,
            "name": request.name,
            "config": str(request.files[0].absolute()) if request.files else "",
            "directory": str(Path.cwd()),
            "options": config.model_dump(mode="json"),
        }
        return LaunchPlan("core/slurm", lines, details)

    def submit(self, plan: LaunchPlan) -> int:
        """Hand the script to ``sbatch`` and write the job down; see ``Launcher.submit``."""
        details: Mapping[str, Any] = plan.details
        JobBook().ready()
        answer = _slurm(["sbatch", "--parsable"], details["script"])
        job = answer.strip().partition(";")[0]
        if not job.isdigit():
            raise MachineError(f"sbatch answered {answer.strip()!r}, which is no job's number")
        book = Job(
            job=job,
            launcher=plan.launcher,
            name=details["name"],
            config=details["config"],
            options=details["options"],
            runs=str(Path(details["directory"]) / RUNS / f"slurm-{job}"),
            details={"directory": details["directory"]},
        )
        JobBook().add(book)
        sys.stdout.write(f"{job}\n")
        return 0

    def status(self, job: str) -> JobStatus:
        """What the scheduler says; see ``JobLauncher.status``."""
        text = _slurm(["squeue", "--noheader", "--format=%T", f"--jobs={job}"], check=False)
        if not text.strip():  # no longer in the queue
            text = _slurm(["sacct", "--noheader", "-X", "--format=State", f"--jobs={job}"])
        words = text.split()
        return JobStatus(_STATES.get(words[0], "unknown") if words else "unknown", text.strip())

    def logs(self, job: str) -> Iterator[str]:
        """Lines of the log file; see ``JobLauncher.logs``."""
        directory = str(JobBook().find(job).details["directory"])
        path = Path(directory) / self._config.log.replace("%j", job)
        if not path.is_file():
            raise MachineError("the job has no log yet", where=str(path))
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                yield line.rstrip("\n")

    def stop(self, job: str) -> None:
        """SIGTERM to the run, which writes a checkpoint; see ``JobLauncher.stop``."""
        begun = self.status(job).state == "running"
        _slurm(["scancel", *(["--signal=TERM"] if begun else []), job])

    def _directives(self, request: LaunchRequest, processes: int) -> Iterator[str]:
        config = self._config
        yield f"--job-name={request.name}"
        yield f"--nodes={config.nodes}"
        yield "--ntasks-per-node=1"
        every = [*(config.gpus or []), *(config.engine_gpus or [])]
        if every:
            yield f"--gpus-per-node={len(every)}"
        values = {
            "cpus-per-task": config.cpus,
            "mem": config.memory,
            "partition": config.partition,
            "account": config.account,
            "time": config.time,
        }
        yield from (f"--{name}={value}" for name, value in values.items() if value is not None)
        yield f"--signal=TERM@{config.grace}"
        yield "--requeue"
        yield "--open-mode=append"
        yield f"--output={config.log}"
        yield from config.extra

    def _command(self, request: LaunchRequest, processes: int) -> str:
        config = self._config
        words = [sys.executable, "-m", "rlvr_core.cli.main", "launch", *request.arguments[1:]]
        words += ["--backend", "accelerate", "--processes", str(processes)]
        if config.gpus:
            words += ["--gpus", ",".join(map(str, range(len(config.gpus))))]
        if config.engine_gpus:
            first = len(config.gpus or [])
            kept = range(first, first + len(config.engine_gpus))
            words += ["--engine-gpus", ",".join(map(str, kept))]
        more = ""
        if "--resume" not in request.arguments:
            more += ' --set run.dir="$RLVR_DIR" $RLVR_RESUME'
        if config.nodes > 1:
            words += ["--nodes", str(config.nodes), "--main-port", str(config.main_port)]
            more += ' --node-rank "$SLURM_NODEID" --main-address "$RLVR_HEAD"'
        return f"exec {shlex.join(words)}{more}"


def _slurm(command: list[str], script: str | None = None, *, check: bool = True) -> str:
    """What a command of the scheduler prints.

    Raises:
        MachineError: If it is not there, or fails.
    """
    try:
        done = subprocess.run(
            command, input=script, capture_output=True, text=True, check=False, timeout=120
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MachineError(
            f"{command[0]} cannot be run: {error}",
            remedy="give the command on a machine of the cluster that can submit jobs",
        ) from error
    if check and done.returncode != 0:
        told = re.sub(r"\s+", " ", done.stderr).strip()
        raise MachineError(f"{command[0]} failed ({done.returncode}): {told}")
    return done.stdout
