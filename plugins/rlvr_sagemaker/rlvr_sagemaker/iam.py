"""IAM policies for one account, region and bucket: for who submits, and for the job."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlvr_core.api import Complaint, ConfigError, Json
from rlvr_sagemaker.names import secret_faults
from rlvr_sagemaker.place import Place

PARTS = ("submitter", "trust", "job")

REPOSITORY = "rlvr"
"""Repository of the images that ``--build`` names itself."""

Statement = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What the policies are for.

    Attributes:
        account: The account's number.
        region: Region of jobs and images.
        store: Where jobs keep their things, ``s3://bucket/folder``.
        role: Name of the role that jobs run as.
        repository: Name of the images' repository in ECR.
        secrets: ARNs of the secrets that jobs fetch.
        subnets: Subnets of the VPC that jobs run in; empty for none.
        security_groups: Security groups of that VPC.
        kms_key: ARN of the key that the bucket and the secrets are encrypted with; None for AWS's.
    """

    account: str
    region: str
    store: str
    role: str
    repository: str = REPOSITORY
    secrets: Sequence[str] = ()
    subnets: Sequence[str] = ()
    security_groups: Sequence[str] = ()
    kms_key: str | None = None

    @property
    def arn(self) -> str:
        """What an ARN of this region's partition begins with, ``arn:aws``."""
        return f"arn:{_partition(self.region)}"

    def of(self, service: str) -> str:
        """What the ARNs of a service in this region begin with."""
        return f"{self.arn}:{service}:{self.region}:{self.account}"

    def endpoint(self, service: str) -> str:
        """A service of this region as a key's policy names it."""
        suffix = "amazonaws.com.cn" if self.arn == "arn:aws-cn" else "amazonaws.com"
        return f"{service}.{self.region}.{suffix}"

    def check(self) -> None:
        """Refuse values that are none of their kind.

        Raises:
            ConfigError: With every fault.
        """
        kinds = (
            ("--account", [self.account], r"\d{12}", "is no account: it has 12 digits"),
            ("--region", [self.region], r"[a-z]{2}(-[a-z]+)+-\d", "is no region"),
            ("--role", [self.role], r"[\w+=,.@-]{1,64}", "is no role's name"),
            ("--repository", [self.repository], r"[a-z0-9][a-z0-9._/-]*", "is no repository"),
            ("--secret", self.secrets, _ARN.format("secretsmanager", "secret:.+"), _NO_ARN),
            ("--subnet", self.subnets, r"subnet-[0-9a-f]+", "is no subnet"),
            ("--security-group", self.security_groups, r"sg-[0-9a-f]+", "is no security group"),
            (
                "--kms-key",
                [self.kms_key] if self.kms_key else [],
                _ARN.format("kms", "key/.+"),
                _NO_ARN,
            ),
        )
        faults = [
            Complaint(f"{value!r} {wrong}", flag)
            for flag, values, pattern, wrong in kinds
            for value in values
            if not re.fullmatch(pattern, value)
        ]
        if not faults:
            faults += [one for arn in self.secrets for one in secret_faults(arn, "--secret")]
        if bool(self.subnets) != bool(self.security_groups):
            faults.append(Complaint("a VPC needs both", "--subnet, --security-group"))
        if faults:
            raise ConfigError.collect(faults)


@functools.lru_cache(maxsize=8)
def _partition(region: str) -> str:
    from botocore.exceptions import UnknownRegionError
    from botocore.session import Session

    try:
        return str(Session().get_partition_for_region(region))
    except UnknownRegionError as error:
        raise ConfigError(f"{region!r} is no region", where="--region") from error


_ARN = r"arn:[a-z-]+:{0}:[a-z0-9-]+:\d{{12}}:{1}"
_NO_ARN = "is no ARN of one"


def policies(given: Account) -> dict[str, dict[str, Json]]:
    """The three documents.

    Returns:
        ``submitter``: what a user needs. ``trust``: who may take on the role. ``job``: what it may.

    Raises:
        ConfigError: If a value is none of its kind; all faults at once.
    """
    given.check()
    store = _store(given)
    trust = {
        "Effect": "Allow",
        "Principal": {"Service": "sagemaker.amazonaws.com"},
        "Action": "sts:AssumeRole",
        "Condition": {"StringEquals": {"aws:SourceAccount": given.account}},
    }
    return {
        "submitter": _document([*store, *_submitter(given)]),
        "trust": _document([trust]),
        "job": _document([*store, *_job(given), *_secrets(given), *_vpc(given)]),
    }


def _store(given: Account) -> list[Statement]:
    place = Place.parse(given.store)
    bucket = f"{given.arn}:s3:::{place.bucket}"
    listing = {"StringLike": {"s3:prefix": [f"{place.prefix}*", place.key]}}
    found = [
        _allow("ListStore", ["s3:ListBucket"], bucket, listing),
        _allow(
            "UseStore",
            ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"],
            f"{bucket}/{place.prefix}*",
        ),
    ]
    if given.kms_key:
        through = {"StringEquals": {"kms:ViaService": given.endpoint("s3")}}
        actions = ["kms:Decrypt", "kms:GenerateDataKey"]
        found.append(_allow("UseTheKeyOfTheStore", actions, given.kms_key, through))
    return found


def _submitter(given: Account) -> list[Statement]:
    logs = _logs(given)
    return [
        _allow(
            "Jobs",
            [
                "sagemaker:AddTags",
                "sagemaker:CreateTrainingJob",
                "sagemaker:DescribeTrainingJob",
                "sagemaker:StopTrainingJob",
            ],
            f"{given.of('sagemaker')}:training-job/*",
        ),
        _allow("ListJobs", ["sagemaker:ListTrainingJobs"], "*"),
        _allow(
            "PassTheRole",
            ["iam:PassRole"],
            f"{given.arn}:iam::{given.account}:role/{given.role}",
            {"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}},
        ),
        _allow("ReadLogs", ["logs:DescribeLogStreams", "logs:GetLogEvents"], logs),
        _allow("LogInToImages", ["ecr:GetAuthorizationToken"], "*"),
        _allow(
            "PushImages",
            [
                "ecr:BatchCheckLayerAvailability",
                "ecr:BatchGetImage",
                "ecr:CompleteLayerUpload",
                "ecr:CreateRepository",
                "ecr:GetDownloadUrlForLayer",
                "ecr:InitiateLayerUpload",
                "ecr:PutImage",
                "ecr:UploadLayerPart",
            ],
            f"{given.of('ecr')}:repository/{given.repository}",
        ),
    ]


def _job(given: Account) -> list[Statement]:
    place = Place.parse(given.store)
    return [
        # asked by SageMaker itself, of the bucket that its archive of the model goes to
        _allow("FindBucket", ["s3:GetBucketLocation"], f"{given.arn}:s3:::{place.bucket}"),
        _allow("LogInToImages", ["ecr:GetAuthorizationToken"], "*"),
        _allow(
            "PullImages",
            [
                "ecr:BatchCheckLayerAvailability",
                "ecr:BatchGetImage",
                "ecr:GetDownloadUrlForLayer",
            ],
            f"{given.of('ecr')}:repository/{given.repository}",
        ),
        _allow(
            "WriteLogs",
            [
                "logs:CreateLogGroup",
                "logs:CreateLogStream",
                "logs:DescribeLogStreams",
                "logs:PutLogEvents",
            ],
            _logs(given),
        ),
        _allow(
            "WriteMetrics",
            ["cloudwatch:PutMetricData"],
            "*",
            {"StringEquals": {"cloudwatch:namespace": "/aws/sagemaker/TrainingJobs"}},
        ),
    ]


def _secrets(given: Account) -> list[Statement]:
    """The secrets of ``--secrets``, which the job fetches itself."""
    if not given.secrets:
        return []
    found = [_allow("FetchSecrets", ["secretsmanager:GetSecretValue"], list(given.secrets))]
    if given.kms_key:
        through = {"StringEquals": {"kms:ViaService": given.endpoint("secretsmanager")}}
        found.append(_allow("ReadSecretsByTheKey", ["kms:Decrypt"], given.kms_key, through))
    return found


def _vpc(given: Account) -> list[Statement]:
    """Network interfaces, which SageMaker makes in the VPC in the name of the job."""
    if not given.subnets:
        return []
    interfaces = f"{given.of('ec2')}:network-interface/*"
    subnets = [f"{given.of('ec2')}:subnet/{one}" for one in given.subnets]
    groups = [f"{given.of('ec2')}:security-group/{one}" for one in given.security_groups]
    return [
        _allow("MakeInterfaces", ["ec2:CreateNetworkInterface"], [interfaces, *subnets, *groups]),
        _allow(
            "UseInterfaces",
            [
                "ec2:CreateNetworkInterfacePermission",
                "ec2:DeleteNetworkInterface",
                "ec2:DeleteNetworkInterfacePermission",
            ],
            interfaces,
            {"ArnEquals": {"ec2:Subnet": subnets}},
        ),
        _allow(
            "LookAtTheNetwork",
            [
                "ec2:DescribeDhcpOptions",
                "ec2:DescribeNetworkInterfaces",
                "ec2:DescribeSecurityGroups",
                "ec2:DescribeSubnets",
                "ec2:DescribeVpcs",
            ],
            "*",
        ),
    ]


def _logs(given: Account) -> list[str]:
    group = f"{given.of('logs')}:log-group:/aws/sagemaker/TrainingJobs"
    return [group, f"{group}:log-stream:*"]


def _allow(
    name: str, actions: list[str], resource: str | list[str], condition: Json = None
) -> Statement:
    found: Statement = {
        "Sid": name,
        "Effect": "Allow",
        "Action": actions,
        "Resource": resource,
    }
    if condition is not None:
        found["Condition"] = condition
    return found


def _document(statements: list[Statement]) -> dict[str, Json]:
    return {"Version": "2012-10-17", "Statement": statements}
