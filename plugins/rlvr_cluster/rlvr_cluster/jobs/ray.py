"""The launcher ``cluster/ray``: a job on a Ray cluster, submitted to its job server."""

from __future__ import annotations

import re
import shlex
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from rlvr_cluster.jobs.attempt import MODULE, attempt_words
from rlvr_cluster.jobs.gpu_counts import GpuCount, counted
from rlvr_cluster.jobs.job_book import Job, JobBook
from rlvr_cluster.jobs.protocol import JobState, JobStatus
from rlvr_cluster.jobs.ray_client import JobServer, address_of
from rlvr_cluster.jobs.request import remote_request
from rlvr_cluster.jobs.staging import IGNORE, Staged, stage
from rlvr_cluster.stores.elsewhere import (
    checked_store,
    job_name,
    kept_of,
    pairs,
    refuse_second_writer,
    wrong_pairs,
)
from rlvr_core.api import (
    Complaint,
    ComponentConfig,
    ConfigError,
    LaunchPlan,
    LaunchRequest,
    LaunchWords,
    MachineError,
)

_STATES: dict[str, JobState] = {
    "PENDING": "waiting",
    "RUNNING": "running",
    "STOPPED": "stopped",
    "SUCCEEDED": "finished",
    "FAILED": "failed",
}
_MOST_MB = 100
"""Largest upload that Ray's job server accepts."""
_GRACE = "RAY_JOB_STOP_WAIT_TIME_S"
"""Variable of a job: the seconds after which Ray kills a job that is stopping."""
_INTERRUPTED = 130
_QUIET = 3600.0
"""Seconds without an answer after which waiting ends."""


def _options_as_before(job: Job, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of an earlier job, overridden by those given now."""
    gone = ("wait", "poll")  # they concern only one submission
    return {name: value for name, value in job.options.items() if name not in gone} | dict(given)


class RayLauncher:
    """Submits a run as a job of Ray; the job copies its run to a store."""

    class Config(ComponentConfig):
        """Options of ``cluster/ray``. GPUs are given by number; Ray assigns them."""

        address: str | None = None
        """URL of the cluster's job server; null for RAY_API_SERVER_ADDRESS or RAY_ADDRESS, or else
        http://127.0.0.1:8265."""
        store: str | None = None
        """URI of a folder that the job copies its run to while it runs: s3://bucket/runs, or
        file:///shared/runs on nodes that share it. Files on the node are lost with the job."""
        cpus: Annotated[float, Field(ge=0)] = 1
        """CPUs of the job itself; actors and engines on the cluster have their own."""
        gpus: GpuCount | None = None
        """Number of GPUs to train on."""
        engine_gpus: GpuCount | None = None
        """Number of additional GPUs for an engine that runs in its own processes."""
        processes: Annotated[int, Field(gt=0)] | None = None
        """Number of processes; null for one per GPU of ``gpus``, or one without GPUs."""
        memory_gb: Annotated[float, Field(gt=0)] | None = None
        """Memory of the job itself."""
        resources: list[str] = []
        """NAME=NUMBER of a custom resource of the cluster that the job needs."""
        env: list[str] = []
        """NAME=VALUE for the environment of the job and its actors; secrets are refused."""
        include: list[str] = []
        """More files or folders that the job needs."""
        python: str = "python"
        """The command of the Python on the nodes in which rlvr is installed."""
        grace: Annotated[int, Field(gt=0)] = 600
        """Seconds that a stopped job has to finish its step and write a checkpoint."""
        wait: bool = False
        """Show the job's output, and end with its exit code."""
        poll: Annotated[float, Field(gt=0)] = 2.0
        """Seconds between two requests while waiting."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def plan(self, request: LaunchRequest) -> LaunchPlan:
        """Plan command, files, resources and environment of the job; see ``Launcher.plan``.

        Raises:
            ConfigError: If an option is missing or wrong, or something must not leave this machine.
        """
        config = self._config
        address = address_of(config.address)
        store = checked_store(config.store)
        self._check()
        staged = stage(
            request,
            config.include,
            _MOST_MB,
            (
                "put it in a folder or a store that the nodes can read, and give that path",
                f"or exclude files by {IGNORE}",
            ),
        )
        details: dict[str, Any] = {
            "address": address,
            "name": request.name,
            "config": str(request.files[0].absolute()) if request.files else "",
            "command": self._command(request, staged),
            "directory": staged.layout.directory,
            "resources": self._resources(),
            "environment": pairs(config.env) | {_GRACE: str(config.grace)},
            "files": [file.as_json() for file in staged.files],
            "store": store,
            "continues": request.continues,
            "kept": kept_of(request),
            "options": config.model_dump(mode="json", exclude_none=True) | {"address": address},
        }
        return LaunchPlan("cluster/ray", tuple(_lines(details)), details)

    def submit(self, plan: LaunchPlan) -> int:
        """Send the files and submit the job; see ``Launcher.submit``."""
        details: Mapping[str, Any] = plan.details
        JobBook().ready()
        server = JobServer(details["address"])
        job = job_name(details["name"])
        before = details["continues"]
        if before:
            refuse_second_writer(before, "cluster/ray", self._status_there)
        runs = before or f"{details['store']}/{job}"
        python, _, _, *rlvr = details["command"]
        name = details["name"] if rlvr[0] == "eval" else ""
        attempt = attempt_words(runs, job, rlvr, takes_over=bool(before), name=name)
        words = [python, "-m", MODULE, *attempt]
        # this marks a job watched by a launcher, so that SIGTERM waits for the end of the step
        marked = ["env", f"TORCHELASTIC_RUN_ID={job}", *words]
        entry = f"cd {shlex.quote(details['directory'])} && exec {shlex.join(marked)}"
        with tempfile.TemporaryDirectory() as folder:
            server.submit(
                job,
                entrypoint=entry,
                runtime_env={
                    "working_dir": str(_packed(details["files"], Path(folder) / "files.zip")),
                    "env_vars": details["environment"],
                },
                metadata={"rlvr_run": details["name"]},
                **details["resources"],
            )
        JobBook().add(
            Job(
                job=job,
                launcher=plan.launcher,
                name=details["name"],
                config=details["config"],
                options=details["options"],
                runs=runs,
                details=details["kept"],
            )
        )
        sys.stdout.write(f"{job}\n")
        sys.stdout.flush()
        return self._wait(server, job) if self._config.wait else 0

    def status(self, job: str) -> JobStatus:
        """Query the cluster; see ``JobLauncher.status``."""
        return _status(self._server().info(job))

    def logs(self, job: str) -> Iterator[str]:
        """Yield the lines of the job's output; see ``JobLauncher.logs``."""
        yield from self._server().log(job).splitlines()

    def stop(self, job: str) -> None:
        """Send SIGTERM, and SIGKILL ``grace`` seconds later; see ``JobLauncher.stop``."""
        server = self._server()
        if _status(server.info(job)).state in ("waiting", "running"):
            server.stop(job)

    @staticmethod
    def prepare(
        launcher: str, words: LaunchWords, given: Mapping[str, Any]
    ) -> tuple[LaunchRequest, dict[str, Any]]:
        """Make the request; see ``PreparesRequests``."""
        return remote_request(launcher, words, given, _options_as_before)

    def _status_there(self, job: Job) -> JobStatus:
        """Query the cluster that a job was submitted to."""
        address = str(job.options.get("address") or address_of(self._config.address))
        return _status(JobServer(address).info(job.job))

    def _server(self) -> JobServer:
        return JobServer(address_of(self._config.address))

    def _check(self) -> None:
        """Refuse malformed options, and values that look like secrets.

        Ray's dashboard shows them to everyone.
        """
        config = self._config
        faults = wrong_pairs("--env", config.env) + wrong_pairs("--resources", config.resources)
        for name, number in pairs(config.resources).items():
            if not re.fullmatch(r"\d+(\.\d+)?", number):
                faults.append(Complaint(f"the resource {name} takes a number", "--resources"))
        if faults:
            raise ConfigError.collect(faults)

    def _command(self, request: LaunchRequest, staged: Staged) -> list[str]:
        config = self._config
        first, *words = staged.arguments(request)
        begin = [config.python, "-m", "rlvr_core.cli.main"]
        if first == "eval" or not (config.gpus or config.engine_gpus or config.processes):
            return [*begin, first, *words]
        processes = config.processes or (None if config.gpus else 1)
        _, counts = counted(processes, config.gpus, config.engine_gpus, request)
        return [*begin, "launch", *words, "--backend", "local", *counts]

    def _resources(self) -> dict[str, Any]:
        """Return the resources that Ray reserves for the job, by the names of ``submit_job``."""
        config = self._config
        gpus = (config.gpus or 0) + (config.engine_gpus or 0)
        reserved: dict[str, Any] = {"entrypoint_num_cpus": config.cpus}
        if gpus:
            reserved["entrypoint_num_gpus"] = gpus
        if config.memory_gb:
            reserved["entrypoint_memory"] = int(config.memory_gb * 2**30)
        if config.resources:
            named = pairs(config.resources)
            reserved["entrypoint_resources"] = {name: float(n) for name, n in named.items()}
        return reserved

    def _wait(self, server: JobServer, job: str) -> int:
        """Wait for a job, print its log, and return its exit code; Ctrl-C does not stop the job."""
        sys.stderr.write(f"Ctrl-C ends this command alone; the job: rlvr jobs stop {job}\n")
        answered, shown = time.monotonic(), 0
        while True:
            try:
                info, log = server.info(job), server.log(job)
            except MachineError as error:  # the job runs on although it cannot be reached
                if time.monotonic() - answered >= _QUIET:
                    raise
                sys.stderr.write(f"{error.complaints[0].what}; asking again\n")
            else:
                answered = time.monotonic()
                sys.stdout.write(log[shown:])
                sys.stdout.flush()
                shown, now = len(log), _status(info)
                if now.state not in ("waiting", "running", "unknown"):
                    sys.stderr.write(f"{job}: {now.state} ({now.detail})\n")
                    return _exit_code(now, info.driver_exit_code)
            time.sleep(self._config.poll)


def _status(info: Any) -> JobStatus:
    word = str(info.status)
    first, *_ = (info.message or "").strip().splitlines() or [""]
    return JobStatus(_STATES.get(word, "unknown"), f"{word}: {first}" if first else word)


def _exit_code(status: JobStatus, code: int | None) -> int:
    if code is not None:  # negative if a signal ended the process
        return code if code >= 0 else 128 - code
    return {"finished": 0, "stopped": _INTERRUPTED}.get(status.state, 1)


def _packed(files: list[Mapping[str, Any]], path: Path) -> Path:
    """Put the files into an archive; Ray's own would omit what a .gitignore names."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            archive.write(file["path"], file["key"])
    return path


def _lines(details: Mapping[str, Any]) -> Iterator[str]:
    words = {"entrypoint_num_cpus": "CPU", "entrypoint_num_gpus": "GPU"}
    resources: dict[str, Any] = {**details["resources"]}
    if memory := resources.pop("entrypoint_memory", None):
        resources["GiB of memory"] = memory / 2**30
    resources |= resources.pop("entrypoint_resources", {})
    needs = ", ".join(f"{count:g} {words.get(name, name)}" for name, count in resources.items())
    yield f"a Ray job for {details['name']}, submitted to {details['address']}"
    yield f"it needs: {needs}"
    yield f"command: {shlex.join(details['command'])}, in {details['directory']}"
    yield f"copies of the run: {details['store']}/JOB"
    for name, value in details["environment"].items():
        yield f"environment: {name}={value}"
    files = details["files"]
    yield f"{len(files)} files go along, {sum(file['size'] for file in files):,} bytes"
    for file in files:
        yield f"  {file['key']}" + (f" (by a link: {file['real']})" if "real" in file else "")
