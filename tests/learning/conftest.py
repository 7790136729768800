"""The rlvr command, as the tests of conversations run it."""

import os
from pathlib import Path

import pytest

from rlvr_core.testing.fork_server import run_rlvr

LIMIT = 1700
"""Seconds a run may take: ten times what it takes on a quiet machine."""


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(LIMIT + 100))


@pytest.fixture(scope="session")
def rlvr():
    """Runs the command in a folder with a cache; its output."""

    def run(*arguments, cwd, cache, timeout=LIMIT):
        env = os.environ | {"RLVR_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
        done = run_rlvr(*arguments, cwd=cwd, env=env, timeout=timeout)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run
