"""The options of a job, those of ``rlvr launch --backend sagemaker``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Annotated

from pydantic import BeforeValidator, Field

from rlvr_core.api import Complaint, ComponentConfig, ConfigError
from rlvr_core.launch.processes import split_gpus
from rlvr_core.record.secrets import secrets_in_words
from rlvr_sagemaker.aws import region_here
from rlvr_sagemaker.checks import (
    account_faults,
    image_faults,
    name_faults,
    request_faults,
    secret_faults,
)
from rlvr_sagemaker.pins import vllm_here

Positive = Annotated[int, Field(gt=0)]
Gpu = Annotated[int, Field(ge=0)]

_VARIABLE = re.compile(r"^[A-Za-z_]\w*$", re.ASCII)
_SECRET_ARN = re.compile(
    r"^arn:[\w-]+:secretsmanager:[a-z0-9-]+:\d{12}:secret:[\w/+=.@-]+$", re.ASCII
)
_AS_ARN = (
    "an ARN looks like arn:aws:secretsmanager:<region>:<account>:secret:<name>-<six characters>"
)
_FROM_ENVIRONMENT = {
    "store": "RLVR_SAGEMAKER_STORE",
    "role": "RLVR_SAGEMAKER_ROLE",
    "image": "RLVR_SAGEMAKER_IMAGE",
    "instance_type": "RLVR_SAGEMAKER_INSTANCE_TYPE",
}


class Options(ComponentConfig):
    """Options of ``sagemaker``. Without defaults are those that only an account can have."""

    store: str | None = None
    """Where jobs keep their things, as s3://bucket/folder [RLVR_SAGEMAKER_STORE]."""
    role: str | None = None
    """ARN of the role that the job runs as [RLVR_SAGEMAKER_ROLE]."""
    image: str | None = None
    """URI of the job's image in ECR [RLVR_SAGEMAKER_IMAGE]; with --build, one of the job's own."""
    instance_type: str | None = None
    """Kind of machine, as ml.p4de.24xlarge [RLVR_SAGEMAKER_INSTANCE_TYPE]."""
    instance_count: Positive = 1
    """Machines."""
    region: str | None = None
    """Region; else AWS_REGION, AWS_DEFAULT_REGION or the profile's."""
    job_name: str | None = None
    """Name of the job; else one that says nothing: rlvr-adhoc-<time>."""
    volume_gb: Positive = 200
    """Disk of each machine; those with disks of their own ignore it."""
    max_runtime: Positive = 5 * 86400
    """Longest time in seconds."""
    spot: bool = False
    """Use spare machines, which may be taken away; the run goes on when there are some again."""
    max_wait: Positive | None = None
    """With --spot: longest time in seconds, waiting included; else twice --max-runtime."""
    processes: Positive | None = None
    """Processes on each machine; else one for each GPU, or one."""
    train_gpus: str | None = None
    """GPUs to train on, as 0-5 or 0,1; else all."""
    engine_gpus: Annotated[list[Gpu] | None, BeforeValidator(split_gpus)] = None
    """GPUs of an engine in processes of its own."""
    eval_gpus: str | None = None
    """GPUs of the first machine for --eval-config."""
    include: list[str] = []
    """More files or folders that the job needs; a folder with a pyproject.toml is installed."""
    env: list[str] = []
    """NAME=VALUE for the job's environment; no secrets."""
    secrets: list[str] = []
    """NAME=ARN of a secret in Secrets Manager that the job finds in its environment."""
    kms_key: str | None = None
    """ARN of the KMS key that the bucket is encrypted with, for SageMaker's own archive as well."""
    subnets: list[str] = []
    """Subnets of a VPC, with --security-groups."""
    security_groups: list[str] = []
    """Security groups of that VPC."""
    tags: list[str] = []
    """NAME=VALUE tags of the job."""
    request: list[str] = []
    """KEY=VALUE of CreateTrainingJob itself, as ResourceConfig.KeepAlivePeriodInSeconds=1800."""
    max_staged_mb: Positive = 1024
    """Largest total of the files that go along."""
    wait: bool = False
    """Wait for the job to end, and end with its outcome."""
    poll: Annotated[float, Field(gt=0)] = 30.0
    """Seconds between two looks while waiting."""
    build: bool = False
    """Build --image from this environment and push it to ECR first; its repository is made if need
    be."""

    def check(self) -> None:
        """Refuse what cannot work, before anything is asked of AWS.

        Raises:
            ConfigError: With every fault.
        """
        faults = [*self._secrets(), *self._faults()]
        if faults:
            raise ConfigError.collect(faults)

    def _secrets(self) -> Iterator[Complaint]:
        """Options that stay secret: messages show only their names."""
        for name, value in self.model_dump(exclude={"secrets"}, exclude_none=True).items():
            for item in value if isinstance(value, list) else [value]:
                yield from secrets_in_words([f"--{name.replace('_', '-')}", str(item)])
        for secret in self.secrets:
            name, _, arn = secret.partition("=")
            shown = f"--secrets {name}=…" if _VARIABLE.match(name) and arn else "--secrets"
            if _SECRET_ARN.match(arn):
                yield from secret_faults(arn, shown)
            else:
                yield Complaint("it takes NAME=ARN, not a secret itself", shown, (_AS_ARN,))

    def needed(self, name: str) -> str:
        """A required option, given here or in the environment."""
        value = getattr(self, name) or os.environ.get(_FROM_ENVIRONMENT[name])
        if not value:
            flag = name.replace("_", "-")
            raise ConfigError(
                f"--{flag} is missing",
                remedy=f"give it, or set {_FROM_ENVIRONMENT[name]}",
            )
        return str(value)

    def image_uri(self, job: str) -> str:
        """The image's URI; of one that is built without a name, the job's own in ECR."""
        if self._has_image() or not self.build:
            return self.needed("image")
        _, partition, _, _, account, _ = self.needed("role").split(":", 5)
        region = self.region or region_here()
        suffix = "amazonaws.com.cn" if partition == "aws-cn" else "amazonaws.com"
        return f"{account}.dkr.ecr.{region}.{suffix}/rlvr:{job}"

    def _has_image(self) -> bool:
        return bool(self.image or os.environ.get(_FROM_ENVIRONMENT["image"]))

    def _faults(self) -> list[Complaint]:
        faults: list[Complaint] = []
        for name in _FROM_ENVIRONMENT:
            if name == "image" and self.build:
                continue  # it has a name of ours
            try:
                self.needed(name)
            except ConfigError as error:
                faults += error.complaints
        if not faults:
            faults += account_faults(self)
            if self._has_image():
                faults += image_faults(self.needed("image"), self.region or region_here())
        faults += name_faults(self.job_name)
        faults += self._build_faults()
        faults += self._gpu_faults()
        if bool(self.subnets) != bool(self.security_groups):
            faults.append(Complaint("a VPC needs both", "--subnets, --security-groups"))
        if self.max_wait is not None and not self.spot:
            faults.append(Complaint("it goes with --spot", "--max-wait"))
        if self.max_wait is not None and self.max_wait < self.max_runtime:
            faults.append(Complaint("it is less than --max-runtime", "--max-wait"))
        return [*faults, *request_faults(self)]

    def _build_faults(self) -> list[Complaint]:
        if not self.build:
            return []
        try:
            vllm_here()
        except ConfigError as error:
            return list(error.complaints)
        if not self._has_image() and not (self.region or region_here()):
            return [Complaint("the image needs a region", "--build", ("give --region",))]
        return []

    def _gpu_faults(self) -> list[Complaint]:
        try:
            train, evaluate = gpu_list(self.train_gpus), gpu_list(self.eval_gpus)
        except ValueError as error:
            return [Complaint(str(error), "--train-gpus, --eval-gpus")]
        faults = []
        every = [*train, *evaluate, *(self.engine_gpus or [])]
        twice = ", ".join(str(gpu) for gpu in sorted(set(every)) if every.count(gpu) > 1)
        if twice:
            faults.append(Complaint(f"GPU {twice} is named twice", "--train-gpus, --eval-gpus"))
        if self.processes and train and len(train) != self.processes:
            what = f"{self.processes} processes on {len(train)} GPUs: each trains on one"
            remedy = ("name as many GPUs as processes, or leave --processes out",)
            faults.append(Complaint(what, "--processes, --train-gpus", remedy))
        return faults


def gpu_list(text: str | None) -> list[int]:
    """``0-2,5`` as ``[0, 1, 2, 5]``.

    Raises:
        ValueError: If it is no list of GPUs.
    """
    gpus: list[int] = []
    for part in (text or "").split(",") if text else []:
        match = re.match(r"^\s*(\d{1,3})(?:-(\d{1,3}))?\s*$", part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise ValueError(f"'{text}' is no list of GPUs such as 0-5 or 0,1")
        gpus += range(int(match[1]), int(match[2] or match[1]) + 1)
    if len(set(gpus)) < len(gpus):
        raise ValueError(f"'{text}' names a GPU twice")
    return gpus


def pairs(values: list[str]) -> dict[str, str]:
    """``NAME=VALUE`` words as a mapping."""
    return {text.partition("=")[0]: text.partition("=")[2] for text in values}
