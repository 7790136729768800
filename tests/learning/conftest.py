"""The rlvr command, as the tests of conversations run it."""

import os
import subprocess
import sys

import pytest


@pytest.fixture(scope="session")
def rlvr():
    """Runs the command in a folder with a cache; its output."""

    def run(*arguments, cwd, cache, timeout=550):
        done = subprocess.run(
            [sys.executable, "-m", "rlvr_core.cli.main", *map(str, arguments)],
            cwd=cwd,
            env=os.environ | {"RLVR_CACHE": str(cache), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run
