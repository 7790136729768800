"""Finds files and models that a configuration names and this machine's disk lacks."""

from __future__ import annotations

from rlvr_core.api import TINY, MachineError
from rlvr_core.config.resolve import Resolved
from rlvr_core.config.tree import Loc
from rlvr_core.data.uri import check_model_path, local_path


def missing(resolved: Resolved) -> list[str]:
    """A line for the model's folder and each data file that is not there.

    Hub ids and URIs are not looked up: that takes the network.
    """
    return [*_model(resolved), *_files(resolved)]


def _model(resolved: Resolved) -> list[str]:
    path = resolved.config.model.path
    if path.startswith(TINY):
        return []
    try:
        check_model_path(path)
    except MachineError as error:
        return [f"{error.complaints[0].what} [{resolved.where(('model', 'path'))}]"]
    return []


def _files(resolved: Resolved) -> list[str]:
    """Loaders of files call the option ``path``."""
    lines = []
    for loc, component in resolved.components.items():
        options = component.config.model_dump(include={"path"})
        path = options.get("path") if loc[:2] == ("data", "sources") else None
        if path is None or "://" in str(path):
            continue
        if not local_path(str(path)).exists():
            place: Loc = (*loc, "with", "path")
            lines.append(f"data file '{path}' does not exist [{resolved.where(place)}]")
    return lines
