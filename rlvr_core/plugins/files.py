"""Components named by their location: ``./my_reward.py:fn`` and ``package.module:Name``.

A file is imported under a unique name made from the hash of its content, and from a snapshot in the
cache, so that worker processes that start later, or are replaced, import the code that the run
began with even if the file has changed since. Its folder goes to the end of ``sys.path``, so that
the file can import modules beside it without hiding installed ones.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from rlvr_core.api import ConfigError, MachineError, PluginError, RlvrError
from rlvr_core.plugins import discovery

PREFIX = discovery.FILE_PREFIX

_FILE = re.compile(r"(?P<path>.+\.py)(?::(?P<name>.*))?", re.DOTALL)
_MODULE = re.compile(r"(?P<path>[A-Za-z_]\w*(\.[A-Za-z_]\w*)*):(?P<name>[A-Za-z_]\w*)")


@dataclass(frozen=True, slots=True)
class Written:
    """A parsed reference to a component by file or module.

    Attributes:
        path: Path of the file, or name of the module.
        name: Name of the component in it.
        in_file: Whether ``path`` is a file.
    """

    path: str
    name: str
    in_file: bool

    @property
    def file(self) -> Path:
        """Absolute path of the file; relative paths start at the working directory."""
        return Path(self.path).expanduser().absolute()


def parse(use: str) -> Written | None:
    """Parse a reference by file or module; None if ``use`` is a registered name."""
    if match := _FILE.fullmatch(use):
        return Written(match["path"], match["name"] or "", True)
    if match := _MODULE.fullmatch(use):
        return Written(match["path"], match["name"], False)
    return None


def target(written: Written, kind: str, where: str) -> str:
    """Return the ``module:name`` to import the component from, in this process and its children.

    Args:
        written: The parsed reference.
        kind: The kind of component expected, for messages.
        where: Where the user wrote the reference.

    Raises:
        ConfigError: If there is no such file or module, or no name is given.
        MachineError: If the cache cannot be written.
    """
    if not written.in_file:
        _check_module(written, where)
        return f"{written.path}:{written.name}"
    file = written.file
    try:
        source = file.read_bytes()
    except OSError as error:
        raise _faults().unreadable(written, error, where) from None
    if not written.name.isidentifier():
        raise _faults().unnamed(written, source, kind, where)
    return f"{_snapshot(file, source)}:{written.name}"


def attribute(module: ModuleType, name: str, use: str, where: str) -> Any:
    """Return the attribute ``name`` of a module.

    Raises:
        ConfigError: If the module has no such attribute.
    """
    try:
        return vars(module)[name]
    except KeyError:
        if (component := inspect.getattr_static(module, name, None)) is not None:
            return component
        raise _faults().no_attribute(module, name, use, where) from None


def find_spec(name: str) -> importlib.machinery.ModuleSpec | None:
    """Find the spec of a module that was imported from a file (its name starts with ``PREFIX``)."""
    folder = _cache() / name.removeprefix(PREFIX).rpartition("_")[2]
    try:
        origin_file = (folder / "origin").read_text(encoding="utf-8")
    except OSError:
        return None
    loader = SnapshotLoader(folder / "source.py", Path(origin_file))
    return importlib.util.spec_from_file_location(name, origin_file, loader=loader)


class SnapshotLoader(importlib.abc.Loader):
    """Executes the snapshot of a file under the file's own path."""

    def __init__(self, snapshot: Path, file: Path) -> None:
        self.snapshot, self._file = snapshot, file

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        """Return None, so that Python creates an ordinary module."""

    def exec_module(self, module: ModuleType) -> None:
        """Execute the snapshot in the module.

        Raises:
            ImportError: If it imports a module whose name is also that of a file beside it, and
                gets another one.
        """
        folder = str(self._file.parent)
        if folder not in sys.path:
            sys.path.append(folder)
        source = self.snapshot.read_bytes()
        exec(compile(source, str(self._file), "exec", dont_inherit=True), vars(module))
        for name, path in imported_beside(source, self._file):
            other = getattr(sys.modules.get(name), "__file__", None)
            if other is not None and not Path(other).samefile(path):
                raise ImportError(
                    f"'import {name}' found {other}, not {path}: a module of that name is "
                    f"installed or was imported before; rename the file"
                )


def of_module(use: str) -> Path | None:
    """Return the source file of a component named by file or module; None if it has none."""
    written = parse(use)
    if written is None or written.in_file:
        return written.file if written else None
    source = getattr(sys.modules.get(written.path), "__file__", None)
    return Path(source) if source else None


def _check_module(written: Written, where: str) -> None:
    package = written.path.partition(".")[0]
    if package not in sys.modules and importlib.util.find_spec(package) is None:
        raise _no_module(written, where)


def _no_module(written: Written, where: str) -> ConfigError:
    file = f"./{written.path.replace('.', '/')}.py:{written.name}"
    return ConfigError(
        f"there is no module '{written.path}' to import",
        where=where,
        remedy=[f"name the file: {file}", "or install the package it belongs to"],
    )


def _snapshot(file: Path, source: bytes) -> str:
    """Store a file's content in the cache, and return the name to import it by."""
    digest = hashlib.sha256(os.fsencode(file) + b"\0" + source).hexdigest()[:24]
    folder = _cache() / digest
    stem = re.sub(r"\W", "_", file.stem)
    if not (folder / "origin").exists():
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            staging = Path(tempfile.mkdtemp(dir=folder.parent))
            (staging / "source.py").write_bytes(source)
            (staging / "origin").write_text(str(file), encoding="utf-8")
            try:
                staging.rename(folder)
            except OSError:  # another process was first
                shutil.rmtree(staging)
        except OSError as error:
            raise MachineError(
                f"the cache cannot be written: {error.strerror}",
                where=str(folder.parent),
                remedy="make it writable, or set XDG_CACHE_HOME to a folder that is",
            ) from error
    return f"{PREFIX}{stem}_{digest}"


def cache_folder() -> Path:
    """Return the cache folder: ``$XDG_CACHE_HOME/rlvr`` or ``~/.cache/rlvr``."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "rlvr"


def _cache() -> Path:
    return cache_folder() / "files"


def imported_beside(source: bytes, file: Path) -> Iterator[tuple[str, Path]]:
    """Yield each top-level module, once, that a source imports and that lies beside ``file``."""
    names: dict[str, None] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(dict.fromkeys(alias.name.partition(".")[0] for alias in node.names))
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names[node.module.partition(".")[0]] = None
    for name in names:
        for path in (file.parent / f"{name}.py", file.parent / name / "__init__.py"):
            if path.is_file() and path != file:
                yield name, path
                break


def _faults() -> Any:
    """Return what explains wrong references; imported only when one is wrong."""
    from rlvr_core.plugins.file_faults import FileFaults

    return FileFaults


def failed(use: str, module: str, error: BaseException) -> RlvrError:
    """Build the error for a file or module that cannot be imported; it names the faulty line."""
    written = parse(use)
    missing = isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}.")
    if written is not None and not written.in_file and missing:
        return _no_module(written, "")
    place = discovery.of_error(error, module.partition(".")[0])
    text = " ".join(str(error.msg if isinstance(error, SyntaxError) else error).split())
    return PluginError(
        f"'{use}' failed to load: {type(error).__name__}: {text}",
        where=str(place) if place.file else str(of_module(use) or module),
        remedy="fix it there, or install what it lacks",
    )
