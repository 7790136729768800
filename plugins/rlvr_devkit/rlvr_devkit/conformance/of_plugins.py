"""Finds a plugin by its name or folder, and its components."""

from __future__ import annotations

import contextlib
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlvr_core.api import ConfigError
from rlvr_core.toolkit import Entry, Host, PluginRecord, load_host


def record_of(host: Host, name: str) -> PluginRecord:
    """Return the record of a plugin by its name or that of its distribution.

    Raises:
        PluginError: If there is none.
    """
    record = host.record(name)
    if record is not None:
        return record
    path = f"a folder with a plugin is checked by its path: rlvr plugins check ./{name}"
    raise host.no_plugin(name, path)


def components_of(host: Host, record: PluginRecord) -> list[Entry]:
    """Return the components that a plugin registered."""
    return [host.registry.entries[key] for key in record.components]


@contextlib.contextmanager
def installed(folder: Path) -> Iterator[tuple[Host, list[str]]]:
    """Load the plugins of a folder with a ``pyproject.toml`` as if they were installed.

    Yields:
        A host with these plugins, and their names.

    Raises:
        ConfigError: If the folder declares no plugin.
    """
    project = _project(folder)
    entries = project.get("entry-points", {}).get("rlvr", {})
    if not entries:
        raise ConfigError(
            "the project declares no plugin",
            where=str(folder / "pyproject.toml"),
            remedy='add: [project.entry-points.rlvr] and NAME = "MODULE", rlvr docs plugins',
        )
    name, version = str(project.get("name", folder.name)), str(project.get("version", "0"))
    with tempfile.TemporaryDirectory(prefix="rlvr-check-") as site:
        info = Path(site) / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        header = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        (info / "METADATA").write_text(header, encoding="utf-8")
        lines = [f"{key} = {target}" for key, target in entries.items()]
        (info / "entry_points.txt").write_text("\n".join(["[rlvr]", *lines, ""]), encoding="utf-8")
        places = [site, *(str(place) for place in (folder / "src", folder) if place.is_dir())]
        sys.path[:0] = places
        try:
            yield load_host(), list(entries)
        finally:
            for place in places:
                sys.path.remove(place)


def _project(folder: Path) -> dict[str, Any]:
    file = folder / "pyproject.toml"
    try:
        project: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8")).get("project", {})
    except OSError as error:
        raise ConfigError(
            f"there is no plugin in the folder: {error.strerror}",
            where=str(file),
            remedy="name a folder with a pyproject.toml; rlvr new KIND NAME writes one",
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"it is no TOML: {error}", where=str(file)) from None
    return project
