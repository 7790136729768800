"""The launcher ``sagemaker``: one training job, from a plan that says everything beforehand."""

from __future__ import annotations

import copy
import itertools
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from rlvr_cluster.jobs.job_book import Job, JobBook
from rlvr_cluster.jobs.protocol import JobState, JobStatus
from rlvr_cluster.jobs.request import remote_request
from rlvr_core.api import ConfigError, LaunchPlan, LaunchRequest, LaunchWords, MachineError
from rlvr_sagemaker import staging
from rlvr_sagemaker.aws import call, client, code_of, region_here
from rlvr_sagemaker.iam import permissions
from rlvr_sagemaker.options import Options
from rlvr_sagemaker.place import Place
from rlvr_sagemaker.plan_text import lines_of
from rlvr_sagemaker.request import CHANNEL, training_job
from rlvr_sagemaker.resume import details_to_keep, options_of
from rlvr_sagemaker.store import S3Store

QUIET = 3600.0
"""Seconds without an answer after which waiting ends."""

LOG_GROUP = "/aws/sagemaker/TrainingJobs"

_STATES: dict[str, JobState] = {
    "InProgress": "running",
    "Stopping": "running",
    "Completed": "finished",
    "Failed": "failed",
    "Stopped": "stopped",
}
_WAITING = {"Starting", "Pending", "LaunchingMLInstances", "PreparingTrainingStack", "Interrupted"}


class SageMakerLauncher:
    """A training job on SageMaker; its runs are mirrored to S3 and go on after an interruption."""

    Config = Options

    def __init__(self, config: Options) -> None:
        self._config = config

    @staticmethod
    def prepare(
        launcher: str, words: LaunchWords, given: Mapping[str, Any]
    ) -> tuple[LaunchRequest, dict[str, Any]]:
        """Make the request; see ``PreparesRequests``."""
        return remote_request(launcher, words, given, options_of, evaluates_beside=True)

    def plan(self, request: LaunchRequest) -> LaunchPlan:
        """Request, files and permissions of the job; see ``Launcher.plan``.

        Raises:
            ConfigError: If an option is missing or wrong, or something must not leave this machine.
        """
        config = self._config
        config.check()
        if config.engine_gpus and not request.engine_apart:
            raise ConfigError(
                "the config's engine works inside the training processes",
                where="--engine-gpus",
                remedy="leave it out, or choose an engine with processes of its own",
            )
        if config.eval_gpus and request.beside is None:
            raise ConfigError("it goes with --eval-config", where="--eval-gpus")
        now = datetime.now(UTC)
        job = config.job_name or now.strftime("rlvr-adhoc-%Y%m%d-%H%M%S-") + f"{now:%f}"[:3]
        staged = staging.stage(config, request)
        place = Place.parse(config.needed("store")) / f"jobs/{job}"
        runs = request.continues or str(place / "runs")
        code = place / CHANNEL
        creation = training_job(config, job, place)
        uris = (*request.uris, *(request.beside.uris if request.beside else ()))
        details: dict[str, Any] = {
            "job": job,
            "name": request.name,
            "config": str(request.files[0].absolute()) if request.files else "",
            "region": config.region or region_here(),
            "request": creation,
            "code": str(code),
            "runs": runs,
            "eval_config": str(request.beside.config.absolute()) if request.beside else "",
            "set": [b for a, b in itertools.pairwise(request.arguments) if a == "--set"],
            "description": staging.description(staged, config, request, runs, job),
            "files": [file.as_json() for file in staged.files],
            "permissions": permissions(config, creation, [*uris, runs]),
            "options": config.model_dump(mode="json", exclude_none=True),
        }
        return LaunchPlan("sagemaker/sagemaker", tuple(lines_of(details)), details)

    def submit(self, plan: LaunchPlan) -> int:
        """Stage the files and create the job; see ``Launcher.submit``."""
        config, details = self._config, plan.details
        say = _say
        request: Any = details["request"]
        JobBook().ready()
        if config.build:
            from rlvr_sagemaker.image import build

            image = request["AlgorithmSpecification"]["TrainingImage"]
            build(image, push=True, say=say)
        self._nobody_writes_to(str(details["runs"]))
        submission = uuid.uuid4().hex
        # of this submission alone: another job may have the name, and its files there
        code = Place.parse(str(details["code"])) / submission
        staging.upload(details, S3Store(code), say)
        request = copy.deepcopy(request)
        request["HyperParameters"]["submission"] = submission
        request["InputDataConfig"][0]["DataSource"]["S3DataSource"]["S3Uri"] = f"{code}/"
        self._create(request)
        JobBook().add(
            Job(
                job=str(details["job"]),
                launcher=plan.launcher,
                name=str(details["name"]),
                config=str(details["config"]),
                options=self._kept(details["options"]),
                runs=str(details["runs"]),
                details={
                    "arguments": details["description"]["arguments"],
                    "set": details["set"],
                    "eval_config": details["eval_config"],
                    **details_to_keep(config, request),
                },
            )
        )
        sys.stdout.write(f"{details['job']}\n")
        return self._wait(str(details["job"]), say) if config.wait else 0

    def status(self, job: str) -> JobStatus:
        """Return SageMaker's status of the job; see ``JobLauncher.status``."""
        answer = self._describe(job)
        status, second = str(answer["TrainingJobStatus"]), str(answer.get("SecondaryStatus", ""))
        state = _STATES.get(status, "unknown")
        if state == "running" and second in _WAITING:
            state = "waiting"
        detail = ", ".join(filter(None, [status, second, str(answer.get("FailureReason", ""))]))
        return JobStatus(state, detail)

    def logs(self, job: str) -> Iterator[str]:
        """Lines of all its machines, one machine after the other; see ``JobLauncher.logs``."""
        logs = client("logs", self._config.region)
        where = {"logGroupName": LOG_GROUP, "logStreamNamePrefix": f"{job}/"}
        try:
            streams = call(f"looking for the logs of {job}", lambda: list(_streams(logs, where)))
        except MachineError as error:
            if error.__cause__ is None or code_of(error.__cause__) != "ResourceNotFoundException":
                raise
            streams = []
        if not streams:
            raise MachineError(f"{job} has printed nothing yet")
        for stream in sorted(streams):
            machine = stream.partition("/")[2]
            for line in _events(logs, stream):
                yield f"[{machine}] {line}" if len(streams) > 1 else line

    def stop(self, job: str) -> None:
        """SIGTERM, and two minutes; see ``JobLauncher.stop``."""
        sagemaker = client("sagemaker", self._config.region)
        if self.status(job).state in ("waiting", "running"):
            call(f"stopping {job}", lambda: sagemaker.stop_training_job(TrainingJobName=job))

    def _kept(self, options: Any) -> dict[str, Any]:
        """Return the data that later commands about the job need, in any environment."""
        region = client("sagemaker", self._config.region).meta.region_name
        return {"region": region} | {key: options[key] for key in ("store",) if key in options}

    def _nobody_writes_to(self, runs: str) -> None:
        for job in JobBook().jobs():
            if job.runs == runs and self.status(job.job).state in ("waiting", "running"):
                raise ConfigError(
                    f"job {job.job} is still at work on that run",
                    where="--resume",
                    remedy=f"wait for it, or stop it first: rlvr jobs stop {job.job}",
                )

    def _create(self, request: Any) -> None:
        """Create the job, once: an answer that was lost must not make it look refused."""
        sagemaker = client("sagemaker", self._config.region)

        def act() -> None:
            try:
                sagemaker.create_training_job(**request)
            except Exception as error:
                if code_of(error) not in ("ResourceInUse", "ResourceInUseException"):
                    raise
                there = self._describe(request["TrainingJobName"])
                if there.get("HyperParameters") != request["HyperParameters"]:
                    raise ConfigError(
                        f"there is already a job named {request['TrainingJobName']}",
                        where="--job-name",
                        remedy="names are taken for ever; choose another",
                    ) from error

        call("creating the job", act)

    def _describe(self, job: str) -> Mapping[str, Any]:
        sagemaker = client("sagemaker", self._config.region)

        def act() -> Mapping[str, Any]:
            answer: Mapping[str, Any] = sagemaker.describe_training_job(TrainingJobName=job)
            return answer

        return call(f"looking at {job}", act)

    def _wait(self, job: str, say: Callable[[str], None]) -> int:
        before, answered = None, time.monotonic()
        while True:
            try:
                now = self.status(job)
            except MachineError as error:  # the job goes on, whatever is between it and us
                if time.monotonic() - answered >= QUIET:
                    raise
                now = JobStatus("unknown", error.complaints[0].what)
            else:
                answered = time.monotonic()
            if now != before:
                say(f"{job}: {now.detail}")
                before = now
            if now.state not in ("waiting", "running", "unknown"):
                return 0 if now.state == "finished" else 1
            time.sleep(self._config.poll)


def _streams(logs: Any, where: Mapping[str, str]) -> Iterator[str]:
    for page in logs.get_paginator("describe_log_streams").paginate(**where):
        yield from (stream["logStreamName"] for stream in page["logStreams"])


def _events(logs: Any, stream: str) -> Iterator[str]:
    token: dict[str, str] = {}
    while True:

        def act(token: Mapping[str, str] = dict(token)) -> Any:
            return logs.get_log_events(
                logGroupName=LOG_GROUP, logStreamName=stream, startFromHead=True, **token
            )

        page = call(f"reading the log {stream}", act)
        yield from (event["message"].rstrip("\n") for event in page["events"])
        following = page.get("nextForwardToken")
        # the same token again is the end; a page without events is not
        if not following or following == token.get("nextToken"):
            return
        token = {"nextToken": following}


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
