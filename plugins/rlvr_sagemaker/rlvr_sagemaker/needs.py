"""What IAM has to allow for one plan: the actions and the ARNs, of who submits and of the role."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from rlvr_sagemaker.aws import region_here
from rlvr_sagemaker.options import Options, pairs
from rlvr_sagemaker.place import Place, is_s3

_ECR = re.compile(r"^(\d{12})\.dkr\.ecr\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/([^:@]+)")
_LOGS = "log-group:/aws/sagemaker/TrainingJobs"
_PUT = ("s3:PutObject", "s3:AbortMultipartUpload")
_PULL = ("ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer")
_PUSH = (
    "ecr:CreateRepository",
    "ecr:BatchCheckLayerAvailability",
    "ecr:BatchGetImage",
    "ecr:InitiateLayerUpload",
    "ecr:UploadLayerPart",
    "ecr:CompleteLayerUpload",
    "ecr:PutImage",
)
_VPC = (
    "ec2:CreateNetworkInterface",
    "ec2:CreateNetworkInterfacePermission",
    "ec2:DeleteNetworkInterface",
    "ec2:DeleteNetworkInterfacePermission",
    "ec2:DescribeDhcpOptions",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets",
    "ec2:DescribeVpcs",
)


@dataclass(frozen=True, slots=True)
class Need:
    """Something that IAM has to allow.

    Attributes:
        who: ``submitter`` or ``role``.
        actions: What.
        resources: On what, as ARNs.
    """

    who: str
    actions: tuple[str, ...]
    resources: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """The need in a plan."""
        return {
            "who": self.who,
            "actions": list(self.actions),
            "resources": list(self.resources),
        }


def needs(
    config: Options, request: dict[str, Any], code: Place, runs: str, uris: Iterable[str]
) -> list[Need]:
    """What has to be allowed for a job.

    Args:
        config: The options, checked.
        request: Arguments of ``CreateTrainingJob``.
        code: Where its files go.
        runs: URI of its runs.
        uris: URIs that its configs name.
    """
    if config.local:
        return []
    arn = _Arns(config)
    found = [*_submitter(config, request, arn, code, runs)]
    found += _role(config, request, arn, code, runs, uris)
    if config.kms_key:
        actions = ("kms:Decrypt", "kms:GenerateDataKey")
        found += [Need(who, actions, (config.kms_key,)) for who in ("submitter", "role")]
    return found


class _Arns:
    """ARNs in the account of the role and the region of the job."""

    def __init__(self, config: Options) -> None:
        self.role = config.needed("role")
        _, self.partition, _, _, self.account, _ = self.role.split(":", 5)
        self.region = config.region or region_here() or "*"

    def of(self, service: str, name: str) -> str:
        return f"arn:{self.partition}:{service}:{self.region}:{self.account}:{name}"

    def bucket(self, place: Place) -> str:
        return f"arn:{self.partition}:s3:::{place.bucket}"

    def below(self, place: Place) -> str:
        return f"{self.bucket(place)}/{place.prefix}*"

    def image(self, uri: str) -> tuple[str, ...]:
        """The image's repository; of one that is not in ECR nothing, since IAM has no say."""
        match = _ECR.match(uri)
        if match is None:
            return ()
        account, region, name = match.groups()
        return (f"arn:{self.partition}:ecr:{region}:{account}:repository/{name}",)


def _submitter(
    config: Options, request: dict[str, Any], arn: _Arns, code: Place, runs: str
) -> Iterator[Need]:
    who, job = "submitter", request["TrainingJobName"]
    kept = Place.parse(runs)
    yield Need(who, ("s3:ListBucket",), _unique(arn.bucket(code), arn.bucket(kept)))
    yield Need(who, _PUT, (arn.below(code),))
    yield Need(who, ("s3:GetObject",), (arn.below(code), arn.below(kept)))
    actions = ["CreateTrainingJob", "DescribeTrainingJob", "StopTrainingJob"]
    actions += ["AddTags"] if config.tags else []
    this = arn.of("sagemaker", f"training-job/{job}")
    yield Need(who, tuple(f"sagemaker:{one}" for one in actions), (this,))
    plan = request["ResourceConfig"].get("TrainingPlanArn")
    if plan:
        yield Need(who, ("sagemaker:CreateTrainingJob",), (plan,))
    yield Need(who, ("iam:PassRole",), (arn.role,))
    yield Need(who, ("logs:DescribeLogStreams",), (arn.of("logs", _LOGS),))
    yield Need(who, ("logs:GetLogEvents",), (arn.of("logs", f"{_LOGS}:log-stream:{job}/*"),))
    repository = arn.image(request["AlgorithmSpecification"]["TrainingImage"])
    if config.push and repository:
        yield Need(who, ("ecr:GetAuthorizationToken",), ("*",))
        yield Need(who, _PUSH, repository)


def _role(
    config: Options,
    request: dict[str, Any],
    arn: _Arns,
    code: Place,
    runs: str,
    uris: Iterable[str],
) -> Iterator[Need]:
    who, kept = "role", Place.parse(runs)
    output = Place.parse(request["OutputDataConfig"]["S3OutputPath"])
    named = [Place.parse(uri) for uri in uris if is_s3(uri)]
    buckets = _unique(*(arn.bucket(place) for place in (code, kept, *named)))
    yield Need(who, ("s3:ListBucket",), buckets)
    read = [
        one for place in named for one in (f"{arn.bucket(place)}/{place.key}", arn.below(place))
    ]
    yield Need(who, ("s3:GetObject",), _unique(arn.below(code), *read))
    yield Need(who, ("s3:GetObject", "s3:DeleteObject", *_PUT), (arn.below(kept),))
    yield Need(who, _PUT, (arn.below(output),))
    # asked by SageMaker itself, of the bucket that its archive of the model goes to
    yield Need(who, ("s3:GetBucketLocation",), (arn.bucket(output),))
    repository = arn.image(request["AlgorithmSpecification"]["TrainingImage"])
    if repository:
        yield Need(who, ("ecr:GetAuthorizationToken",), ("*",))
        yield Need(who, _PULL, repository)
    yield Need(who, ("logs:CreateLogGroup",), (arn.of("logs", _LOGS),))
    streams = arn.of("logs", f"{_LOGS}:log-stream:{request['TrainingJobName']}/*")
    yield Need(who, ("logs:CreateLogStream", "logs:PutLogEvents"), (streams,))
    yield Need(who, ("cloudwatch:PutMetricData",), ("*",))
    if config.secrets:
        secrets = tuple(pairs(config.secrets).values())
        yield Need(who, ("secretsmanager:GetSecretValue",), secrets)
    if config.subnets:
        yield Need(who, _VPC, ("*",))


def _unique(*values: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))
