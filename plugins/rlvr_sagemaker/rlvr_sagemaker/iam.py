"""IAM policies for one account, region and bucket: for who submits, and for the job."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlvr_core.api import Complaint, ConfigError, Json
from rlvr_sagemaker.aws import region_here
from rlvr_sagemaker.checks import secret_faults
from rlvr_sagemaker.options import Options, pairs
from rlvr_sagemaker.place import Place, is_s3

_ECR = re.compile(r"\d{12}\.dkr[.-]ecr(?:-fips)?\.[a-z0-9-]+\.[a-z.]+/([^:@]+)")
REPOSITORY = "rlvr"
"""Repository of the images that ``--build`` names itself."""

Statement = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The subject of the policies.

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
        reads: Other places that jobs read, as ``s3://…``.
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
    reads: Sequence[str] = ()

    @property
    def arn(self) -> str:
        """Prefix of an ARN of this region's partition, ``arn:aws``."""
        return f"arn:{_partition(self.region)}"

    def of(self, service: str) -> str:
        """Return the prefix of a service's ARNs in this region."""
        return f"{self.arn}:{service}:{self.region}:{self.account}"

    def endpoint(self, service: str) -> str:
        """A service of this region as a key's policy names it."""
        suffix = "amazonaws.com.cn" if self.arn == "arn:aws-cn" else "amazonaws.com"
        return f"{service}.{self.region}.{suffix}"

    def check(self) -> None:
        """Refuse malformed values.

        Raises:
            ConfigError: With every fault.
        """
        kinds = (
            (
                "--account",
                [self.account],
                r"\d{12}",
                "is not an account: it has 12 digits",
            ),
            ("--region", [self.region], r"[a-z]{2}(-[a-z]+)+-\d", "is not a region"),
            ("--role", [self.role], r"[\w+=,.@-]{1,64}", "is not a role name"),
            (
                "--repository",
                [self.repository],
                r"[a-z0-9][a-z0-9._/-]*",
                "is not a repository",
            ),
            ("--secret", self.secrets, _ARN.format("secretsmanager", "secret:.+"), _NO_ARN),
            ("--subnet", self.subnets, r"subnet-[0-9a-f]+", "is not a subnet"),
            ("--security-group", self.security_groups, r"sg-[0-9a-f]+", "is not a security group"),
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
            faults += [fault for arn in self.secrets for fault in secret_faults(arn, "--secret")]
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
        raise ConfigError(f"{region!r} is not a region", where="--region") from error


_ARN = r"arn:[a-z-]+:{0}:[a-z0-9-]+:\d{{12}}:{1}"
_NO_ARN = "is not the ARN of one"


def policies(given: Account) -> dict[str, dict[str, Json]]:
    """The three documents.

    Returns:
        ``submitter``: what a user needs. ``trust``: who may take on the role. ``job``: what it may.

    Raises:
        ConfigError: If a value is malformed; all faults at once.
    """
    given.check()
    return {name: _document(statements) for name, statements in _statements(given).items()}


def _statements(given: Account) -> dict[str, list[Statement]]:
    store = _store(given)
    trust = {
        "Effect": "Allow",
        "Principal": {"Service": "sagemaker.amazonaws.com"},
        "Action": "sts:AssumeRole",
        "Condition": {"StringEquals": {"aws:SourceAccount": given.account}},
    }
    return {
        "submitter": [*store, *_submitter(given)],
        "trust": [trust],
        "job": [*store, *_reads(given), *_job(given), *_secrets(given), *_vpc(given)],
    }


def permissions(
    config: Options, request: Mapping[str, Any], uris: Iterable[str]
) -> list[dict[str, Json]]:
    """Return the permissions for one job: ``who``, ``actions`` and ``resources`` of each statement.

    Args:
        config: The options, checked.
        request: Arguments of ``CreateTrainingJob``.
        uris: Places besides the store that the job reads or writes.
    """
    region = config.region or region_here()
    if region is None:
        return []  # the plan says that there is none yet
    role, store = config.needed("role"), config.needed("store")
    match = _ECR.match(request["AlgorithmSpecification"]["TrainingImage"])
    account = Account(
        account=role.split(":")[4],
        region=region,
        store=store,
        role=role.partition(":role/")[2],
        repository=match[1] if match else REPOSITORY,
        secrets=tuple(pairs(config.secrets).values()),
        subnets=config.subnets,
        security_groups=config.security_groups,
        kms_key=config.kms_key,
        reads=[uri for uri in dict.fromkeys(uris) if is_s3(uri) and not uri.startswith(store)],
    )
    statements = _statements(account)
    plan = request["ResourceConfig"].get("TrainingPlanArn")
    if plan:
        create = _allow("UseThePlan", ["sagemaker:CreateTrainingJob"], plan)
        statements["submitter"].append(create)
    return [
        {"who": who, "actions": statement["Action"], "resources": _listed(statement["Resource"])}
        for who in ("submitter", "job")
        for statement in statements[who]
    ]


def _listed(resources: str | list[str]) -> list[str]:
    return [resources] if isinstance(resources, str) else resources


def _store(given: Account) -> list[Statement]:
    place = Place.parse(given.store)
    bucket = f"{given.arn}:s3:::{place.bucket}"
    listing = {"StringLike": {"s3:prefix": [f"{place.prefix}*", place.key]}}
    statements = [
        _allow("ListStore", ["s3:ListBucket"], bucket, listing),
        _allow(
            "UseStore",
            _actions("s3", "GetObject PutObject DeleteObject AbortMultipartUpload"),
            f"{bucket}/{place.prefix}*",
        ),
    ]
    if given.kms_key:
        through = {"StringEquals": {"kms:ViaService": given.endpoint("s3")}}
        actions = _actions("kms", "Decrypt GenerateDataKey")
        statements.append(_allow("UseTheKeyOfTheStore", actions, given.kms_key, through))
    return statements


def _reads(given: Account) -> list[Statement]:
    """Models and data of other places."""
    places = [Place.parse(uri) for uri in given.reads]
    if not places:
        return []
    buckets = dict.fromkeys(f"{given.arn}:s3:::{place.bucket}" for place in places)
    objects = [f"{given.arn}:s3:::{place.bucket}/{place.key}*" for place in places]
    return [
        _allow("ListOthers", ["s3:ListBucket"], list(buckets)),
        _allow("ReadOthers", ["s3:GetObject"], objects),
    ]


def _submitter(given: Account) -> list[Statement]:
    logs = _logs(given)
    return [
        _allow(
            "Jobs",
            _actions("sagemaker", "AddTags CreateTrainingJob DescribeTrainingJob StopTrainingJob"),
            f"{given.of('sagemaker')}:training-job/*",
        ),
        _allow(
            "PassTheRole",
            ["iam:PassRole"],
            f"{given.arn}:iam::{given.account}:role/{given.role}",
            {"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}},
        ),
        _allow("ReadLogs", _actions("logs", "DescribeLogStreams GetLogEvents"), logs),
        _allow("LogInToImages", ["ecr:GetAuthorizationToken"], "*"),
        _allow(
            "PushImages",
            _actions(
                "ecr",
                "BatchCheckLayerAvailability BatchGetImage CompleteLayerUpload CreateRepository "
                "GetDownloadUrlForLayer InitiateLayerUpload PutImage UploadLayerPart",
            ),
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
            _actions("ecr", "BatchCheckLayerAvailability BatchGetImage GetDownloadUrlForLayer"),
            f"{given.of('ecr')}:repository/{given.repository}",
        ),
        _allow(
            "WriteLogs",
            _actions("logs", "CreateLogGroup CreateLogStream DescribeLogStreams PutLogEvents"),
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
    statements = [_allow("FetchSecrets", ["secretsmanager:GetSecretValue"], list(given.secrets))]
    if given.kms_key:
        through = {"StringEquals": {"kms:ViaService": given.endpoint("secretsmanager")}}
        statements.append(_allow("ReadSecretsByTheKey", ["kms:Decrypt"], given.kms_key, through))
    return statements


def _vpc(given: Account) -> list[Statement]:
    """Network interfaces, which SageMaker makes in the VPC in the name of the job."""
    if not given.subnets:
        return []
    interfaces = f"{given.of('ec2')}:network-interface/*"
    subnets = [f"{given.of('ec2')}:subnet/{id}" for id in given.subnets]
    groups = [f"{given.of('ec2')}:security-group/{id}" for id in given.security_groups]
    return [
        _allow("MakeInterfaces", ["ec2:CreateNetworkInterface"], [interfaces, *subnets, *groups]),
        _allow(
            "UseInterfaces",
            _actions(
                "ec2",
                "CreateNetworkInterfacePermission "
                "DeleteNetworkInterface DeleteNetworkInterfacePermission",
            ),
            interfaces,
            {"ArnEquals": {"ec2:Subnet": subnets}},
        ),
        _allow(
            "LookAtTheNetwork",
            _actions(
                "ec2",
                "DescribeDhcpOptions DescribeNetworkInterfaces "
                "DescribeSecurityGroups DescribeSubnets DescribeVpcs",
            ),
            "*",
        ),
    ]


def _logs(given: Account) -> list[str]:
    group = f"{given.of('logs')}:log-group:/aws/sagemaker/TrainingJobs"
    return [group, f"{group}:log-stream:*"]


def _allow(
    name: str, actions: list[str], resource: str | list[str], condition: Json = None
) -> Statement:
    statement: Statement = {
        "Sid": name,
        "Effect": "Allow",
        "Action": actions,
        "Resource": resource,
    }
    if condition is not None:
        statement["Condition"] = condition
    return statement


def _actions(service: str, names: str) -> list[str]:
    return [f"{service}:{name}" for name in names.split()]


def _document(statements: list[Statement]) -> dict[str, Json]:
    return {"Version": "2012-10-17", "Statement": statements}
