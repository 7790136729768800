"""What an account says of a job before there is one: quotas, and the image in ECR."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from rlvr_core.api import MachineError
from rlvr_sagemaker.aws import call, client, code_of
from rlvr_sagemaker.more import kinds_of_machines

_ECR = re.compile(
    r"^(?P<account>\d{12})\.dkr[.-]ecr(?:-fips)?\.(?P<region>[a-z0-9-]+)\.[a-z.]+/"
    r"(?P<name>[^:@]+)(?::(?P<tag>[^@]+))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?$"
)

Finding = tuple[str, bool | None, str]


def findings(details: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield name, verdict (None: it cannot be told) and text of each check of a plan.

    Args:
        details: Those of the plan.
    """
    request, region = details["request"], details["region"]
    machines = request["ResourceConfig"]
    if machines.get("TrainingPlanArn"):
        yield "quota", None, "a training plan has machines of its own"
    else:
        spot = bool(request.get("EnableManagedSpotTraining"))
        for one in machines.get("InstanceGroups") or [machines]:
            yield from _kind(one["InstanceType"])
            yield _quota(one["InstanceType"], int(one["InstanceCount"]), spot, region)
    image = str(request["AlgorithmSpecification"]["TrainingImage"])
    options = details["options"]
    if options.get("push"):
        yield "ECR", None, "the image is built and pushed at the launch"
    else:
        yield _image(image)


def _kind(name: str) -> Iterator[Finding]:
    """Whether there is such a machine; a launch does not refuse one that is newer than botocore."""
    known = kinds_of_machines()
    if name not in known:
        close = ", ".join(difflib.get_close_matches(name, known, n=3))
        hint = f"did you mean: {close}? " if close else ""
        yield "machines", False, f"botocore knows no '{name}' of {len(known)} kinds; {hint}".strip()


def _quota(kind: str, wanted: int, spot: bool, region: str | None) -> Finding:
    """Whether the account may have as many machines for training jobs at once."""
    name = f"{kind} for {'spot ' if spot else ''}training job usage"

    def look() -> float | None:
        pages = client("service-quotas", region).get_paginator("list_service_quotas")
        for page in pages.paginate(ServiceCode="sagemaker"):
            for one in page["Quotas"]:
                if one["QuotaName"].lower() == name.lower():
                    return float(one["Value"])
        return None

    try:
        quota = call("looking at the quotas of SageMaker", look)
    except MachineError as error:
        return "quota", None, error.complaints[0].what
    if quota is None:
        return "quota", None, f"Service Quotas lists no '{name}'"
    text = f"{name}: {quota:g}, and the job takes {wanted}"
    if quota < wanted:
        return "quota", False, f"{text}; ask for more at Service Quotas"
    return "quota", True, f"{text} (those of other jobs at work come on top)"


def _image(uri: str) -> Finding:
    """Whether an image is in ECR, how large it is and when it came there."""
    match = _ECR.match(uri)
    if match is None:
        return "ECR", None, f"{uri} is not in ECR: nobody was asked"
    which = {"imageDigest": match["digest"]} if match["digest"] else {}
    which = which or {"imageTag": match["tag"] or "latest"}

    def look() -> Any:
        ecr = client("ecr", match["region"])
        return ecr.describe_images(
            registryId=match["account"], repositoryName=match["name"], imageIds=[which]
        )

    try:
        (found, *_) = call(f"looking for {uri}", look)["imageDetails"]
    except MachineError as error:
        cause = error.__cause__
        gone = cause is not None and code_of(cause) in (
            "ImageNotFoundException",
            "RepositoryNotFoundException",
        )
        return "ECR", False if gone else None, error.complaints[0].what
    size = int(found.get("imageSizeInBytes") or 0) / 1e9
    pushed = found.get("imagePushedAt")
    when = f", of {pushed:%Y-%m-%d}" if pushed else ""
    return "ECR", True, f"{found['imageDigest'][:19]}…, {size:.1f} GB{when}"
