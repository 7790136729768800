"""IAM policies for one account, region and bucket: for who submits, and for the job."""

from __future__ import annotations

import re
from typing import Any

from rlvr_core import ConfigError
from rlvr_core.errors import Complaint
from rlvr_core.types import Json
from rlvr_sagemaker.place import Place

PARTS = ("submitter", "trust", "job")


def policies(
    *, account: str, region: str, store: str, role: str, partition: str = "aws"
) -> dict[str, dict[str, Json]]:
    """The three documents.

    Args:
        account: The account's number.
        region: Region of jobs and images.
        store: Where jobs keep their things, ``s3://bucket/folder``.
        role: Name of the role that jobs run as.
        partition: ``aws``, ``aws-cn`` or ``aws-us-gov``.

    Returns:
        ``submitter``: what a user needs. ``trust``: who may take on the role. ``job``: what it may.

    Raises:
        ConfigError: If a value is none of its kind; all faults at once.
    """
    faults = [
        Complaint(f"{value!r} {wrong}", flag)
        for flag, value, pattern, wrong in (
            ("--account", account, r"\d{12}", "is no account: it has 12 digits"),
            ("--region", region, r"[a-z]{2}(-[a-z]+)+-\d", "is no region"),
            ("--role", role, r"[\w+=,.@-]{1,64}", "is no role's name"),
        )
        if not re.fullmatch(pattern, value)
    ]
    if faults:
        raise ConfigError.collect(faults)
    place = Place.parse(store)
    arn = f"arn:{partition}"
    here = f"{region}:{account}"
    bucket = f"{arn}:s3:::{place.bucket}"
    objects = f"{bucket}/{place.prefix}*"
    listing = {"StringLike": {"s3:prefix": [f"{place.prefix}*", place.key]}}
    logs = f"{arn}:logs:{here}:log-group:/aws/sagemaker/TrainingJobs"
    images = f"{arn}:ecr:{here}:repository/*"
    s3: list[dict[str, Any]] = [
        _allow("ListStore", ["s3:ListBucket"], bucket, listing),
        _allow("FindBucket", ["s3:GetBucketLocation"], bucket),
        _allow(
            "UseStore",
            ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"],
            objects,
        ),
    ]
    submitter = [
        *s3,
        _allow(
            "Jobs",
            [
                "sagemaker:AddTags",
                "sagemaker:CreateTrainingJob",
                "sagemaker:DescribeTrainingJob",
                "sagemaker:StopTrainingJob",
            ],
            f"{arn}:sagemaker:{here}:training-job/*",
        ),
        _allow("ListJobs", ["sagemaker:ListTrainingJobs"], "*"),
        _allow(
            "PassTheRole",
            ["iam:PassRole"],
            f"{arn}:iam::{account}:role/{role}",
            {"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}},
        ),
        _allow(
            "ReadLogs",
            ["logs:DescribeLogStreams", "logs:GetLogEvents"],
            [logs, f"{logs}:log-stream:*"],
        ),
        _allow("LogInToImages", ["ecr:GetAuthorizationToken"], "*"),
        _allow(
            "PushImages",
            [
                "ecr:BatchCheckLayerAvailability",
                "ecr:BatchGetImage",
                "ecr:CompleteLayerUpload",
                "ecr:CreateRepository",
                "ecr:DescribeRepositories",
                "ecr:InitiateLayerUpload",
                "ecr:PutImage",
                "ecr:UploadLayerPart",
            ],
            images,
        ),
    ]
    job = [
        *s3,
        _allow("LogInToImages", ["ecr:GetAuthorizationToken"], "*"),
        _allow(
            "PullImages",
            [
                "ecr:BatchCheckLayerAvailability",
                "ecr:BatchGetImage",
                "ecr:GetDownloadUrlForLayer",
            ],
            images,
        ),
        _allow(
            "WriteLogs",
            ["logs:CreateLogGroup", "logs:CreateLogStream", "logs:PutLogEvents"],
            [logs, f"{logs}:log-stream:*"],
        ),
        _allow(
            "WriteMetrics",
            ["cloudwatch:PutMetricData"],
            "*",
            {"StringEquals": {"cloudwatch:namespace": "/aws/sagemaker/TrainingJobs"}},
        ),
    ]
    trust = {
        "Effect": "Allow",
        "Principal": {"Service": "sagemaker.amazonaws.com"},
        "Action": "sts:AssumeRole",
        "Condition": {"StringEquals": {"aws:SourceAccount": account}},
    }
    return {
        "submitter": _document(submitter),
        "trust": _document([trust]),
        "job": _document(job),
    }


def _allow(
    name: str, actions: list[str], resource: str | list[str], condition: Json = None
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "Sid": name,
        "Effect": "Allow",
        "Action": actions,
        "Resource": resource,
    }
    if condition is not None:
        found["Condition"] = condition
    return found


def _document(statements: list[dict[str, Any]]) -> dict[str, Json]:
    return {"Version": "2012-10-17", "Statement": statements}
