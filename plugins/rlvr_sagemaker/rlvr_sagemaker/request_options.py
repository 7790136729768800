"""``--request KEY=VALUE``: what ``CreateTrainingJob`` takes beyond the options.

Training plans, warm pools, groups of instances and whatever comes next need no option of ours:
botocore's description of the service says which keys there are and what each of them takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from rlvr_core.api import Complaint, ConfigError
from rlvr_core.config.resolve import parse_options

_FLAG = "--request"
_OURS = {
    "TrainingJobName": "--job-name",
    "RoleArn": "--role",
    "InputDataConfig": "--include",
    "OutputDataConfig.S3OutputPath": "--store",
    "HyperParameters": "--set",
    "Environment": "--env",
    "AlgorithmSpecification.TrainingImage": "--image",
    "CheckpointConfig": "nothing: a run's own checkpoints go to --store",
}
"""Keys that another option, or rlvr itself, is responsible for."""


def with_options(request: dict[str, Any], words: Sequence[str]) -> dict[str, Any]:
    """Return the arguments of ``CreateTrainingJob`` with more of them.

    Args:
        request: The arguments so far.
        words: ``KEY=VALUE``: a path of names joined by dots, and a value in YAML.

    Raises:
        ConfigError: With every fault that the service's description shows.
    """
    if not words:
        return request
    given = parse_options(words, _FLAG)
    faults = [
        Complaint(f"{name} is not for you to give", _FLAG, (f"there is {instead}",))
        for name, instead in _OURS.items()
        if _has(given, name.split("."))
    ]
    merged: dict[str, Any] = _merged(request, given)
    machines = merged["ResourceConfig"]
    if "InstanceGroups" in machines:  # instead of one kind of machine, says the service
        for name in ("InstanceType", "InstanceCount"):
            machines.pop(name, None)
    faults += _faults(merged)
    if faults:
        raise ConfigError.collect(faults)
    return merged


def _has(given: Any, path: Sequence[str]) -> bool:
    for name in path:
        if not isinstance(given, Mapping) or name not in given:
            return False
        given = given[name]
    return True


def _merged(first: Any, second: Any) -> Any:
    if not (isinstance(first, Mapping) and isinstance(second, Mapping)):
        return second
    both = {name: _merged(first[name], second[name]) for name in first if name in second}
    return {**first, **second, **both}


def _faults(request: Mapping[str, Any]) -> list[Complaint]:
    """Return the faults that botocore finds before it sends the request."""
    from botocore.validate import ParamValidator

    report: str = ParamValidator().validate(request, _shape()).generate_report()
    return [Complaint(line, _FLAG) for line in report.splitlines()]


@cache
def _shape() -> Any:
    from botocore.session import Session

    model = Session().get_service_model("sagemaker")
    return model.operation_model("CreateTrainingJob").input_shape
