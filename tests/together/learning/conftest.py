"""The rlvr command, as the tests of conversations run it."""

import json
import os
from pathlib import Path

import pytest

from rlvr_core.record.jsonl import read_jsonl
from rlvr_core.testing.fork_server import run_rlvr

EXAMPLES = Path(__file__).parents[3] / "examples"
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


@pytest.fixture(scope="module")
def cache_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def learns(rlvr, tmp_path):
    """Trains a tiny model by an example; the folder of the run, when it has learnt the task."""

    def run(example, task, *, seed, cache, before, after):
        options = ["--set", f"run.seed={seed}", "--set", f"model.path=tiny:{task}?seed={seed}"]
        path = EXAMPLES / example
        rlvr("run", path, "--display", "none", *options, cwd=tmp_path, cache=cache)
        shown = json.loads(rlvr("show", "last", "--json", cwd=tmp_path, cache=cache))
        assert shown["heldout"]["before"] <= before
        assert shown["heldout"]["after"] >= after
        assert shown["ledger"]["balanced"] is True
        assert shown["parity"]["k3"] < 1e-7
        (folder,) = (tmp_path / "runs").iterdir()
        return folder

    return run


@pytest.fixture
def trained_groups():
    """Reads the groups that a run was trained on; none of their problems is a held-out one."""

    def read(run):
        # with the segments that were closed
        groups = list(read_jsonl(run / "traces" / "rollouts.jsonl"))
        answers = [
            row for path in (run / "evals").glob("*-step*.jsonl") for row in read_jsonl(path)
        ]
        assert answers
        held_out = {row["problem_id"] for row in answers}
        assert not held_out & {group["problem_id"] for group in groups}
        return groups

    return read
