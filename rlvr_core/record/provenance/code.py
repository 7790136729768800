"""Hashes of the code that results are made by: packages and single components."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from rlvr_core.api import Json
from rlvr_core.plugins.host import Host
from rlvr_core.record.provenance.user_files import siblings, source_of


def code_hash(use: str, target: str) -> str | None:
    """Return a hash of the code that a component is made of; None if it has no source files.

    Args:
        use: How the user named the component.
        target: Where it is imported from (``module:name``).

    Returns:
        The SHA-256 of the files of its package: paths and contents. For a component of the core
        the package is that of its module, for any other the top-level one. Of a module outside of
        packages, of its file and the files beside it that it imports.
    """
    source = source_of(use, target)
    if source is not None:
        path, content = source
        return digest_of([content, *(_read(file) for file in siblings(path))])
    module = target.partition(":")[0]
    spec = find_spec(module)
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        return None
    file = Path(spec.origin)
    if not spec.parent:
        return digest_of([file.read_bytes(), *(_read(beside) for beside in siblings(file))])
    top = module.partition(".")[0]
    return _of_folder(file.parent if top == "rlvr_core" else _location(top) or file.parent)


def package_hash(package: str) -> str | None:
    """Return the SHA-256 of the files of a package: paths and contents; None if it is unknown."""
    place = _location(package)
    if place is None:
        return None
    return _of_folder(place) if place.is_dir() else digest_of([_read(place)])


def packages(host: Host) -> dict[str, Json]:
    """Return version and hash of the core and of every loaded plugin, as a text by package."""
    described: dict[str, Json] = {}
    for record in host.records:
        name = record.module.partition(".")[0]
        if name in described or record.status in ("failed", "off"):
            continue
        if (digest := package_hash(name)) is not None:
            described[name] = f"{record.version} ({digest[:16]})"
    return described


def digest_of(parts: Iterable[bytes]) -> str:
    """Return the SHA-256 of parts, each with its length."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def _location(package: str) -> Path | None:
    """Return the folder (or single file) that a package is imported from; None if unknown."""
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)))
    return Path(spec.origin) if spec.origin and spec.origin.endswith(".py") else None


def _of_folder(folder: Path) -> str:
    """Return the SHA-256 of the files below a folder, of their paths and contents."""
    parts: list[bytes] = []
    for path in sorted(folder.rglob("*")):
        place = path.relative_to(folder)
        hidden = any(part.startswith(".") for part in place.parts)
        if path.is_file() and path.suffix not in (".pyc", ".pyo") and not hidden:
            parts += [place.as_posix().encode(), _read(path)]
    return digest_of(parts)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""
