"""What all tests share: the files of ``-m gpu``, the path of helpers, and Hypothesis' profile."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

with contextlib.suppress(ImportError):  # a machine with a GPU may lack it
    from hypothesis import settings

    # make test: a quarter of the examples of the profile "ci", with which make test-long runs
    settings.register_profile("quick", settings.get_profile("ci"), max_examples=25)


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
