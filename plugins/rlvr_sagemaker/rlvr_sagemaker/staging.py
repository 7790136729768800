"""The files that go along with a job, and what tells it what to do with them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr_core import ConfigError
from rlvr_core.errors import Complaint
from rlvr_core.launch.secrets import secrets_in
from rlvr_core.launch.staging import Layout, overrides, references
from rlvr_core.protocols import LaunchRequest, Reference
from rlvr_sagemaker.options import Options, gpu_list, pairs
from rlvr_sagemaker.request import DESCRIPTION
from rlvr_sagemaker.store import S3Store

IGNORE = ".rlvrignore"
"""File of patterns, as in .gitignore, of what an included folder keeps to itself."""

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
    """

    path: Path
    key: str
    size: int

    def as_json(self) -> dict[str, Any]:
        """The file in a plan."""
        return {"path": str(self.path), "key": self.key, "size": self.size}


@dataclass(frozen=True, slots=True)
class Staged:
    """Everything that goes along.

    Attributes:
        files: In the order of their keys.
        layout: Where they come from, and go to.
        references: What the configs name of them.
        install: Folders among them that the job installs.
    """

    files: tuple[File, ...]
    layout: Layout
    references: tuple[Reference, ...]
    install: tuple[str, ...]

    def description(self, config: Options, request: LaunchRequest, runs: str) -> dict[str, Any]:
        """What the job reads to know what to do."""
        moved = {str(path): self.layout.moved(path) for path in request.files[:1]}
        words = [moved.get(word, word) for word in request.arguments]
        for one in overrides(self.references, self.layout):
            words += ["--set", one]
        described: dict[str, Any] = {
            "arguments": words,
            "directory": self.layout.directory,
            "name": request.name,
            "runs": None if config.local else runs,
            "processes": config.processes,
            "train_gpus": gpu_list(config.train_gpus),
            "engine_gpus": config.engine_gpus or [],
            "install": list(self.install),
            "secrets": pairs(config.secrets),
        }
        if config.eval_config:
            described["eval_config"] = self.layout.moved(Path(config.eval_config))
            described["eval_gpus"] = gpu_list(config.eval_gpus)
        return described


def stage(config: Options, request: LaunchRequest) -> Staged:
    """Find the files of a job.

    Raises:
        ConfigError: If one is missing, looks like a secret, or they are too large; all at once.
    """
    named: list[Path] = [*request.files, *(one.path for one in request.references)]
    faults = []
    for text in [*config.include, *([config.eval_config] if config.eval_config else [])]:
        path = Path(text).expanduser()
        if path.exists():
            named.append(path)
        else:
            faults.append(Complaint(f"there is no file or folder '{text}'", "--include"))
    if faults:
        raise ConfigError.collect(faults)
    if config.eval_config:
        named += [one.path for one in _references_of(Path(config.eval_config))]
    for path in request.files:
        if path.is_absolute() and _extends_absolutely(path):
            faults.append(Complaint("an absolute 'extends' does not hold elsewhere", str(path)))
    layout = Layout.of(Path.cwd(), named)
    files = {}
    for path in named:
        for file in walk(path):
            key = layout.place(file)
            files[key] = File(file, key, file.stat().st_size)
    faults += [one for file in files.values() for one in secrets_in(file.path, str(file.path))]
    if DESCRIPTION in files:
        faults.append(Complaint(f"the name {DESCRIPTION} is ours", DESCRIPTION))
    total = sum(file.size for file in files.values())
    if total > config.max_staged_mb << 20:
        largest = max(files.values(), key=lambda file: file.size)
        remedy = (
            f"the largest is {largest.key}",
            "put it on S3 once, and name it so: rlvr sagemaker put PATH s3://bucket/…",
            f"or leave things out by {IGNORE}, or raise --max-staged-mb",
        )
        faults.append(Complaint(f"{total >> 20} MB would go along", "--max-staged-mb", remedy))
    if faults:
        raise ConfigError.collect(faults)
    install = [
        layout.place(Path(text).expanduser())
        for text in config.include
        if (Path(text).expanduser() / "pyproject.toml").is_file()
    ]
    ordered = tuple(files[key] for key in sorted(files))
    return Staged(ordered, layout, tuple(request.references), tuple(install))


def walk(path: Path) -> Iterator[Path]:
    """A file, or the files of a folder that its rules let go."""
    if path.is_file():
        yield path
        return
    from pathspec import GitIgnoreSpec

    own = path / IGNORE
    rules = own.read_text(encoding="utf-8").splitlines() if own.is_file() else []
    spec = GitIgnoreSpec.from_lines([*ALWAYS, *rules])
    yield from _below(path, path, spec)


def _below(root: Path, folder: Path, spec: Any) -> Iterator[Path]:
    for one in sorted(folder.iterdir()):
        name = one.relative_to(root).as_posix()
        if one.is_dir():
            if not one.is_symlink() and not spec.match_file(name + "/"):
                yield from _below(root, one, spec)
        elif one.is_file() and not spec.match_file(name):
            yield one


def upload(details: Mapping[str, Any], store: S3Store, say: Callable[[str], None]) -> None:
    """Put the files of a plan, and what tells the job what to do, where the job finds them."""
    files = details["files"]
    say(f"{len(files)} files to {store.place}")
    with ThreadPoolExecutor(8) as pool:
        for _ in pool.map(lambda one: store.put(Path(one["path"]), one["key"]), files):
            pass
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / DESCRIPTION
        path.write_text(json.dumps(details["description"], indent=1) + "\n", encoding="utf-8")
        store.put(path, DESCRIPTION)


def permissions(config: Options) -> Sequence[str]:
    """What whoever submits has to be allowed."""
    if config.local:
        return []
    found = [
        "s3:ListBucket, s3:GetObject, s3:PutObject, s3:DeleteObject on --store",
        "sagemaker:CreateTrainingJob, DescribeTrainingJob, StopTrainingJob, ListTrainingJobs",
        "iam:PassRole of --role to sagemaker.amazonaws.com",
        "logs:DescribeLogStreams, GetLogEvents on /aws/sagemaker/TrainingJobs",
    ]
    if config.push:
        found.append("ecr:GetAuthorizationToken, CreateRepository, and pushing to the repository")
    return found


def _references_of(path: Path) -> tuple[Reference, ...]:
    import yaml

    try:
        return references(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"it cannot be read: {error}", where=str(path)) from error


def _extends_absolutely(path: Path) -> bool:
    import yaml

    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    base = data.get("extends") if isinstance(data, dict) else None
    return isinstance(base, str) and Path(base).expanduser().is_absolute()
