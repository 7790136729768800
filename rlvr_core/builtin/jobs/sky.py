"""The launcher ``core/sky``: a managed job of SkyPilot, on whatever cloud or cluster it knows.

SkyPilot is no dependency: its command ``sky`` gets a task file, and is asked about jobs.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from rlvr_core.api import (
    Complaint,
    ComponentConfig,
    ConfigError,
    JobState,
    JobStatus,
    LauncherTraits,
    LaunchPlan,
    LaunchRequest,
    MachineError,
)
from rlvr_core.builtin.jobs.commands.attempt import MODULE, attempt_words
from rlvr_core.builtin.jobs.elsewhere import (
    checked_store,
    job_name,
    kept_of,
    options_as_before,
    pairs,
    refuse_second_writer,
    wrong_pairs,
)
from rlvr_core.builtin.jobs.jobs import Job, JobBook
from rlvr_core.builtin.jobs.processes import GpuCount, counted
from rlvr_core.builtin.jobs.staging import IGNORE, Staged, stage

_STATES: dict[str, JobState] = {
    "PENDING": "waiting",
    "SUBMITTED": "waiting",
    "STARTING": "waiting",
    "RECOVERING": "waiting",
    "RUNNING": "running",
    "WINDING_DOWN": "running",
    "CANCELLING": "running",
    "SUCCEEDED": "finished",
    "CANCELLED": "stopped",
}
"""What ``sky jobs queue`` says; every ``FAILED...`` is a failure."""

_PORT = 29500
_MOST_MB = 500
_LONGEST = 1800.0
"""Seconds that a command of SkyPilot may take; one that starts its controller takes minutes."""
_NAME = r"^[A-Za-z_][A-Za-z0-9_]*$"


class SkyLauncher:
    """Submits a run as a managed job, which goes on with its run where a machine is taken away."""

    traits = LauncherTraits(elsewhere=True, evaluates=True)

    class Config(ComponentConfig):
        """Options of ``core/sky``."""

        store: str | None = None
        """URI of a folder that the job copies its run to, as it goes on, and where it finds it
        after its machine was taken away: s3://bucket/runs."""
        accelerators: str | None = Field(default=None, pattern=r"^[A-Za-z0-9._-]+(:[1-9][0-9]*)?$")
        """GPUs of each machine, as SkyPilot names them: H100:8; null: none."""
        engine_gpus: GpuCount | None = None
        """How many of them an engine has that runs in its own processes."""
        processes: Annotated[int, Field(gt=0)] | None = None
        """Number of processes on each machine; null: one per GPU to train on, or one."""
        nodes: Annotated[int, Field(gt=0)] = 1
        """Number of machines."""
        infra: str | None = None
        """Where: aws, gcp/us-central1, k8s/CONTEXT, slurm/CLUSTER; null: the cheapest that has
        it."""
        instance_type: str | None = None
        """A kind of machine by the cloud's own name."""
        cpus: str | None = Field(default=None, pattern=r"^[0-9.]+\+?$")
        """CPUs of each machine: 8, or 8+ for at least so many."""
        memory: str | None = Field(default=None, pattern=r"^[0-9.]+\+?$")
        """GB of memory of each machine: 64, or 64+."""
        disk_gb: Annotated[int, Field(gt=0)] | None = None
        """Disk of each machine."""
        image: str | None = None
        """Image of the machine, or docker:IMAGE of a container that has rlvr."""
        spot: bool = False
        """Take spare machines, which may be taken away; the job goes on with its run on others."""
        recovery: Literal["FAILOVER", "EAGER_NEXT_REGION"] | None = None
        """How SkyPilot looks for others."""
        restarts: Annotated[int, Field(ge=0)] = 0
        """How often a job is started again whose run failed although its machines were there."""
        max_hourly_cost: Annotated[float, Field(gt=0)] | None = None
        """US dollars an hour that each machine may cost."""
        setup: list[str] = []
        """Shell lines that install rlvr on a new machine, where no image has it."""
        env: list[str] = []
        """NAME=VALUE for the job's environment; no secrets."""
        secret: list[Annotated[str, Field(pattern=_NAME)]] = []
        """NAME of a variable of this command's environment whose value SkyPilot hands to the job;
        it is written nowhere."""
        include: list[str] = []
        """More files or folders that the job needs."""
        python: str = "python3"
        """The command of the Python there that has rlvr."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def plan(self, request: LaunchRequest) -> LaunchPlan:
        """Task, files and command of the job; see ``Launcher.plan``.

        Raises:
            ConfigError: If an option is missing or wrong, or something must not leave this machine.
        """
        config = self._config
        store = checked_store(config.store)
        self._check(request)
        staged = stage(
            request,
            config.include,
            _MOST_MB,
            ("put it on a store, and name it so", f"or leave things out by {IGNORE}"),
            reserved=".skyignore",
        )
        job = f"rlvr-{job_name(request.name).lower()}"  # SkyPilot wants a letter first
        runs = request.continues or f"{store}/{job}"
        details: dict[str, Any] = {
            "job": job,
            "name": request.name,
            "config": str(request.files[0].absolute()) if request.files else "",
            "task": self._task(request, staged, job, runs),
            "store": store,
            "runs": runs,
            "files": [one.as_json() for one in staged.files],
            "secrets": config.secret,
            "kept": kept_of(request),
            "options": config.model_dump(mode="json", exclude_none=True),
        }
        return LaunchPlan("core/sky", tuple(_lines(details)), details)

    def submit(self, plan: LaunchPlan) -> int:
        """Hand the task to ``sky jobs launch``; see ``Launcher.submit``.

        Raises:
            MachineError: If SkyPilot refuses it. A job of which it says nothing for too long may be
                there all the same, and is kept in the book.
        """
        details: Mapping[str, Any] = plan.details
        missing = [name for name in details["secrets"] if name not in os.environ]
        if missing:
            raise MachineError(
                f"the environment has no {', '.join(missing)}",
                where="--secret",
                remedy="export it first: SkyPilot takes its value from there",
            )
        JobBook().ready()
        refuse_second_writer(str(details["runs"]), "core/sky", lambda job: self.status(job.job))
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / "files"
            for one in details["files"]:
                target = folder / one["key"]
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(one["path"], target)
            folder.mkdir(exist_ok=True)
            # without it SkyPilot would leave out what a .gitignore names
            (folder / ".skyignore").write_text("")
            file = Path(scratch) / "task.yaml"
            # JSON is YAML
            file.write_text(json.dumps(details["task"] | {"workdir": str(folder)}, indent=1))
            words = [word for name in details["secrets"] for word in ("--secret", name)]
            try:
                _sky(["jobs", "launch", "--yes", "--detach-run", *words, str(file)], shown=True)
            except _UnansweredError:
                self._keep(plan)
                raise
        self._keep(plan)
        sys.stdout.write(f"{details['job']}\n")
        return 0

    @staticmethod
    def _keep(plan: LaunchPlan) -> None:
        details: Mapping[str, Any] = plan.details
        JobBook().add(
            Job(
                job=details["job"],
                launcher=plan.launcher,
                name=details["name"],
                config=details["config"],
                options=details["options"],
                runs=details["runs"],
                details=details["kept"],
            )
        )

    def ask_ahead(self, plan: LaunchPlan) -> Iterator[tuple[str, bool | None, str]]:
        """What ``sky launch --dryrun`` says: whether a cloud has the machines, and their price."""
        details: Mapping[str, Any] = plan.details
        with tempfile.TemporaryDirectory() as scratch:
            file = Path(scratch) / "task.yaml"
            file.write_text(json.dumps(details["task"]))
            words = [word for name in details["secrets"] for word in ("--secret", name)]
            told = _sky(["launch", "--dryrun", "--yes", *words, str(file)])
        prices = [line for line in told.splitlines() if "$" in line or "COST" in line]
        yield "machines", True, " ".join(" ".join(prices).split()) or "sky launch --dryrun takes it"

    def status(self, job: str) -> JobStatus:
        """What SkyPilot says; see ``JobLauncher.status``."""
        text = _sky(["jobs", "queue", "--all", "--refresh", "--output", "json"])
        return status_in(text, job)

    def logs(self, job: str) -> Iterator[str]:
        """Lines of the job's output; see ``JobLauncher.logs``."""
        words = ["jobs", "logs", "--name", job, "--no-follow", "--tail", "0"]
        yield from _sky(words).splitlines()

    def stop(self, job: str) -> None:
        """End the job and its machines: the newest copy of the run is what it has sent."""
        _sky(["jobs", "cancel", "--yes", "--name", job])

    @staticmethod
    def resume_remote(job: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        """The options of an earlier job; see ``ResumesJobs``."""
        return options_as_before(job, given, gone=())

    def _check(self, request: LaunchRequest) -> None:
        config = self._config
        found = wrong_pairs("--env", config.env)
        twice = sorted(pairs(config.env).keys() & set(config.secret))
        found += [Complaint(f"{name} is given by --env too", "--secret") for name in twice]
        if config.recovery and not config.spot:
            found.append(Complaint("it goes with --spot", "--recovery"))
        if config.nodes > 1 and request.arguments[0] == "eval":
            found.append(Complaint("an evaluation takes one machine", "--nodes"))
        if found:
            raise ConfigError.collect(found)

    def _task(self, request: LaunchRequest, staged: Staged, job: str, runs: str) -> dict[str, Any]:
        """The task, as SkyPilot's YAML has it."""
        config = self._config
        recovery: dict[str, Any] = {"max_restarts_on_errors": config.restarts}
        recovery |= {"strategy": config.recovery} if config.recovery else {}
        resources = {
            "infra": config.infra,
            "accelerators": config.accelerators,
            "instance_type": config.instance_type,
            "cpus": config.cpus,
            "memory": config.memory,
            "disk_size": config.disk_gb,
            "image_id": config.image,
            "max_hourly_cost": config.max_hourly_cost,
            "use_spot": config.spot,
            "job_recovery": recovery,
        }
        own = [
            shlex.join([config.python, "-m", "pip", "install", "--no-deps", f"./{folder}"])
            for folder in staged.install
        ]
        task: dict[str, Any] = {
            "name": job,
            "num_nodes": config.nodes,
            "resources": {key: value for key, value in resources.items() if value is not None},
            "envs": pairs(config.env),
            "run": self._script(request, staged, job, runs),
        }
        if config.setup or own:
            task["setup"] = "\n".join(["set -e", *config.setup, *own])
        if config.secret:
            task["secrets"] = dict.fromkeys(config.secret)  # without values: sky asks for them
        return task

    def _script(self, request: LaunchRequest, staged: Staged, job: str, runs: str) -> str:
        """Shell lines of each machine."""
        config = self._config
        first, *words = staged.arguments(request)
        more = ""
        if first != "eval":
            _, counts = counted(self._processes, self._train, config.engine_gpus, request)
            words += ["--display", "plain"] if "--display" not in words else []
            words = ["launch", *words, "--backend", "accelerate", *counts]
            if config.nodes > 1:
                words += ["--nodes", str(config.nodes), "--main-port", str(_PORT)]
                more = ' --node-rank "$SKYPILOT_NODE_RANK" --main-address "$head"'
        else:
            words = [first, *words]
        name = request.name if first == "eval" else ""
        attempt = attempt_words(runs, job, words, takes_over=bool(request.continues), name=name)
        lines = ["set -e", f"cd {shlex.quote(staged.layout.directory)}"]
        if more:
            lines.append('head=$(echo "$SKYPILOT_NODE_IPS" | head -n 1)')
        command = shlex.join([config.python, "-m", MODULE, *attempt])
        return "\n".join([*lines, f"exec {command}{more}"])

    @property
    def _train(self) -> int | None:
        """Number of GPUs to train on, on each machine."""
        if self._config.accelerators is None:
            return None
        count = int(self._config.accelerators.partition(":")[2] or 1)
        train = count - (self._config.engine_gpus or 0)
        if train < 1:
            raise ConfigError(
                f"of {count} GPUs none is left to train on",
                where="--engine-gpus",
                remedy="keep fewer for the engine, or ask for more --accelerators",
            )
        return train

    @property
    def _processes(self) -> int | None:
        return self._config.processes or (None if self._train else 1)


def status_in(text: str, job: str) -> JobStatus:
    """Find a job in what ``sky jobs queue --output json`` prints.

    Raises:
        MachineError: If that is not JSON.
    """
    begin = text.find("[")  # lines for people may come before
    try:
        rows = json.loads(text[begin:]) if begin >= 0 else []
    except ValueError as error:
        raise MachineError(f"sky jobs queue printed no JSON: {text.strip()[:200]}") from error
    found = [row for row in rows if row.get("job_name") == job]
    if not found:
        return JobStatus("unknown", "SkyPilot does not know it any more")
    newest = max(found, key=lambda row: int(row.get("job_id") or 0))
    word = str(newest.get("status", "")).rpartition(".")[2]
    state = "failed" if word.startswith("FAILED") else _STATES.get(word, "unknown")
    again = int(newest.get("recovery_count") or 0)
    told = f"{word}, started again {again} times" if again else word
    return JobStatus(state, told)


class _UnansweredError(MachineError):
    """SkyPilot has not answered in time; what it was asked for may be done all the same."""


def _sky(words: Sequence[str], *, shown: bool = False) -> str:
    """Run a command of SkyPilot; returns what it prints.

    Raises:
        MachineError: If it is not installed, fails, or does not end.
    """
    program = shutil.which("sky")
    if program is None:
        raise MachineError(
            "SkyPilot's command sky is not installed",
            remedy="pip install 'skypilot[aws]' (or gcp, kubernetes, ...), in a virtual "
            "environment of its own if packages clash; then: sky check",
        )
    try:
        done = subprocess.run(
            [program, *words], capture_output=True, text=True, check=False, timeout=_LONGEST
        )
    except subprocess.TimeoutExpired as error:
        raise _UnansweredError(
            f"sky {words[0]} {words[1]} has not ended within {_LONGEST / 60:.3g} minutes",
            remedy="see what it waits for: sky status, sky jobs queue; rlvr jobs list --states "
            "shows a job that was submitted all the same",
        ) from error
    if shown:
        sys.stderr.write(done.stdout)
    if done.returncode != 0:
        told = " ".join((done.stderr or done.stdout).split())[-800:]
        raise MachineError(f"sky {words[0]} {words[1]} failed ({done.returncode}): {told}")
    return done.stdout


def _lines(details: Mapping[str, Any]) -> Iterator[str]:
    task = details["task"]
    yield f"a managed job of SkyPilot for {details['name']}: sky jobs launch"
    yield f"copies of the run: {details['runs']}; after an interruption it goes on from there"
    for name in details["secrets"]:
        yield f"secret {name}: its value comes from this command's environment"
    files = details["files"]
    yield f"{len(files)} files go along, {sum(one['size'] for one in files):,} bytes"
    for one in files:
        yield f"  {one['key']}" + (f" (by a link: {one['real']})" if "real" in one else "")
    yield "task:"
    for key, value in task.items():
        if isinstance(value, str) and "\n" in value:
            yield f"  {key}: |"
            yield from (f"    {line}" for line in value.splitlines())
        else:
            yield f"  {key}: {json.dumps(value)}"
