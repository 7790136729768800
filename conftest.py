"""Which files pytest reads for ``-m gpu``: those that have a test of that mark.

A machine with a GPU may lack what every other test imports.
"""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out, for ``-m gpu``, folders and files without ``mark.gpu``."""
    if config.getoption("markexpr") != "gpu" or collection_path == config.rootpath:
        return None
    files = collection_path.rglob("test_*.py") if collection_path.is_dir() else [collection_path]
    return None if any(b"mark.gpu" in file.read_bytes() for file in files) else True
