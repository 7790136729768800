"""The rlvr command, as the tests of conversations run it."""

import os

import pytest

from rlvr_core.testing.fork_server import run_rlvr


@pytest.fixture(scope="session")
def rlvr():
    """Runs the command in a folder with a cache; its output."""

    def run(*arguments, cwd, cache, timeout=550):
        env = os.environ | {"RLVR_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
        done = run_rlvr(*arguments, cwd=cwd, env=env, timeout=timeout)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run
