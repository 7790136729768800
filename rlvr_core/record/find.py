"""Finds a run by its name, a prefix of it, or `last`."""

from __future__ import annotations

import difflib
import re
from datetime import datetime
from pathlib import Path

from rlvr_core.api import ConfigError
from rlvr_core.record.manifest import Manifest
from rlvr_core.record.rundir import RunFolder, looks_like_run

_FOLDER_NAME = re.compile(r"(?P<name>.+)-\d{8}-\d{6}(?:-(?:apart-)?[0-9a-f]{6})*")
"""Name, start time and random digits of a run."""


def list_runs(root: str | Path) -> list[RunFolder]:
    """List all runs under ``root``, newest first."""
    try:
        folders = [RunFolder(path) for path in Path(root).iterdir() if looks_like_run(path)]
    except OSError:
        return []
    return sorted(folders, key=lambda folder: (_started(folder), folder.name), reverse=True)


def find_run(text: str, root: str | Path = "runs", elsewhere: str = "--runs-dir DIR") -> RunFolder:
    """Find the run a user names.

    Args:
        text: ``last``, a path, a folder's name, a run's name (its newest run), or a prefix of
            either that matches only one run name.
        root: Folder of run folders.
        elsewhere: How a user selects another folder to search, for messages.

    Raises:
        ConfigError: If there is none, or the prefix matches several run names.
    """
    if not text:
        raise ConfigError("which run? none was named", remedy="say 'last', a name or a path")
    runs = list_runs(root)
    if text == "last":
        if not runs:
            raise ConfigError(
                f"there is no run in '{root}' yet",
                remedy=("start one: rlvr run CONFIG", f"or say where runs are: {elsewhere}"),
            )
        return runs[0]
    if "/" in text or (Path(text).is_dir() and looks_like_run(Path(text))):
        return RunFolder.open(text)
    for fitting in (
        [run for run in runs if run.name == text],
        [run for run in runs if _run_name(run.name) == text],
        [run for run in runs if run.name.startswith(text)],
    ):
        names = sorted({_run_name(run.name) for run in fitting})
        if len(names) > 1:
            raise ConfigError(
                f"'{text}' could be several runs",
                remedy="say one of: " + ", ".join(names[:8]) + (" …" if names[8:] else ""),
            )
        if fitting:
            return fitting[0]
    raise ConfigError(
        f"there is no run '{text}' in '{root}'", remedy=_suggestions(text, runs, elsewhere)
    )


def _suggestions(text: str, runs: list[RunFolder], elsewhere: str) -> list[str]:
    names = {run.name: run.name for run in runs} | {_run_name(r.name): r.name for r in runs}
    near = difflib.get_close_matches(text, names, n=3, cutoff=0.5)
    if near:
        return ["did you mean: " + ", ".join(dict.fromkeys(names[name] for name in near))]
    if runs:
        return ["newest runs: " + ", ".join(run.name for run in runs[:3])]
    return [f"there are no runs there; {elsewhere} says where they are"]


def _run_name(folder: str) -> str:
    match = _FOLDER_NAME.fullmatch(folder)
    return match["name"] if match else folder


def _started(folder: RunFolder) -> float:
    """Return when a run started, in seconds since the epoch; of a damaged one about when."""
    try:
        return datetime.fromisoformat(Manifest.read(folder).fields["created"]).timestamp()
    except (ConfigError, ValueError, TypeError, KeyError):
        return folder.config.stat().st_mtime if folder.config.is_file() else 0.0
