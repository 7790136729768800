"""Reads the file of a sweep: parameters, method, and the metric to compare trials by."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from rlvr_cluster.sweeps.axes import Axis, read_axis
from rlvr_core.api import Complaint, ComponentConfig, ConfigError
from rlvr_core.config.load import read_draft
from rlvr_core.config.model import Natural, Positive
from rlvr_core.config.tree import Node

OWN_KEYS = {
    "run.dir": "every run of a sweep has its folder in the sweep's; use dir",
    "run.name": "the sweep names its runs; use name",
    "run.seed": "to repeat trials with other seeds, use seeds",
}
"""Keys of a run's config that cannot be parameters, and what to use instead."""


class SweepConfig(ComponentConfig):
    """The content of a sweep's YAML file."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Name of the sweep; its folder is ``<dir>/<name>``."""
    dir: str = "sweeps"
    """Folder that holds folders of sweeps, relative to the working directory."""
    config: str
    """Config of the run to vary, relative to this file."""
    method: Literal["grid", "random"] = "grid"
    """``grid`` takes all combinations, ``random`` draws values."""
    parameters: dict[str, Any] = Field(min_length=1)
    """Values by dotted key of the config."""
    trials: Positive | None = None
    """How many combinations ``random`` tries."""
    seed: Natural = 0
    """Seed of the values that ``random`` draws."""
    seeds: Positive | Annotated[list[Natural], Field(min_length=1)] = 1
    """Runs of each trial: a number, which counts up from the config's ``run.seed``, or a list."""
    metric: str = Field(min_length=1)
    """``TASK:METRIC`` of the last evaluation, or a training metric, a mean of its last steps."""
    direction: Literal["maximize", "minimize"] | None = None
    """Whether the metric should rise or fall; null for its declaration, or else for rising."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """A sweep as its file describes it.

    Attributes:
        path: The file.
        spec: The content of the file.
        axes: The values of each parameter.
        root: The file's values, with their line numbers.
    """

    path: Path
    spec: SweepConfig
    axes: dict[str, Axis]
    root: Node

    @property
    def base(self) -> Path:
        """The config to vary."""
        return self.path.parent / self.spec.config

    @property
    def folder(self) -> Path:
        """The sweep's folder."""
        return Path(self.spec.dir) / self.spec.name

    def where(self, *loc: str) -> str:
        """Return file, line and key of a value in the sweep's file."""
        return self.root.where(loc, True)


def read_sweep(path: str | os.PathLike[str]) -> Sweep:
    """Read and check the file of a sweep; its trials are not checked yet.

    Raises:
        ConfigError: If it cannot be read or keys or values are wrong; reports all faults at once.
    """
    draft = read_draft(path)
    spec = draft.checked(SweepConfig)
    axes: dict[str, Axis] = {}
    faults = list(_method_faults(spec, draft.root))
    for key, written in spec.parameters.items():
        where = draft.root.where(("parameters", key), True)
        if key in OWN_KEYS:
            faults.append(Complaint(f"{key} cannot be a parameter", where, (OWN_KEYS[key],)))
            continue
        if inside := [other for other in spec.parameters if other.startswith(f"{key}.")]:
            what = f"{key} is a parameter, and so is {inside[0]} within it"
            faults.append(Complaint(what, where, ("leave one of them out",)))
        try:
            axes[key] = read_axis(key, written, where, grid=spec.method == "grid")
        except ConfigError as error:
            faults.extend(error.complaints)
    if faults:
        raise ConfigError.collect(faults)
    return Sweep(draft.path, spec, axes, draft.root)


def _method_faults(spec: SweepConfig, root: Node) -> list[Complaint]:
    faults = []
    if spec.method == "grid" and spec.trials is not None:
        remedy = "remove it, or choose method: random"
        what = "a grid has as many trials as it has combinations"
        faults.append(Complaint(what, root.where(("trials",)), (remedy,)))
    if spec.method != "grid" and spec.trials is None:
        what = f"method '{spec.method}' needs to know how many trials to make"
        faults.append(Complaint(what, root.where(("method",)), ("for example: trials: 20",)))
    if isinstance(spec.seeds, list) and len(set(spec.seeds)) < len(spec.seeds):
        what = "a seed is named twice: its run would be the same run again"
        faults.append(Complaint(what, root.where(("seeds",), True), ("name each once",)))
    return faults
