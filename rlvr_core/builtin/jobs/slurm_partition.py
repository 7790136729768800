"""Whether a job fits the partition that it is for, by what ``sinfo`` says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

FORMAT = "%P|%a|%l|%D|%T|%G"
"""What ``sinfo`` is asked: partition, whether it is up, time limit, nodes, their state, GRES."""

_USABLE = ("allocated", "completing", "idle", "mixed", "planned", "powered_down", "reserved")
Finding = tuple[str, bool | None, str]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a job asks for.

    Attributes:
        partition: Its name; None for the cluster's default.
        time: Time limit as ``sbatch`` takes it; None for the partition's.
        nodes: Number of machines.
        gpus: GPUs of each machine.
    """

    partition: str | None
    time: str | None
    nodes: int
    gpus: int


def findings(told: str, wanted: Wanted) -> Iterator[Finding]:
    """Yield name, verdict (None: it cannot be told) and text of each check.

    Args:
        told: Answer of ``sinfo --noheader --format=FORMAT``.
        wanted: What the job asks for.
    """
    rows = [line.strip().split("|") for line in told.splitlines() if line.count("|") == 5]
    mine = [row for row in rows if _is_for(row[0], wanted.partition)]
    if not mine:
        names = ", ".join(sorted({row[0] for row in rows})) or "none"
        what = wanted.partition or "a default"
        yield "partition", False, f"there is no partition {what}; sinfo lists {names}"
        return
    name, up, limit = mine[0][0].rstrip("*"), mine[0][1], mine[0][2]
    yield "partition", up == "up", f"{name} is {up}"
    yield _time(name, limit, wanted.time)
    usable = [row for row in mine if row[4].rstrip("*~#!%$@^-+").lower() in _USABLE]
    fit = sum(int(row[3]) for row in usable if _gpus(row[5]) >= wanted.gpus)
    with_gpus = f" with {wanted.gpus} GPUs or more" if wanted.gpus else ""
    text = f"{fit} of {sum(int(row[3]) for row in mine)} nodes of {name} are in order{with_gpus}"
    yield "nodes", fit >= wanted.nodes, f"{text}, and the job takes {wanted.nodes}"


def _is_for(name: str, partition: str | None) -> bool:
    if partition is None:
        return name.endswith("*")
    return name.rstrip("*") in partition.split(",")


def _time(name: str, limit: str, asked: str | None) -> Finding:
    most = _minutes(limit)
    if asked is None:
        return "time limit", None, f"that of {name}, {limit}: give --time, or it is not known when"
    mine = _minutes(asked)
    if mine is None or most is None:
        return "time limit", True, f"{asked}, of {limit} in {name}"
    return "time limit", mine <= most, f"{asked}, of at most {limit} in {name}"


def _minutes(text: str) -> float | None:
    """Return a time of Slurm in minutes; None for none, as ``infinite``.

    ``M``, ``M:S``, ``H:M:S``, ``D-H``, ``D-H:M`` and ``D-H:M:S`` are its notations.
    """
    if not re.fullmatch(r"(?:\d+-)?\d+(?::\d+){0,2}", text):
        return None
    days, dash, rest = text.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    if not dash:
        parts = {1: [0, *parts], 2: [0, *parts], 3: parts}[len(parts)]
    hours, minutes, seconds = [*parts, 0, 0][:3]
    return int(days or 0) * 1440 + hours * 60 + minutes + seconds / 60


def _gpus(gres: str) -> int:
    """Return the GPUs that a node has by its GRES, as ``gpu:a100:8(S:0-1),shard:4``."""
    found = re.findall(r"(?:^|,)gpu(?::[^:,()]+)?:(\d+)", gres)
    return sum(map(int, found))
