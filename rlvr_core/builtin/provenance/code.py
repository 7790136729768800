"""Hashes of the code that results are made by: packages, single components, git checkouts."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rlvr_core.api import Json
from rlvr_core.api.services import Host, Redactor, write_atomic
from rlvr_core.builtin.provenance.checkout import changes, git
from rlvr_core.builtin.provenance.compare import code_differences
from rlvr_core.builtin.provenance.user_files import siblings, source_of

CORE = "rlvr_core"
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUBLAS_WORKSPACE_CONFIG")
"""Environment variables that decide in what order numbers are added up."""
_SHORT = 16
"""Hexadecimal digits of the hash of one file in a table of files."""


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
    own = source_of(use, target)
    if own is not None:
        path, content = own
        return digest_of([content, *(_read(file) for file in siblings(path))])
    module = target.partition(":")[0]
    found = find_spec(module)
    if found is None or not found.origin or not found.origin.endswith(".py"):
        return None
    file = Path(found.origin)
    if not found.parent:
        return digest_of([file.read_bytes(), *(_read(one) for one in siblings(file))])
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
        Of each: version of its distribution, SHA-256, state of its git checkout (see
        ``_checkout``), and ``files``: the first digits of each file's SHA-256 by its path.
    """
    found: dict[str, dict[str, Json]] = {}
    for record in host.records:
        name = record.module.partition(".")[0]
        folder = location(name)
        if name in found or record.status in ("failed", "off") or folder is None:
            continue
        single = folder.is_file()
        table = _table(folder) if not single else {folder.name: _short(_read(folder))}
        found[name] = {
            "version": record.version,
            "sha256": _of_table(table),
            "git": _checkout(folder),
            "files": {f"{name}/{path}" if not single else path: h for path, h in table.items()},
        }
    return found


def file_tables(code: Mapping[str, Mapping[str, Json]]) -> dict[str, dict[str, str]]:
    """Return the table of files of each package, of what ``packages`` found."""
    return {name: one["files"] for name, one in code.items()}


def installed_code(host: Host, folder: Path) -> dict[str, Json]:
    """Describe what computes here: code of the core and of plugins, and numbers of threads.

    Args:
        host: The loaded plugins.
        folder: Where tables of files and changes of checkouts are kept.

    Returns:
        ``code``, as ``keep_code`` returns it, and ``threads``.
    """
    return {"code": keep_code(folder, packages(host)), "threads": threads()}


def unlike_code(
    one: Mapping[str, Any], other: Mapping[str, Any], folders: tuple[Path, Path]
) -> dict[str, str]:
    """Return the packages whose code differs, with the files.

    Args:
        one: What ``keep_code`` returned.
        other: The same of another time or machine.
        folders: Where each was kept.
    """
    tables = [kept_tables(*pair) for pair in zip(folders, (one, other), strict=True)]
    found = code_differences(one["packages"], other["packages"], *tables)
    return {difference.key: difference.text for difference in found}


def keep_code(folder: Path, code: Mapping[str, dict[str, Json]]) -> dict[str, Json]:
    """Keep tables of files and the changes of checkouts in a folder; return the rest.

    Args:
        folder: The folder, which is created.
        code: What ``packages`` returned.

    Returns:
        ``packages``; ``files``: the name of the table; ``patches``: the name of the changes of
        each checkout, by its root.
    """
    name = _keep(folder, json.dumps(file_tables(code), indent=1), "json")
    roots: dict[str, list[Path]] = {}
    for package, one in code.items():
        place = location(package)
        if one["git"] and one["git"]["changed"] and place is not None:
            roots.setdefault(one["git"]["root"], []).append(place)
    patches = {}
    for root, places in roots.items():
        patches[root] = _keep(folder, Redactor().patch(diff_of(places)), "patch")
    rest = {
        package: {key: value for key, value in one.items() if key != "files"}
        for package, one in code.items()
    }
    return {"packages": rest, "files": name, "patches": patches}


def kept_tables(folder: Path, code: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return the table of files of each package that was kept; empty if it is gone."""
    try:
        found = json.loads((folder / str(code.get("files"))).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _keep(folder: Path, text: str, suffix: str) -> str:
    name = f"code-{hashlib.sha256(text.encode()).hexdigest()[:8]}.{suffix}"
    folder.mkdir(exist_ok=True)
    write_atomic(folder / name, text)
    return name


def threads() -> dict[str, Json]:
    """Return the numbers of threads of this process, and the variables that set them."""
    found: dict[str, Json] = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    torch = sys.modules.get("torch")
    if torch is not None:
        found |= {"torch": torch.get_num_threads(), "interop": torch.get_num_interop_threads()}
    return found


def diff_of(folders: Iterable[Path]) -> str:
    """Return the changes of folders in one checkout since its last commit, as a patch."""
    given = [str(folder) for folder in folders]
    start = Path(given[0])
    place = start if start.is_dir() else start.parent
    return changes(place, "HEAD", "--", *given) or ""


def digest_of(parts: Iterable[bytes]) -> str:
    """Return the SHA-256 of parts, each with its length."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def _checkout(folder: Path) -> Json:
    """Describe the git checkout that a package is imported from; None if it is in none.

    Returns:
        Root, commit, and names of files that differ from it (``changed``) or that git does not
        track (``untracked``).
    """
    place = folder if folder.is_dir() else folder.parent
    if "site-packages" in place.parts or not any(
        (one / ".git").exists() for one in (place, *place.parents)
    ):
        return None
    status = git(place, "status", "--porcelain=v1", "--untracked-files=all", "--", str(folder))
    tracked = git(place, "ls-files", "--", str(folder))
    head = git(place, "rev-parse", "HEAD", "--show-toplevel")
    if status is None or not tracked or head is None:
        return None  # a folder that git ignores is no checkout of the package
    commit, root = head.splitlines()
    lines = status.splitlines()
    return {
        "root": root,
        "commit": commit,
        "changed": [line[3:] for line in lines if not line.startswith("??")],
        "untracked": [line[3:] for line in lines if line.startswith("??")],
    }


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
    """Return the first digits of the SHA-256 of each file below a folder, by path."""
    files = (
        one
        for one in sorted(folder.rglob("*"))
        if one.is_file()
        and one.suffix not in (".pyc", ".pyo")
        and not any(part.startswith(".") for part in one.relative_to(folder).parts)
    )
    return {one.relative_to(folder).as_posix(): _short(_read(one)) for one in files}


def _of_table(table: Mapping[str, str]) -> str:
    return digest_of(part.encode() for item in table.items() for part in item)


def _short(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_SHORT]


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""
