"""The examples, with description and files of each.

An example is a configuration, ``quickstart.yaml``, or a folder, ``rlvr_hello``. What is said of it
stands in it: in the comment that the configuration begins with, or in the package's description.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = "examples"
"""Folder of the copies, as comments and documentation name it."""

_HERE = Path(__file__).parent
_COMPONENT = re.compile(r"(?:tiny:)?([a-z][a-z0-9_]*)/[a-z][\w-]*(?:\?.*)?")
_NOT_THEIRS = {"__pycache__", "build", "dist", "runs"}


def home() -> Path:
    """Return the folder of the examples: inside of the installed package, or the clone's own."""
    inside = _HERE / "files"
    return inside if inside.is_dir() else _HERE.parents[1] / FOLDER


@dataclass(frozen=True)
class Example:
    """A configuration or a folder."""

    name: str
    """The name for ``rlvr examples copy``."""
    path: Path
    """The file or folder."""

    @property
    def summary(self) -> str:
        """Description in one sentence."""
        project = self.path / "pyproject.toml"
        if project.is_file():
            text: str = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["description"]
            return text.rstrip(".")
        return _opening(self.start)[0]

    @property
    def command(self) -> str:
        """The command that the comment at its configuration's top gives; empty if none."""
        return _opening(self.path)[1] if self.path.is_file() else ""

    @property
    def start(self) -> Path:
        """The file that one begins with: the configuration, or a folder's."""
        if self.path.is_file():
            return self.path
        config = self.path / "config.yaml"
        return config if config.is_file() else self.path / "pyproject.toml"

    @property
    def files(self) -> list[Path]:
        """Return all files that it needs, with those that its configurations extend."""
        own = [self.path] if self.path.is_file() else sorted(_inside(self.path))
        found: dict[Path, None] = {}
        for file in own:
            found[file] = None
            if file.suffix == ".yaml":
                found.update(dict.fromkeys(_extended(file)))
        return list(found)

    @property
    def plugins(self) -> list[str]:
        """Names of the plugins whose components its configurations name, but ``core``."""
        names = {
            match[1]
            for file in self.files
            if file.suffix == ".yaml"
            for text in _texts(_yaml(file))
            if (match := _COMPONENT.fullmatch(text))
        }
        return sorted(names - {"core"})


def examples() -> list[Example]:
    """Return all examples: configurations by name, then recipes, then folders."""
    folder = home()
    configs = [
        *sorted(folder.glob("*.yaml")),
        *sorted(folder.glob("recipes/*.yaml")),
    ]
    found = [Example(file.relative_to(folder).with_suffix("").as_posix(), file) for file in configs]
    folders = (one for one in sorted(folder.iterdir()) if one.is_dir() and one.name != "recipes")
    found += [one for one in (Example(path.name, path) for path in folders) if one.start.is_file()]
    return found


def find_example(text: str) -> Example | None:
    """Return the example of a name or of a path such as ``examples/quickstart.yaml``."""
    name = text.removeprefix("./").removeprefix(f"{FOLDER}/").removesuffix(".yaml").rstrip("/")
    return next((one for one in examples() if one.name == name), None)


def _opening(config: Path) -> tuple[str, str]:
    """Return the first sentence of a configuration's top comment, and its command."""
    lines = []
    for line in config.read_text(encoding="utf-8").splitlines():
        text = line.removeprefix("#").strip()
        if not line.startswith("#") or not text:
            break
        lines.append(text)
    said, _, command = " ".join(lines).partition(": rlvr ")
    sentence = re.split(r"\. (?=[A-Z])|; in this folder", said)[0].rstrip(".")
    return sentence, f"rlvr {command}" if command else ""


def _inside(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        parts = path.relative_to(folder).parts
        if path.is_file() and not any(
            part in _NOT_THEIRS or part.startswith(".") or part.endswith(".egg-info")
            for part in parts
        ):
            yield path


def _extended(config: Path) -> Iterator[Path]:
    """Yield the files that a configuration extends, or a sweep varies, and theirs."""
    data = _yaml(config)
    for key in ("extends", "config"):
        if named := data.get(key):
            file = (config.parent / named).resolve()
            yield file
            yield from _extended(file)


def _yaml(file: Path) -> dict[str, Any]:
    import yaml

    data: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return data


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)
