"""Which files a job needs that runs on other machines, and where they go there.

A config travels as it is. Its relative paths hold on the other side because the files keep their
places to each other; an absolute one is replaced where it stands, never in the text (T89).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr_core.errors import Complaint, ConfigError
from rlvr_core.protocols import Reference

_PATH_KEYS = {"path", "order", "repo", "file", "teacher"}
_LEFT_ALONE = {"use", "name", "dir", "mirror", "cache_uri", "notes", "based_on", "system", "prefix"}
_FILE = re.compile(r"\.(?:jsonl?|txt|csv|parquet|ya?ml)(?:\.gz)?$")


def references(data: Any) -> tuple[Reference, ...]:
    """Values of a resolved config that name files or folders of this machine.

    Raises:
        ConfigError: If a value can only be a path, and nothing is there.
    """
    found, faults = [], []
    for key, value in _texts(data, ()):
        leaf = next((str(step) for step in reversed(key) if isinstance(step, str)), "")
        if leaf in _LEFT_ALONE or "://" in value or value.startswith("tiny:") or "\n" in value:
            continue
        dotted = ".".join(map(str, key))
        path = Path(value).expanduser()
        like_one = leaf in _PATH_KEYS or "/" in value or _FILE.search(value)
        if like_one and len(value) < 1000 and path.exists():
            found.append(Reference(dotted, value, path.absolute()))
        elif value.startswith(("/", "./", "../", "~/")) and leaf in _PATH_KEYS:
            faults.append(Complaint(f"there is no file or folder '{value}' to take along", dotted))
        elif leaf in _PATH_KEYS and _FILE.search(value):
            faults.append(Complaint(f"there is no file '{value}' to take along", dotted))
    if faults:
        raise ConfigError.collect(faults)
    return tuple(found)


def _texts(value: Any, key: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping):
        for name, child in value.items():
            yield from _texts(child, (*key, str(name)))
    elif isinstance(value, list | tuple):
        for index, child in enumerate(value):
            yield from _texts(child, (*key, index))


@dataclass(frozen=True, slots=True)
class Layout:
    """Where files of this machine lie on another one.

    Attributes:
        root: Folder of this machine that holds all of them.
        here: The working directory, below it.
    """

    root: Path
    here: Path

    @classmethod
    def of(cls, here: Path, paths: Sequence[Path]) -> Layout:
        """The layout in which all ``paths`` keep their places to each other and to ``here``."""
        here = here.absolute()
        absolute = [_absolute(path) for path in paths]
        return cls(Path(os.path.commonpath([here, *(path.parent for path in absolute)])), here)

    def place(self, path: Path) -> str:
        """A path as it is called below the root."""
        return _absolute(path).relative_to(self.root).as_posix()

    @property
    def directory(self) -> str:
        """The working directory, below the root."""
        return self.place(self.here)

    def moved(self, path: Path) -> str:
        """A path as the job has it, relative to its working directory."""
        return os.path.relpath(path, self.here)


def overrides(found: Sequence[Reference], layout: Layout) -> list[str]:
    """``--set`` for references that do not hold on another machine as they are written."""
    return [
        f"{one.key}={layout.moved(one.path)}"
        for one in found
        if one.value.startswith("~") or Path(one.value).is_absolute()
    ]


def _absolute(path: Path) -> Path:
    return Path(os.path.normpath(path.absolute()))  # links stay links
