"""A plan as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlvr_sagemaker.options import gpu_list


def lines_of(details: Mapping[str, Any]) -> Iterator[str]:
    """The lines of a plan: the job, its files, where runs go, and who needs which permissions."""
    request, description = details["request"], details["description"]
    does = "evaluates" if description["arguments"][0] == "eval" else "trains"
    yield f"job {details['job']} {does} {details['name']}"
    yield from (f"  {line}" for line in _machines(details))
    yield f"  image {request['AlgorithmSpecification']['TrainingImage']}"
    yield "it does: rlvr " + " ".join(description["arguments"])
    if description.get("eval_config"):
        given = [word for override in description["eval_set"] for word in ("--set", override)]
        words = ["--config", description["eval_config"], *given]
        if description["eval_gpus"]:
            words += ["--devices", ",".join(map(str, description["eval_gpus"]))]
        yield "and beside it: rlvr watch RUN " + " ".join(words)
    yield from _files(details)
    yield f"runs come to {details['runs']}"
    yield "environment:"
    yield from (f"  {name}={value}" for name, value in request["Environment"].items())
    yield from (f"  {name} is the secret {arn}" for name, arn in description["secrets"].items())
    yield from _permissions(details["permissions"], request["RoleArn"])


def _machines(details: Mapping[str, Any]) -> Iterator[str]:
    request = details["request"]
    machines, stop = request["ResourceConfig"], request["StoppingCondition"]
    spot = request.get("EnableManagedSpotTraining")
    kinds = machines.get("InstanceGroups") or [machines]
    kinds_text = " and ".join(f"{kind['InstanceCount']} {kind['InstanceType']}" for kind in kinds)
    yield f"on {kinds_text}{', spot' if spot else ''}"
    yield from _processes(details["options"], sum(kind["InstanceCount"] for kind in kinds))
    longest = f"for at most {stop['MaxRuntimeInSeconds'] / 3600:g} hours"
    if spot:
        longest += f", waiting included {stop['MaxWaitTimeInSeconds'] / 3600:.4g}"
    yield f"{longest}, with {machines['VolumeSizeInGB']} GB of disk each"
    yield f"in {details['region'] or 'no region yet: give --region, or set AWS_REGION'}"
    yield f"role {request['RoleArn']}"


def _processes(options: Mapping[str, Any], machines: int) -> Iterator[str]:
    """How many processes train, and how they talk to each other between machines."""
    gpus = gpu_list(options.get("train_gpus"))
    each = options.get("processes") or len(gpus)
    count = f"{each * machines} processes train" if each else "a process trains on each GPU"
    between = f", {each} on each machine" if each and machines > 1 else ""
    yield f"{count}{between}"
    if machines > 1:
        yield (
            "between machines NCCL goes over TCP, unless the image has EFA's libraries "
            "(rlvr sagemaker image --base)"
        )


def _files(details: Mapping[str, Any]) -> Iterator[str]:
    files = details["files"]
    go = "1 file goes" if len(files) == 1 else f"{len(files)} files go"
    yield f"{go} to {details['code']} ({_size(sum(file['size'] for file in files))}):"
    width = max((len(file["key"]) for file in files), default=0)
    for file in files:
        link = f"  <- {file['real']}" if "real" in file else ""
        yield f"  {file['key']:<{min(width, 60)}}  {_size(file['size']):>9}{link}"
    if details["description"]["install"]:
        yield "installed in the job: " + ", ".join(details["description"]["install"])


def _permissions(permissions: list[Mapping[str, Any]], role: str) -> Iterator[str]:
    if not permissions:
        return
    yield "permissions (rlvr sagemaker iam prints them as policies):"
    for who, title in (("submitter", "whoever submits"), ("job", role)):
        yield f"  {title}:"
        for permission in permissions:
            if permission["who"] == who:
                yield f"    {', '.join(permission['actions'])}"
                yield from (f"      {resource}" for resource in permission["resources"])


def _size(size: int) -> str:
    """Bytes as people read them."""
    if size < 1000:
        return f"{size} B"
    value, units = size / 1000, iter(("kB", "MB", "GB", "TB"))
    unit = next(units)
    while value >= 999.5 and unit != "TB":
        value, unit = value / 1000, next(units)
    return f"{value:.3g} {unit}"
