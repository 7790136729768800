"""A newcomer's evening from wheels, in an empty folder, by what help and documentation print."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest

from tests.support.wheels import ROOT, build, call, installed, others

__all__ = ["others"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

SHORT = ["--set", "train.steps=1", "--set", "train.warmup_steps=0", "--set", "eval.tasks=[]"]


@pytest.fixture
def evening(others, tmp_path):
    """Runs a command in an empty folder, with wheels of what an evening needs."""
    plugins = ("devkit", "env", "math")
    sources = {"core": ROOT} | {name: ROOT / "plugins" / f"rlvr_{name}" for name in plugins}
    wheels = {name: build(source, tmp_path / name)[0] for name, source in sources.items()}
    bin_ = installed([*sources], wheels, others, tmp_path)
    folder = tmp_path / "evening"
    folder.mkdir()
    path = f"{bin_}{os.pathsep}{os.environ['PATH']}"

    def run(*words):
        return call(bin_ / words[0], *words[1:], cwd=folder, PATH=path, PYTHONPATH="",
                    HF_HUB_OFFLINE="1")  # fmt: skip

    run.bin = bin_
    return run


def test_an_evening(evening):
    where = evening("python", "-c", "import rlvr_core; print(rlvr_core.__file__)")
    assert Path(where.strip()).is_relative_to(evening.bin.parent), "from the wheel, not a clone"

    # the help says how to begin
    begin = re.search(r"Start with: (.+)", evening("rlvr", "--help"))[1]
    copy, first = (shlex.split(one) for one in begin.split("; "))
    assert "next: rlvr run examples/quickstart.yaml" in evening(*copy)
    evening(*first, *SHORT)

    # the pages are in the wheel
    assert evening("rlvr", "docs", "tutorial").startswith("# ")

    # a plugin: the command says what comes next
    told = evening("rlvr", "new", "verifier", "loud")
    steps = [shlex.split(line) for line in re.findall(r"^  ((?:pip|rlvr|python) .+)$", told, re.M)]
    assert [step[0] for step in steps] == ["pip", "rlvr", "python"]
    install, check, test = steps
    offline = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    evening("python", "-m", *install, *offline)
    assert " 0 broken" in evening(*check)
    assert " passed" in evening(*test, "-p", "no:cacheprovider")
    page_of_it = shlex.split(re.search(r"; see (rlvr docs \S+)", told)[1])
    assert evening(*page_of_it).startswith("# Verifiers")
