"""Finds requests that AWS would refuse, before they are sent."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rlvr_core.api import Complaint
from rlvr_sagemaker.place import is_s3

if TYPE_CHECKING:
    from rlvr_sagemaker.options import Options

_NAME = re.compile(r"[A-Za-z0-9](-*[A-Za-z0-9])*")
_BUCKET = re.compile(r"(?!xn--|\d+\.\d+\.\d+\.\d+$)[a-z0-9](?:[a-z0-9-]|\.(?!\.)){1,61}[a-z0-9]")
_ROLE = re.compile(r"arn:[\w-]+:iam::\d{12}:role/[\w+=,.@/-]+", re.ASCII)
_MACHINE = re.compile(r"ml\.[a-z0-9]+([.-][a-z0-9]+)*")
_IMAGE = re.compile(r"(?!https?://)[\w.:/@-]{1,255}", re.ASCII)
_REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-\d")
_KEY = re.compile(r"arn:[\w-]+:kms:[a-z0-9-]+:\d{12}:key/[\w-]+", re.ASCII)
_ECR_REGION = re.compile(r"\d{12}\.dkr[.-]ecr(?:-fips)?\.([a-z]{2}(?:-[a-z]+)+-\d)\.[a-z.]+/")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TAG = re.compile(r"(?!aws:)[\w .:/=+@-]{1,128}")
_WHOLE_SECRET = re.compile(r".+-[A-Za-z0-9?]{6}|.*\*")
LONGEST = 28 * 86400
"""Seconds that a training job may take at most."""


def name_faults(name: str | None) -> list[Complaint]:
    """Return AWS's objections to a job name."""
    if name is None:
        return []
    remedy = ("letters, digits and single hyphens between them, at most 63",)
    if len(name) > 63:
        what = f"a job's name has at most 63 characters, not {len(name)}"
        return [Complaint(what, "--job-name", remedy)]
    if not _NAME.fullmatch(name):
        return [Complaint(f"AWS refuses the job name '{name}'", "--job-name", remedy)]
    return []


def account_faults(config: Options) -> Iterator[Complaint]:
    """Return faults in the options that every job needs; all are given."""
    store, role, machine = map(config.needed, ("store", "role", "instance_type"))
    bucket = store[len("s3://") :].partition("/")[0]
    if not is_s3(store):
        yield Complaint("it is not an s3:// URI", "--store", ("write s3://bucket/folder",))
    elif not _BUCKET.fullmatch(bucket):
        what = f"'{bucket}' is not a bucket name"
        yield Complaint(what, "--store", ("3 to 63 small letters, digits, hyphens and dots",))
    if not _ROLE.fullmatch(role):
        remedy = ("it looks like arn:aws:iam::<account>:role/<name>",)
        yield Complaint("it is not a role ARN", "--role", remedy)
    if not _MACHINE.fullmatch(machine):
        what = f"'{machine}' is no kind of machine"
        yield Complaint(
            what, "--instance-type", ("SageMaker's begin with ml., as ml.g6e.12xlarge",)
        )


def image_faults(image: str, region: str | None) -> Iterator[Complaint]:
    """Whether SageMaker may fetch an image: from ECR in the job's own region, of any account."""
    match = _ECR_REGION.match(image)
    if match and region and match[1] != region:
        yield Complaint(
            f"the image is in {match[1]} and the job in {region}: SageMaker fetches none from "
            f"another region",
            "--image",
            (
                f"push it to ECR in {region}, or let ECR replicate it there; AWS's own images are "
                f"in every region: put {region} into the name",
                f"or run the job there: --region {match[1]}, with a store in that region",
            ),
        )


def secret_faults(arn: str, flag: str) -> Iterator[Complaint]:
    """Return the fault in the ARN of a secret, which may be a pattern in a policy.

    GetSecretValue finds a secret by a part of its ARN; but IAM compares the ARNs of policies with
    the whole one, so that a policy with a part opens nothing. A name that itself ends in a hyphen
    and six characters cannot be told from a whole ARN, by AWS neither.
    """
    if _WHOLE_SECRET.fullmatch(arn):
        return
    region, name = arn.split(":")[3], arn.split(":", 6)[6]
    look = f"aws secretsmanager describe-secret --region {region} --secret-id {name}"
    what = "it lacks the hyphen and six characters at its end, without which IAM opens nothing"
    yield Complaint(what, flag, (f"the whole ARN: {look} --query ARN --output text",))


def request_faults(config: Options) -> Iterator[Complaint]:
    """Return faults in the other options."""
    if config.image is not None and not _IMAGE.fullmatch(config.image):
        yield Complaint("it is not an image URI", "--image", ("it has no https:// and no spaces",))
    if config.region is not None and not _REGION.fullmatch(config.region):
        yield Complaint(f"'{config.region}' is not a region", "--region", ("as in eu-north-1",))
    if config.kms_key is not None and not _KEY.fullmatch(config.kms_key):
        remedy = ("it looks like arn:aws:kms:<region>:<account>:key/<id>",)
        yield Complaint("it is not a KMS key ARN", "--kms-key", remedy)
    if max(config.max_runtime, config.max_wait or 0) > LONGEST:
        yield Complaint("a job takes 28 days at most", "--max-runtime, --max-wait")
    for flag, prefix, ids in (
        ("--subnets", "subnet-", config.subnets),
        ("--security-groups", "sg-", config.security_groups),
    ):
        for id in ids:
            if not re.fullmatch(prefix + "[0-9a-zA-Z-]{1,25}", id):
                yield Complaint(f"'{id}' does not look like {prefix}…", flag)
    yield from _pair_faults("--env", config.env, _VARIABLE, 512)
    yield from _pair_faults("--tags", config.tags, _TAG, 256)
    yield from _pair_faults("--secrets", config.secrets, _VARIABLE, 2048)
    if {*_names(config.env)} & {*_names(config.secrets)}:
        yield Complaint("a name is given by both", "--env, --secrets")


def _pair_faults(
    flag: str, pairs: list[str], name: re.Pattern[str], longest: int
) -> Iterator[Complaint]:
    """NAME=VALUE words; what is wrong is not shown, since it may be a secret in the wrong place."""
    for number, (key, _, value) in enumerate((pair.partition("=") for pair in pairs), 1):
        if not name.fullmatch(key) or not value:
            yield Complaint("write NAME=VALUE", f"{flag}, number {number}")
        elif len(value) > longest:
            what = f"the value of {key} has {len(value)} characters; AWS takes {longest}"
            yield Complaint(what, flag, ("put it into a file, and the file with --include",))
    if len({*_names(pairs)}) < len(pairs):
        yield Complaint("a name is given twice", flag)


def _names(pairs: list[str]) -> list[str]:
    return [pair.partition("=")[0] for pair in pairs]
