"""What all tests share: which files ``-m gpu`` reads, and where started programs find helpers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Let programs that tests start import ``tests.support``, as the tests themselves do."""
    places = [str(config.rootpath), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, places)))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out, for ``-m gpu``, folders and files without ``mark.gpu``.

    A machine with a GPU may lack what every other test imports.
    """
    if config.getoption("markexpr") != "gpu" or collection_path == config.rootpath:
        return None
    files = collection_path.rglob("test_*.py") if collection_path.is_dir() else [collection_path]
    return None if any(b"mark.gpu" in file.read_bytes() for file in files) else True
