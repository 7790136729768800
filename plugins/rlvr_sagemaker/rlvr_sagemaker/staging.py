"""The files that go along with a job, and what tells it what to do with them."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr_core.api import Complaint, ConfigError, LaunchRequest
from rlvr_core.api.services import Layout, overrides, secrets_in
from rlvr_sagemaker.bar import uploading
from rlvr_sagemaker.options import Options, gpu_list, pairs
from rlvr_sagemaker.request import DESCRIPTION
from rlvr_sagemaker.store import S3Store

IGNORE = ".rlvrignore"
"""File of patterns, as in .gitignore, of what an included folder keeps to itself."""

LINKS = 20
"""Files behind links that are named when a job is submitted."""

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
"""What never goes along. .gitignore is not read: it leaves out data as well (T98)."""


@dataclass(frozen=True, slots=True)
class File:
    """A file that goes along.

    Attributes:
        path: Where it is.
        key: Where it will be, below the job's folder.
        size: In bytes.
        real: Where it really is, if links lead there; else None.
    """

    path: Path
    key: str
    size: int
    real: Path | None = None

    def as_json(self) -> dict[str, Any]:
        """The file in a plan."""
        found: dict[str, Any] = {"path": str(self.path), "key": self.key, "size": self.size}
        return found | ({"real": str(self.real)} if self.real else {})


@dataclass(frozen=True, slots=True)
class Staged:
    """Everything that goes along.

    Attributes:
        files: In the order of their keys.
        layout: Where they come from, and go to.
        install: Folders among them that the job installs.
    """

    files: tuple[File, ...]
    layout: Layout
    install: tuple[str, ...]

    def description(
        self, config: Options, request: LaunchRequest, runs: str, job: str
    ) -> dict[str, Any]:
        """What the job reads to know what to do."""
        moved = {str(path): self.layout.moved(path) for path in request.files[:1]}
        words = [moved.get(word, word) for word in request.arguments]
        for one in overrides(request.references, self.layout):
            words += ["--set", one]
        described: dict[str, Any] = {
            "arguments": words,
            "directory": self.layout.directory,
            "job": job,
            "name": request.name,
            "takes_over": bool(request.continues),
            "runs": None if config.local else runs,
            "processes": config.processes,
            "train_gpus": gpu_list(config.train_gpus),
            "engine_gpus": config.engine_gpus or [],
            "install": list(self.install),
            "secrets": pairs(config.secrets),
        }
        if request.beside is not None:
            described["eval_config"] = self.layout.moved(request.beside.config)
            described["eval_set"] = overrides(request.beside.references, self.layout)
            described["eval_gpus"] = gpu_list(config.eval_gpus)
        return described


def stage(config: Options, request: LaunchRequest) -> Staged:
    """Find the files of a job.

    Raises:
        ConfigError: If one is missing, looks like a secret, or they are too large; all at once.
    """
    faults: list[Complaint] = []
    included = [Path(text).expanduser() for text in config.include]
    for path in included:
        if not os.path.lexists(path):
            faults.append(Complaint(f"there is no file or folder '{path}'", "--include"))
    if faults:
        raise ConfigError.collect(faults)
    beside = request.beside
    named = [*request.files, *(one.path for one in request.references), *included]
    if beside is not None:
        named += [*beside.files, *(one.path for one in beside.references)]
    layout = Layout.of(Path.cwd(), named)
    root = layout.root.resolve()
    files: dict[str, File] = {}
    for path in dict.fromkeys(named):
        try:
            for found in walk(path):
                key, real = layout.place(found), found.resolve()
                file = File(found, key, found.stat().st_size, None if real == root / key else real)
                if files.setdefault(key, file).path.resolve() != real:
                    what = f"two files would be {key} there: {real}, {files[key].path.resolve()}"
                    faults.append(Complaint(what, str(found), ("name both without links",)))
        except ConfigError as error:
            faults += error.complaints
    for file in files.values():
        try:
            faults += secrets_in(file.path, str(file.path), request.allowed_secrets)
        except ConfigError as error:
            faults += error.complaints
    if DESCRIPTION in files:
        faults.append(Complaint(f"the name {DESCRIPTION} is ours", DESCRIPTION))
    faults += _too_much(config, files)
    if faults:
        raise ConfigError.collect(faults)
    install = [layout.place(path) for path in included if (path / "pyproject.toml").is_file()]
    ordered = tuple(files[key] for key in sorted(files))
    return Staged(ordered, layout, tuple(install))


def _too_much(config: Options, files: Mapping[str, File]) -> Iterator[Complaint]:
    total = sum(file.size for file in files.values())
    if total > config.max_staged_mb << 20:
        largest = max(files.values(), key=lambda file: file.size)
        remedy = (
            f"the largest is {largest.key}",
            "put it on S3 once, and name it so: rlvr sagemaker put PATH s3://bucket/…",
            f"or leave things out by {IGNORE}, or raise --max-staged-mb",
        )
        yield Complaint(f"{total >> 20} MB would go along", "--max-staged-mb", remedy)


def walk(path: Path) -> Iterator[Path]:
    """A file, or the files of a folder that its rules let go. Links are followed.

    Raises:
        ConfigError: If a link leads nowhere or back to where it is, or a thing is no file; after
            all the others.
    """
    if path.is_file():
        yield path
        return
    if not path.is_dir():
        raise ConfigError("this is no file and no folder, or a link to nothing", where=str(path))
    from pathspec import GitIgnoreSpec

    own = path / IGNORE
    rules = own.read_text(encoding="utf-8").splitlines() if own.is_file() else []
    spec = GitIgnoreSpec.from_lines([*ALWAYS, *rules])
    faults: list[Complaint] = []
    yield from _below(path, path, spec, (path.resolve(),), faults)
    if faults:
        raise ConfigError.collect(faults)


def _below(
    root: Path, folder: Path, spec: Any, above: tuple[Path, ...], faults: list[Complaint]
) -> Iterator[Path]:
    def wrong(one: Path, what: str) -> None:
        faults.append(Complaint(what, str(one), (f"take it away, or name it in {root / IGNORE}",)))

    try:
        inside = sorted(folder.iterdir())
    except OSError as error:
        return wrong(folder, f"this folder cannot be read: {error.strerror}")
    for one in inside:
        name = one.relative_to(root).as_posix()
        if spec.match_file(f"{name}/" if one.is_dir() else name):
            continue
        if one.is_file():
            yield one
        elif not one.is_dir():
            wrong(one, "this link leads nowhere" if one.is_symlink() else "this is no file")
        elif one.is_symlink() and one.resolve() in above:
            wrong(one, f"this link leads back to a folder above it: {one.resolve()}")
        else:
            yield from _below(root, one, spec, (*above, one.resolve()), faults)
    return None


def upload(details: Mapping[str, Any], store: S3Store, say: Callable[[str], None]) -> None:
    """Put the files of a plan, and what tells the job what to do, where the job finds them."""
    files = details["files"]
    say(f"{len(files)} files to {store.place}")
    linked = [one for one in files if "real" in one]
    for one in linked[:LINKS]:
        say(f"  by a link: {one['key']} is {one['real']}")
    if len(linked) > LINKS:
        say(f"  and {len(linked) - LINKS} more by links: rlvr launch … --dry-run names them")
    total = sum(one["size"] for one in files)
    with uploading(total) as told, ThreadPoolExecutor(8) as pool:

        def put(one: Mapping[str, Any]) -> None:
            store.put(Path(one["path"]), one["key"])
            told(one["size"])

        for _ in pool.map(put, files):
            pass
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / DESCRIPTION
        path.write_text(json.dumps(details["description"], indent=1) + "\n", encoding="utf-8")
        store.put(path, DESCRIPTION)
