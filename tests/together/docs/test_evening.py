"""A newcomer's evening from wheels, in an empty folder, by what help and documentation print."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import urllib.request
from pathlib import Path

import pytest

from tests.support.wheels import ROOT, build, call, installed, others

__all__ = ["others"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

SHORT = ["--set", "train.steps=1", "--set", "train.warmup_steps=0", "--set", "eval.tasks=[]"]
OWN = """\
run: {name: own}
model: {path: "tiny:math/arithmetic"}
data:
  sources:
    - use: core/csv
      with: {path: table.csv, delimiter: ";", prompt: frage, spec: {answer: loesung}}
rewards:
  - use: ./my_reward.py:correct
sampling: {n: 4, max_tokens: 44}
train: {steps: 2, prompts_per_step: 2, lr: 7.0e-4, warmup_steps: 0}
"""
SWEEP = """\
name: rates
config: own.yaml
parameters:
  train.lr: [7.0e-4, 7.0e-5]
metric: pass_rate
direction: maximize
"""


@pytest.fixture
def evening(others, tmp_path):
    """Runs a command in an empty folder, with wheels of what an evening needs."""
    plugins = ("cluster", "devkit", "doctor", "env", "lab", "math", "view")
    sources = {"core": ROOT} | {name: ROOT / "plugins" / f"rlvr_{name}" for name in plugins}
    wheels = {name: build(source, tmp_path / name)[0] for name, source in sources.items()}
    bin_ = installed([*sources], wheels, others, tmp_path)
    folder = tmp_path / "evening"
    folder.mkdir()
    path = f"{bin_}{os.pathsep}{os.environ['PATH']}"

    def run(*words):
        return call(bin_ / words[0], *words[1:], cwd=folder, PATH=path, PYTHONPATH="",
                    HF_HUB_OFFLINE="1")  # fmt: skip

    run.bin, run.folder = bin_, folder
    return run


def fence(page, language):
    return re.search(rf"^```{language}\n(.*?)^```$", page, re.M | re.S)[1]


def test_an_evening(evening):
    folder = evening.folder
    where = evening("python", "-c", "import rlvr_core; print(rlvr_core.__file__)")
    assert Path(where.strip()).is_relative_to(evening.bin.parent), "from the wheel, not a clone"

    # the help says how to begin
    begin = re.search(r"Start with: (.+)", evening("rlvr", "--help"))[1]
    copy, first = (shlex.split(one) for one in begin.split("; "))
    assert "next: rlvr run examples/quickstart.yaml" in evening(*copy)
    evening(*first, *SHORT)

    # the tutorial, as the wheel has it: a reward of one's own, tried, and a run with it
    page = evening("rlvr", "docs", "tutorial")
    (folder / "my_reward.py").write_text(fence(page, "python"))
    (folder / "answers.jsonl").write_text(fence(page, "json"))
    (folder / "mine.yaml").write_text(fence(page, "yaml"))
    tried = evening("rlvr", "verify", "./my_reward.py:correct", "answers.jsonl")
    assert [json.loads(line)["passed"] for line in tried.splitlines()] == [True, False]
    evening("rlvr", "run", "mine.yaml", *SHORT)

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

    # a table of one's own, with columns of one's own, twice
    rows = "".join(f"{n};What is {n}+{n + 1}?;{2 * n + 1}\n" for n in range(10, 18))
    (folder / "table.csv").write_text(f"nr;frage;loesung\n{rows}")
    (folder / "own.yaml").write_text(OWN)
    assert "rewards: ./my_reward.py:correct" in evening("rlvr", "config", "check", "own.yaml")
    (folder / "sweep.yaml").write_text(SWEEP)
    table = evening("rlvr", "sweep", "sweep.yaml")
    assert table.count("finished") == 2
    assert (folder / "sweeps" / "rates" / "report.html").stat().st_size > 100_000
    one, two = (str(next(folder.glob(f"sweeps/rates/trial00{n}/seed0/rates-*"))) for n in (0, 1))
    assert "train.lr: 0.0007 and 7e-05" in evening("rlvr", "diff", one, two)
    evening("rlvr", "report", one, two, "--out", "both.html")
    assert "rates-001" in (folder / "both.html").read_text()

    # talk with it, and look at all of it
    assert evening("rlvr", "chat", one, "--prompt", "What is 12+34?").strip()
    assert "mine" in evening("rlvr", "show", "mine")
    viewed(evening)


def viewed(evening):
    """The viewer says where it is, shows the runs there, and ends with Ctrl-C."""
    words = [evening.bin / "rlvr", "view", "--port", "0"]
    env = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": ""}
    with subprocess.Popen(words, cwd=evening.folder, env=env, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT) as server:  # fmt: skip
        try:
            said = iter(server.stdout.readline, "")
            address = next(found[0] for line in said if (found := re.search(r"http://\S+", line)))
            with urllib.request.urlopen(address) as answer:
                page = answer.read().decode()
            assert "quickstart-" in page
            assert "mine-" in page
        finally:
            server.send_signal(signal.SIGINT)
