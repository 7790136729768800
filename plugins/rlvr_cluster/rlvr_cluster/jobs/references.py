"""Finds values of a config that name files of this machine, or URIs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlvr_core.api import TINY, Complaint, ConfigError, Reference
from rlvr_core.config.dialect import read
from rlvr_core.config.layers import expand
from rlvr_core.plugins import files
from rlvr_core.record.provenance.user_files import siblings

_PATH_KEYS = {"path", "order", "repo", "file", "teacher"}
_LEFT_ALONE = {"use", "name", "dir", "mirror", "cache_uri", "notes", "based_on", "system", "prefix"}
_NAMES_COMPONENT = {"use", "verifier", "environment"}
_LEFT_OUT = {"notes", "based_on", "system", "prefix", "mirror"}
_URI = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://\S+$")
_STEP = re.compile(r"[^\s.=]+")
_FILE = re.compile(r"\.(?:jsonl?|txt|csv|parquet|ya?ml)(?:\.gz)?$")


def references(data: Any, file: str = "") -> tuple[Reference, ...]:
    """Return the values of a resolved config that name files or folders of this machine.

    Args:
        data: The config as plain data.
        file: Name of the config file, for messages.

    Raises:
        ConfigError: If a value can only be a path and does not exist; or if it is an absolute path
            at a location that ``--set`` cannot override.
    """
    files_named: list[Reference] = []
    faults: list[Complaint] = []
    for key, value in _texts(data, ()):
        if key[-1] in _NAMES_COMPONENT and (named := files.parse(value)) and named.in_file:
            files_named += _of_component(".".join(map(str, key)), value, named)
            continue
        leaf = next((str(step) for step in reversed(key) if isinstance(step, str)), "")
        if leaf in _LEFT_ALONE or "://" in value or value.startswith(TINY) or "\n" in value:
            continue
        dotted = ".".join(map(str, key))
        where = f"{file} ({dotted})" if file else dotted
        path = Path(value).expanduser()
        like_one = leaf in _PATH_KEYS or "/" in value or _FILE.search(value)
        if like_one and len(value) < 1000 and _exists(path):
            files_named.append(Reference(dotted, value, path.absolute()))
            if moves(value) and not all(_STEP.fullmatch(str(step)) for step in key):
                what = f"an absolute path cannot be replaced under the key {_odd(key)!r}"
                faults.append(Complaint(what, where, ("write it relative to this folder",)))
        elif value.startswith(("/", "./", "../", "~/")) and leaf in _PATH_KEYS:
            faults.append(Complaint(f"there is no file or folder '{value}' to take along", where))
        elif leaf in _PATH_KEYS and _FILE.search(value):
            faults.append(Complaint(f"there is no file '{value}' to take along", where))
    if faults:
        raise ConfigError.collect(faults)
    return tuple(files_named)


def _of_component(key: str, use: str, named: files.Written) -> list[Reference]:
    """Return the file that a component is named by, and the files beside it that it imports."""
    beside = [Reference(key, os.path.relpath(file), file) for file in siblings(named.file)]
    return [Reference(key, use, named.file), *beside]


def uris(data: Any) -> tuple[str, ...]:
    """Return the values of a resolved config that are URIs, each once."""
    texts = (value for key, value in _texts(data, ()) if key[-1] not in _LEFT_OUT)
    return tuple(dict.fromkeys(value for value in texts if _URI.match(value)))


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # not a path: a name too long, or a circular link
        return path.is_symlink()


def _odd(key: Sequence[str | int]) -> str:
    return next(str(step) for step in key if not _STEP.fullmatch(str(step)))


def moves(value: str) -> bool:
    """Whether a path, as written, names another file on another machine."""
    return value.startswith("~") or Path(value).is_absolute()


def absolute_bases(files: Sequence[Path]) -> Iterator[Complaint]:
    """Yield complaints about ``extends`` paths that are invalid elsewhere; ``--set`` cannot help.

    Args:
        files: The YAML files a config was read from.
    """
    for file in files:
        root = read(file.read_text(encoding="utf-8-sig"), str(file))
        base = root.child("extends") if root is not None else None
        if base is None or not isinstance(base.value, str):
            continue
        where = f"{base.mark} (extends)"
        name, _ = expand(base.value, where, [])
        if moves(name):
            remedy = f"write it relative to the file: {os.path.relpath(name, file.parent)}"
            yield Complaint(
                "an absolute 'extends' does not hold on another machine", where, (remedy,)
            )


def _texts(value: Any, key: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping):
        for name, child in value.items():
            yield from _texts(child, (*key, str(name)))
    elif isinstance(value, list | tuple):
        for index, child in enumerate(value):
            yield from _texts(child, (*key, index))
