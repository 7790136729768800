"""``--request KEY=VALUE``: what ``CreateTrainingJob`` takes beyond the options, by its own model.

Training plans, warm pools, encryption between machines, groups of instances and whatever comes next
need no option of ours: botocore's description of the service says which keys there are and what
each of them takes.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from rlvr_core.api import Complaint, ConfigError
from rlvr_core.api.services import parse_options

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

_TYPES: dict[str, type | tuple[type, ...]] = {
    "structure": dict,
    "map": dict,
    "list": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "long": int,
    "float": (int, float),
    "double": (int, float),
}


def with_more(request: dict[str, Any], words: Sequence[str]) -> dict[str, Any]:
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
    whole: dict[str, Any] = _merged(request, given)
    machines = whole["ResourceConfig"]
    if "InstanceGroups" in machines:  # instead of one kind of machine, says the service
        for name in ("InstanceType", "InstanceCount"):
            machines.pop(name, None)
    faults += _faults(whole, _shape(), "")
    if faults:
        raise ConfigError.collect(faults)
    return whole


def kinds_of_machines() -> tuple[str, ...]:
    """Return the kinds of machines that training jobs may have, as this botocore knows them."""
    shape = _shape().members["ResourceConfig"].members["InstanceType"]
    return tuple(shape.enum)


@cache
def _shape() -> Any:
    import botocore.session

    model = botocore.session.get_session().get_service_model("sagemaker")
    return model.operation_model("CreateTrainingJob").input_shape


def _has(tree: Any, path: Sequence[str]) -> bool:
    for name in path:
        if not isinstance(tree, Mapping) or name not in tree:
            return False
        tree = tree[name]
    return True


def _merged(old: Any, new: Any) -> Any:
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return new
    return {**old, **{name: _merged(old.get(name), value) for name, value in new.items()}}


def _faults(value: Any, shape: Any, path: str, flag: str = _FLAG) -> Iterator[Complaint]:
    """Compare a value with its description, at every depth."""
    kind = shape.type_name
    wrong = not isinstance(value, _TYPES.get(kind, object))
    if wrong or (isinstance(value, bool) and kind != "boolean"):
        yield Complaint(f"{path} takes a value of type {kind}, not {value!r}", flag)
    elif kind == "structure":
        yield from _structure_faults(value, shape, path, flag)
    elif kind == "list":
        for at, one in enumerate(value):
            yield from _faults(one, shape.member, f"{path}.{at}", flag)
    elif kind == "map":
        for name, one in value.items():
            yield from _faults(one, shape.value, f"{path}.{name}", flag)
    elif kind == "string" and shape.enum and value not in shape.enum:
        close = difflib.get_close_matches(value, shape.enum, n=3)
        remedy = f"did you mean: {', '.join(close)}?" if close else f"one of {len(shape.enum)}"
        newer = "a newer botocore may know it: pip install --upgrade boto3"
        yield Complaint(f"{path}: SageMaker knows no '{value}'", flag, (remedy, newer))
    else:
        size = len(value) if kind == "string" else value
        least, most = shape.metadata.get("min"), shape.metadata.get("max")
        if (least is not None and size < least) or (most is not None and size > most):
            unit = " characters" if kind == "string" else ""
            limits = f"{least if least is not None else '…'} to {most or '…'}{unit}"
            yield Complaint(f"{path} takes {limits}, not {size}", flag)


def _structure_faults(
    value: Mapping[str, Any], shape: Any, path: str, flag: str
) -> Iterator[Complaint]:
    for name, one in value.items():
        below = f"{path}.{name}".lstrip(".")
        if name in shape.members:
            yield from _faults(one, shape.members[name], below, flag)
            continue
        close = difflib.get_close_matches(name, shape.members, n=3)
        remedy = f"did you mean: {', '.join(close)}?" if close else ", ".join(shape.members)
        yield Complaint(f"{below}: CreateTrainingJob takes no such key", flag, (remedy,))
    for name in shape.required_members:
        if name not in value:
            yield Complaint(f"{f'{path}.{name}'.lstrip('.')} is missing", flag)
