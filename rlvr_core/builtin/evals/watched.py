"""The runs that ``rlvr watch`` follows: names, folders, and patterns that match later runs too."""

from __future__ import annotations

import glob
import re
from collections.abc import Sequence
from pathlib import Path

from rlvr_core.api import ConfigError
from rlvr_core.api.services import RunFolder, find_run, local_path

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*)://")


class Watched:
    """The runs that a user named.

    Args:
        texts: Each a run's name, its folder, ``last``, or a pattern such as ``gsm8k-*`` or
            ``/data/runs/*``; a pattern without a slash matches names in ``runs_dir``.
        runs_dir: Folder of run folders.

    Raises:
        ConfigError: If a name is not a run's, or nothing matches a text.
    """

    def __init__(self, texts: Sequence[str], runs_dir: str = "runs") -> None:
        plain = [_local(text) for text in texts]
        self._patterns = [
            text if "/" in text else str(Path(glob.escape(runs_dir)) / text)
            for text in plain
            if glob.has_magic(text)
        ]
        self._named = [find_run(text, runs_dir) for text in plain if not glob.has_magic(text)]
        for pattern in self._patterns:
            if not _fitting(pattern):
                raise ConfigError(
                    f"no run fits '{pattern}'",
                    remedy="a pattern without a slash is one of names in --runs-dir; quote it, so "
                    "that the shell leaves it alone",
                )
        self.runs()

    def runs(self) -> list[RunFolder]:
        """Return the current runs, each once: named ones first, then those that match a pattern.

        Raises:
            ConfigError: If two of them have the same name, which their result folders would share.
        """
        fitting = [run for pattern in self._patterns for run in _fitting(pattern)]
        found = {run.path.resolve(): run for run in [*self._named, *fitting]}
        by_name: dict[str, RunFolder] = {}
        for run in found.values():
            other = by_name.setdefault(run.name, run)
            if other is not run:
                raise ConfigError(
                    f"'{other.path}' and '{run.path}' have the same name, and their results would "
                    f"go to one folder",
                    remedy="watch them one after the other, each with its own --out",
                )
        return list(found.values())


def _local(text: str) -> str:
    scheme = _SCHEME.match(text)
    if scheme and scheme[1].lower() != "file":
        raise ConfigError(
            f"runs at {scheme[1]}:// cannot be watched: '{text}'",
            remedy="name a run, its folder, a pattern of folders, or file:///folder",
        )
    return str(local_path(text))


def _fitting(pattern: str) -> list[RunFolder]:
    found = []
    for path in sorted(glob.iglob(str(Path(pattern).expanduser()))):  # noqa: PTH207 - any anchor
        try:
            found.append(RunFolder.open(path))
        except ConfigError:
            continue  # not a run's folder
    return found
