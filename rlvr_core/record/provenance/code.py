"""Hashes of the code that results are made by: packages, single components, git checkouts."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rlvr_core.api import Json
from rlvr_core.plugins.host import Host
from rlvr_core.record.files import write_atomic
from rlvr_core.record.provenance.checkout import changes, git
from rlvr_core.record.provenance.user_files import siblings, source_of
from rlvr_core.record.text import Redactor

CORE = "rlvr_core"
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUBLAS_WORKSPACE_CONFIG")
"""Environment variables that decide in what order numbers are added up."""


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
    folder = file.parent if top == CORE else location(top) or file.parent
    return _of_table(_table(folder))


def package_hash(package: str) -> str | None:
    """Return the SHA-256 of the files of a package: paths and contents; None if it is unknown."""
    folder = location(package)
    if folder is None:
        return None
    return _of_table(_table(folder)) if folder.is_dir() else digest_of([_read(folder)])


def packages(host: Host) -> dict[str, dict[str, Json]]:
    """Describe the code of the core and of every loaded plugin, by package.

    Returns:
        Of each: version of its distribution, SHA-256 of its files, and ``git``: root, commit and
        changed files of the checkout that it is imported from, None outside of one.
    """
    described: dict[str, dict[str, Json]] = {}
    for record in host.records:
        name = record.module.partition(".")[0]
        folder = location(name)
        if name in described or record.status in ("failed", "off") or folder is None:
            continue
        digest = package_hash(name)
        described[name] = {"version": record.version, "sha256": digest, "git": _checkout(folder)}
    return described


def keep_changes(folder: Path, code: Mapping[str, Mapping[str, Any]]) -> None:
    """Keep the diffs of packages that are imported from changed checkouts.

    Args:
        folder: ``patches/`` of a run.
        code: What ``packages`` returned.
    """
    for package, described in code.items():
        place = location(package)
        if place is None or not described["git"] or not described["git"]["changed"]:
            continue
        directory = place if place.is_dir() else place.parent
        text = changes(directory, "HEAD", "--", str(place)) or ""
        folder.mkdir(exist_ok=True)
        write_atomic(folder / f"{package}.patch", Redactor().patch(text))


def threads() -> dict[str, Json]:
    """Return the numbers of threads of this process, and the variables that set them."""
    numbers: dict[str, Json] = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    torch = sys.modules.get("torch")
    if torch is not None:
        numbers |= {"torch": torch.get_num_threads(), "interop": torch.get_num_interop_threads()}
    return numbers


def digest_of(parts: Iterable[bytes]) -> str:
    """Return the SHA-256 of parts, each with its length."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def _checkout(folder: Path) -> Json:
    """Return root, commit and changed files of the git checkout that a package is imported from."""
    place = folder if folder.is_dir() else folder.parent
    if "site-packages" in place.parts:
        return None
    status = git(place, "status", "--porcelain=v1", "--untracked-files=all", "--", str(folder))
    tracked = git(place, "ls-files", "--", str(folder))
    head = git(place, "rev-parse", "HEAD", "--show-toplevel")
    if status is None or not tracked or head is None:
        return None  # a folder that git ignores is no checkout of the package
    commit, root = head.splitlines()
    return {"root": root, "commit": commit, "changed": [line[3:] for line in status.splitlines()]}


def location(package: str) -> Path | None:
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


def _table(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file below a folder, by path."""
    files = (
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and path.suffix not in (".pyc", ".pyo")
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(_read(path)).hexdigest()
        for path in files
    }


def _of_table(table: Mapping[str, str]) -> str:
    return digest_of(part.encode() for item in table.items() for part in item)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""
