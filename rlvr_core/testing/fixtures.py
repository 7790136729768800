"""Fixtures for tests of plugins: ``pytest -p rlvr_core.testing.fixtures``.

In a conftest: ``pytest_plugins = ["rlvr_core.testing.fixtures"]``.

``installed_plugin`` leaves a plugin as pip leaves it; ``lab`` is a working directory with a model
of random weights and the ``rlvr`` command in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from rlvr_core.testing.lab import Lab, install_plugin


@pytest.fixture(scope="session")
def installed_plugin(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Writes a plugin into a new folder: ``installed_plugin("toy", {"rlvr_toy.py": source})``.

    Returns the folder, for ``PYTHONPATH`` or ``Lab``.
    """

    def install(name: str, files: Mapping[str, str], entry: str | None = None) -> Path:
        return install_plugin(tmp_path_factory.mktemp("site"), name, files, entry=entry)

    return install


@pytest.fixture(scope="session")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model that has learned nothing: runs of it take seconds."""
    from rlvr_core.testing.random_model import save_random_model  # imports torch

    return save_random_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def lab(tmp_path: Path, random_model: Path) -> Lab:
    """An empty working directory with the ``rlvr`` command; ``lab.model`` is a random model."""
    return Lab(tmp_path, model=random_model)
