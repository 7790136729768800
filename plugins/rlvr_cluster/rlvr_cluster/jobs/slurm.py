"""The launcher ``cluster/slurm``: a batch job on a cluster with a shared file system."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from rlvr_cluster.jobs.gpu_counts import GpuCount, counted
from rlvr_cluster.jobs.job_book import Job, JobBook
from rlvr_cluster.jobs.protocol import JobState, JobStatus
from rlvr_core.api import ComponentConfig, ConfigError, LaunchPlan, LaunchRequest, MachineError

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
"""Folder of the jobs' run folders, in the directory of submission."""

_SHARE = """\
IFS=, read -ra shown <<< "${{CUDA_VISIBLE_DEVICES:-}}"
if (( ${{#shown[@]}} != {count} )); then
  told="{count} GPUs were asked for on each machine, and slurm shows ${{#shown[@]}} of $(hostname)"
  echo "rlvr: $told: CUDA_VISIBLE_DEVICES='${{CUDA_VISIBLE_DEVICES:-}}'" >&2
  exit 4
fi
"""

_TEMPLATE = """\
#!/bin/bash
{directives}

set -euo pipefail
cd {directory}
# the first machine of the job is where the processes meet
RLVR_HOSTS=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
export RLVR_HEAD="${{RLVR_HOSTS%%$'\\n'*}}"
# a job that is put back into the queue goes on with the run it has begun
export RLVR_DIR={runs}/slurm-"$SLURM_JOB_ID" RLVR_RESUME=
if compgen -G "$RLVR_DIR/*/run.json" > /dev/null; then RLVR_RESUME="--resume last"; fi

{setup}{before}# SIGTERM comes {grace} seconds before the end: the run then writes a checkpoint
srun --kill-on-bad-exit=1{cpus}{srun} bash -c {command}{after}
"""

_BEFORE = "began=$(date +%s)\n"
_AFTER = """ && exit || code=$?
(( code == 130 )) || exit "$code"  # it failed

# ended by its time limit: into the queue again, if there is a checkpoint newer than this attempt
ends=$(squeue --noheader --format=%e --jobs="$SLURM_JOB_ID")
ends=$(date --date="$ends" +%s 2> /dev/null || echo never)
again=$((${{SLURM_RESTART_COUNT:-0}} + 1))
if [[ "$ends" == never ]] || (( again > {requeues} || $(date +%s) + {grace} + 60 < ends )); then
  exit "$code"
elif [[ -n $(find "$RLVR_DIR" -path '*/checkpoints/*/COMPLETE' -newermt "@$began" -print -quit) ]]
then
  echo "rlvr: at the time limit: back into the queue, $again of {requeues}"
  scontrol requeue "$SLURM_JOB_ID"
else
  echo "rlvr: at the time limit without a new checkpoint: not put back; raise --time or --grace" >&2
fi
exit "$code"
"""


class SlurmLauncher:
    """Submits a batch job; the command does not wait for it."""

    class Config(ComponentConfig):
        """Options of ``cluster/slurm``. GPUs are given by number; Slurm assigns them."""

        processes: Annotated[int, Field(gt=0)] | None = None
        """Number of processes on each machine; null: one per GPU of ``gpus``."""
        gpus: GpuCount | None = None
        """Number of GPUs on each machine to train on."""
        engine_gpus: GpuCount | None = None
        """Number of additional GPUs for an engine that runs in its own processes."""
        nodes: Annotated[int, Field(gt=0)] = 1
        """Number of machines."""
        main_port: Annotated[int, Field(gt=0, lt=65536)] | None = None
        """A port that is free on the first machine; null: one that follows from the job's
        number."""
        partition: str | None = None
        """Partition; null uses the cluster's default."""
        account: str | None = None
        """Account to charge."""
        time: str | None = Field(default=None, pattern=r"^[0-9:-]+$")
        """Time limit, as ``sbatch`` takes it: ``04:00:00``, ``2-00:00:00``."""
        cpus: Annotated[int, Field(gt=0)] | None = None
        """CPUs for the task on each machine."""
        memory: str | None = Field(default=None, pattern=r"^[0-9]+[KMGT]?$")
        """Memory of each machine, as in ``64G``."""
        grace: Annotated[int, Field(gt=0)] = 120
        """Seconds before the time limit at which the run is asked to stop."""
        requeues: Annotated[int, Field(ge=0)] = 0
        """How often a job that reaches its time limit goes back into the queue, to go on with its
        run: with 3 a run may take four times ``time``."""
        extra: list[Annotated[str, Field(pattern=r"^--[^\s].*$")]] = []
        """Further options of ``sbatch``, such as ``--constraint=a100``."""
        srun: list[Annotated[str, Field(pattern=r"^--[^\s].*$")]] = []
        """Options of ``srun``, such as ``--container-image=/images/rlvr.sqsh`` of Pyxis, or
        ``--mpi=pmix``."""
        setup: list[str] = []
        """Lines of bash that its first machine runs before, such as ``module load cuda``."""
        log: str = "slurm-%j.log"
        """Log file of the job; ``%j`` is its number."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def plan(self, request: LaunchRequest) -> LaunchPlan:
        """Build the batch script; see ``Launcher.plan``.

        Raises:
            ConfigError: If the options do not match the run.
        """
        config = self._config
        if "\n" in "".join([*config.extra, *config.srun, config.log, config.partition or ""]):
            raise ConfigError("an option of sbatch is one line", where="--extra")
        processes, words = counted(config.processes, config.gpus, config.engine_gpus, request)
        script = _TEMPLATE.format(
            directives="\n".join(
                f"#SBATCH {directive}" for directive in self._directives(request, processes)
            ),
            directory=shlex.quote(str(Path.cwd())),
            runs=shlex.quote(RUNS),
            grace=config.grace,
            before=_BEFORE if config.requeues else "",
            after=_AFTER.format(grace=config.grace, requeues=config.requeues)
            if config.requeues
            else "",
            # since 22.05 srun no longer takes it from sbatch
            cpus=f" --cpus-per-task={config.cpus}" if config.cpus else "",
            srun="".join(f" {shlex.quote(option)}" for option in config.srun),
            setup="".join(f"{line}\n" for line in config.setup),
            command=shlex.quote(self._command(request, words)),
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
        return LaunchPlan("cluster/slurm", lines, details)

    def submit(self, plan: LaunchPlan) -> int:
        """Submit the script with ``sbatch`` and record the job; see ``Launcher.submit``."""
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
        """Query the scheduler; see ``JobLauncher.status``."""
        text = _slurm(["squeue", "--noheader", "--format=%T", f"--jobs={job}"], check=False)
        if not text.strip():  # no longer in the queue
            text = _slurm(["sacct", "--noheader", "-X", "--format=State", f"--jobs={job}"])
        words = text.split()
        return JobStatus(_STATES.get(words[0], "unknown") if words else "unknown", text.strip())

    def logs(self, job: str) -> Iterator[str]:
        """Yield the lines of the log file; see ``JobLauncher.logs``."""
        directory = str(JobBook().find(job).details["directory"])
        path = Path(directory) / self._config.log.replace("%j", job)
        if not path.is_file():
            raise MachineError("the job has no log yet", where=str(path))
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                yield line.rstrip("\n")

    def stop(self, job: str) -> None:
        """Send SIGTERM to the run, which then writes a checkpoint; see ``JobLauncher.stop``."""
        begun = self.status(job).state == "running"
        if begun:  # whoever stops a job near its time limit does not want it back
            _slurm(["scontrol", "update", f"JobId={job}", "Requeue=0"], check=False)
        _slurm(["scancel", *(["--signal=TERM"] if begun else []), job])

    def _directives(self, request: LaunchRequest, processes: int) -> Iterator[str]:
        config = self._config
        yield f"--job-name={request.name}"
        yield f"--nodes={config.nodes}"
        yield "--ntasks-per-node=1"
        if self._gpus:
            yield f"--gpus-per-node={self._gpus}"
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

    def _command(self, request: LaunchRequest, counts: list[str]) -> str:
        config = self._config
        words = [sys.executable, "-m", "rlvr_core.cli.main", "launch", *request.arguments[1:]]
        words += ["--backend", "accelerate", *counts]
        begin, more = "", ""
        if self._gpus:
            begin = _SHARE.format(count=self._gpus)
        if "--resume" not in request.arguments:
            more += ' --set run.dir="$RLVR_DIR" $RLVR_RESUME'
        if config.nodes > 1:
            words += ["--nodes", str(config.nodes)]
            # below the ports that Linux gives out by itself, and another for each job
            port = config.main_port or "$((20000 + SLURM_JOB_ID % 12000))"
            more += f" --main-port {port}"
            more += ' --node-rank "$SLURM_NODEID" --main-address "$RLVR_HEAD"'
        return f"{begin}exec {shlex.join(words)}{more}"

    @property
    def _gpus(self) -> int:
        """Return the number of GPUs of each machine."""
        return (self._config.gpus or 0) + (self._config.engine_gpus or 0)


def _slurm(command: list[str], script: str | None = None, *, check: bool = True) -> str:
    """Run a scheduler command and return its output.

    Raises:
        MachineError: If it is not installed, or fails.
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
        reason = re.sub(r"\s+", " ", done.stderr).strip()
        raise MachineError(f"{command[0]} failed ({done.returncode}): {reason}")
    return done.stdout
