"""Installed packages that programs may import: copied, with what they require, to a folder alone.

A sandbox is shown that folder and not the one they are installed in, where everything else is, too.
"""

from __future__ import annotations

import compileall
import hashlib
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from rlvr_core.api import ConfigError
from rlvr_core.data.uri import cache_folder

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_LEFT_OUT = ("tests", "__pycache__", "include", "examples", "benchmarks")


@dataclass(frozen=True, slots=True)
class Shown:
    """Packages as a sandbox is given them.

    Attributes:
        folders: For ``sys.path``.
        modules: To import once, before any program is there.
    """

    folders: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()


def shown(names: Sequence[str]) -> Shown:
    """Packages by the names they are installed under, and what they require.

    Raises:
        ConfigError: If one is not installed here.
    """
    if not names:
        return Shown()
    distributions: dict[str, metadata.Distribution] = {}
    waiting = [(name, True) for name in names]
    while waiting:
        name, wanted = waiting.pop()
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in distributions:
            continue
        try:
            distributions[key] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            if wanted:
                raise ConfigError(
                    f"packages: {name} is not installed",
                    remedy=f"pip install {name}, in the trainer's environment",
                ) from None
            continue
        waiting += [(requirement, False) for requirement in _required(distributions[key])]
    versions = " ".join(
        f"{key}={distribution.version}" for key, distribution in sorted(distributions.items())
    )
    tag = hashlib.sha256(f"{sys.implementation.cache_tag} {versions}".encode()).hexdigest()[:16]
    place = cache_folder() / "code-packages" / tag
    if not place.is_dir():
        _make(place, list(distributions.values()))
    wanted_modules = [module for name in names for module in modules(name)]
    return Shown((str(place),), tuple(wanted_modules))


def modules(name: str) -> list[str]:
    """Top-level modules of an installed package that can be imported.

    Raises:
        PackageNotFoundError: If it is not installed.
    """
    tops = set()
    for file in metadata.distribution(name).files or ():
        if file.suffix == ".py" and ".." not in file.parts:
            single = len(file.parts) == 1
            if single or (len(file.parts) == 2 and file.name == "__init__.py"):
                tops.add(file.stem if single else file.parts[0])
    return sorted(top for top in tops if top.isidentifier() and not top.startswith("_"))


def _required(distribution: metadata.Distribution) -> list[str]:
    needed = [
        requirement for requirement in distribution.requires or () if "extra ==" not in requirement
    ]
    return [match[0] for requirement in needed if (match := _NAME.match(requirement))]


def _make(place: Path, distributions: Sequence[metadata.Distribution]) -> None:
    """Copy packages into a folder that appears when it is whole."""
    place.parent.mkdir(parents=True, exist_ok=True)
    half = Path(tempfile.mkdtemp(dir=place.parent))
    try:
        for distribution in distributions:
            for file in distribution.files or ():
                if ".." in file.parts or file.is_absolute() or set(_LEFT_OUT) & set(file.parts):
                    continue
                source = Path(str(distribution.locate_file(file)))
                if source.is_file():
                    target = half / file
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(source, target)
        compileall.compile_dir(half, quiet=2)
        for path in (half, *half.rglob("*")):  # a program's user is nobody's
            path.chmod(0o755 if path.is_dir() else 0o644)
        try:
            half.rename(place)
        except OSError:
            if not place.is_dir():  # else another process was faster
                raise
    finally:
        shutil.rmtree(half, ignore_errors=True)
