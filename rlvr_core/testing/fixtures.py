"""Fixtures for tests of plugins: ``pytest -p rlvr_core.testing.fixtures``.

In ``pyproject.toml``: ``addopts = "-p rlvr_core.testing.fixtures"``.

| fixture | |
|---|---|
| ``rlvr_host`` | all installed plugins, loaded anew |
| ``installed_plugin`` | leaves a plugin as pip leaves it |
| ``tiny_model`` | the folder of a model of random weights |
| ``lab`` | a working directory with this model and the ``rlvr`` command in it |
| ``scripted_engine`` | makes engines that say what they are told |
| ``small_disk`` | a disk of 1 MiB, where mounting one is allowed |
| ``no_network`` | a connection to another machine fails the test |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from rlvr_core.testing.lab import Lab, install_plugin

pytest_plugins = ["rlvr_core.testing.plugin_fixtures"]


@pytest.fixture(scope="session")
def installed_plugin(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Writes a plugin into a new folder: ``installed_plugin("toy", {"rlvr_toy.py": source})``.

    Returns the folder, for ``PYTHONPATH`` or ``Lab``.
    """

    def install(name: str, files: Mapping[str, str], entry: str | None = None) -> Path:
        return install_plugin(tmp_path_factory.mktemp("site"), name, files, entry=entry)

    return install


@pytest.fixture
def lab(tmp_path: Path, tiny_model: Path) -> Lab:
    """An empty working directory with the ``rlvr`` command; ``lab.model`` is a random model."""
    return Lab(tmp_path, model=tiny_model)
