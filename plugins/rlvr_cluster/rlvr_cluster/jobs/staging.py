"""Determines which files a job needs on other machines, and their paths there.

A config is sent unchanged. Its relative paths stay valid because the files keep their relative
locations; an absolute path is overridden by its key, never edited in the text.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr_cluster.jobs.references import moves
from rlvr_core.api import Complaint, ConfigError, LaunchRequest, Reference
from rlvr_core.config.dialect import read_option
from rlvr_core.config.layers import escape
from rlvr_core.plugins import files
from rlvr_core.record.secrets import secrets_in

IGNORE = ".rlvrignore"
"""File of patterns, as in .gitignore, of files in an included folder that are not sent."""

ALWAYS = (
    ".git/",
    ".hg/",
    ".venv/",
    "venv/",
    "node_modules/",
    "__pycache__/",
    "*.pyc",
    "*.egg-info/",
    ".mypy_cache/",
    ".pytest_cache/",
    ".ruff_cache/",
    ".hypothesis/",
    ".ipynb_checkpoints/",
    ".DS_Store",
    ".tmp-*",
    IGNORE,
)
"""Patterns of files that are never sent. .gitignore is not read: it also excludes data."""


@dataclass(frozen=True, slots=True)
class File:
    """A file that is sent with a job.

    Attributes:
        path: Path on this machine.
        key: Path below the job's folder.
        size: Size in bytes.
        real: Path with all links resolved, if that differs; else None.
    """

    path: Path
    key: str
    size: int
    real: Path | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the file's entry in a plan."""
        data: dict[str, Any] = {"path": str(self.path), "key": self.key, "size": self.size}
        return data | ({"real": str(self.real)} if self.real else {})


@dataclass(frozen=True, slots=True)
class Staged:
    """All files that are sent with a job.

    Attributes:
        files: The files in the order of their keys.
        layout: Their locations on this machine and on the job's.
        install: Keys of the folders that the job installs.
    """

    files: tuple[File, ...]
    layout: Layout
    install: tuple[str, ...]

    def arguments(self, request: LaunchRequest) -> list[str]:
        """Return the arguments of ``rlvr`` in the job, with the paths that are valid there."""
        moved = {str(path): self.layout.moved(path) for path in request.files[:1]}
        words = [moved.get(word, word) for word in request.arguments]
        for override in overrides(request.references, self.layout):
            words += ["--set", override]
        return words


def stage(
    request: LaunchRequest,
    include: Sequence[str],
    max_mb: int,
    smaller: Sequence[str],
    *,
    reserved: str = "",
) -> Staged:
    """Find the files of a job.

    Args:
        request: The request to launch.
        include: More files and folders that the job needs.
        max_mb: Largest total size, in MB.
        smaller: Remedies if the total is larger.
        reserved: Name of a file that the launcher itself puts beside them.

    Raises:
        ConfigError: If a file is missing or looks like a secret, or the total is too large; reports
            all faults at once.
    """
    faults: list[Complaint] = []
    included = [Path(text).expanduser() for text in include]
    for path in included:
        if not os.path.lexists(path):
            faults.append(Complaint(f"there is no file or folder '{path}'", "--include"))
    if faults:
        raise ConfigError.collect(faults)
    beside = request.beside
    named = [*request.files, *(reference.path for reference in request.references), *included]
    if beside is not None:
        named += [*beside.files, *(reference.path for reference in beside.references)]
    layout = Layout.of(Path.cwd(), named)
    root = layout.root.resolve()
    files: dict[str, File] = {}
    for path in dict.fromkeys(named):
        try:
            for source in walk(path):
                key, real = layout.place(source), source.resolve()
                file = File(
                    source, key, source.stat().st_size, None if real == root / key else real
                )
                if files.setdefault(key, file).path.resolve() != real:
                    what = f"two files would be {key} there: {real}, {files[key].path.resolve()}"
                    faults.append(Complaint(what, str(source), ("name both without links",)))
        except ConfigError as error:
            faults += error.complaints
    for file in files.values():
        try:
            faults += secrets_in(file.path, str(file.path), request.allowed_secrets)
        except ConfigError as error:
            faults += error.complaints
    if reserved in files:
        what = f"the launcher writes a file {reserved} there itself"
        faults.append(Complaint(what, reserved, ("give yours a different name",)))
    faults += _too_much(files, max_mb, smaller)
    if faults:
        raise ConfigError.collect(faults)
    install = [layout.place(path) for path in included if (path / "pyproject.toml").is_file()]
    ordered = tuple(files[key] for key in sorted(files))
    return Staged(ordered, layout, tuple(install))


def _too_much(
    files: Mapping[str, File], max_mb: int, smaller: Sequence[str]
) -> Iterator[Complaint]:
    total = sum(file.size for file in files.values())
    if total > max_mb << 20:
        largest = max(files.values(), key=lambda file: file.size)
        what = f"{total >> 20} MB would go along, more than {max_mb}"
        yield Complaint(what, "files of the job", (f"the largest is {largest.key}", *smaller))


def walk(path: Path) -> Iterator[Path]:
    """Yield a file, or the files of a folder that its rules allow; links are followed.

    Raises:
        ConfigError: If a link leads nowhere or in a circle, or an entry is not a file; raised after
            all valid files.
    """
    if path.is_file():
        yield path
        return
    if not path.is_dir():
        raise ConfigError("this is no file and no folder, or a link to nothing", where=str(path))
    from pathspec import GitIgnoreSpec

    ignore_file = path / IGNORE
    rules = ignore_file.read_text(encoding="utf-8").splitlines() if ignore_file.is_file() else []
    spec = GitIgnoreSpec.from_lines([*ALWAYS, *rules])
    faults: list[Complaint] = []
    yield from _below(path, path, spec, (path.resolve(),), faults)
    if faults:
        raise ConfigError.collect(faults)


def _below(
    root: Path, folder: Path, spec: Any, above: tuple[Path, ...], faults: list[Complaint]
) -> Iterator[Path]:
    def wrong(path: Path, what: str) -> None:
        faults.append(Complaint(what, str(path), (f"take it away, or name it in {root / IGNORE}",)))

    try:
        inside = sorted(folder.iterdir())
    except OSError as error:
        return wrong(folder, f"this folder cannot be read: {error.strerror}")
    for entry in inside:
        name = entry.relative_to(root).as_posix()
        if spec.match_file(f"{name}/" if entry.is_dir() else name):
            continue
        if entry.is_file():
            yield entry
        elif not entry.is_dir():
            wrong(entry, "this link leads nowhere" if entry.is_symlink() else "this is no file")
        elif entry.is_symlink() and entry.resolve() in above:
            wrong(entry, f"this link leads back to a folder above it: {entry.resolve()}")
        else:
            yield from _below(root, entry, spec, (*above, entry.resolve()), faults)
    return None


@dataclass(frozen=True, slots=True)
class Layout:
    """Locations of this machine's files on another machine.

    Attributes:
        root: Folder of this machine that contains all the files.
        here: The working directory, within ``root``.
    """

    root: Path
    here: Path

    @classmethod
    def of(cls, here: Path, paths: Sequence[Path]) -> Layout:
        """Build the layout in which ``paths`` and ``here`` keep their relative locations."""
        here = here.absolute()
        absolute = [_absolute(path) for path in paths]
        return cls(Path(os.path.commonpath([here, *(path.parent for path in absolute)])), here)

    def place(self, path: Path) -> str:
        """Return a path relative to the root."""
        return _absolute(path).relative_to(self.root).as_posix()

    @property
    def directory(self) -> str:
        """The working directory, relative to the root."""
        return self.place(self.here)

    def moved(self, path: Path) -> str:
        """Return a path on the other machine, relative to the job's working directory."""
        return os.path.relpath(path, self.here)


def overrides(references: Sequence[Reference], layout: Layout) -> list[str]:
    """Return ``--set`` options for the references that are invalid elsewhere as written."""
    return [
        f"{reference.key}={_written(_moved(reference, layout))}"
        for reference in references
        if moves(reference.value)
    ]


def _moved(reference: Reference, layout: Layout) -> str:
    named = files.parse(reference.value)
    path = layout.moved(reference.path)
    return f"{path}:{named.name}" if named is not None and named.name else path


def _written(path: str) -> str:
    """Format a path so that ``--set`` reads it back."""
    text = escape(path)
    try:
        plain = read_option(text.strip(), "").value == text
    except ConfigError:
        plain = False
    return text if plain else json.dumps(text, ensure_ascii=False)


def _absolute(path: Path) -> Path:
    return Path(os.path.normpath(path.absolute()))  # symbolic links are kept
