"""A third party's plugin: installed by pip into a clean environment, listed, tested and used."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
import venv
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PIP_OFFLINE = ("--no-index", "--no-deps", "--no-build-isolation")
HELLO = Path(__file__).parents[3] / "examples" / "rlvr_hello"


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    """The ``bin`` of an environment that sees this one's packages, with rlvr-hello installed."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    bin_ = folder / "venv" / "bin"
    packages = subprocess.check_output(
        [bin_ / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True
    ).strip()
    # addsitedir also runs this environment's own .pth files, which editable installs need.
    (Path(packages) / "outer.pth").write_text(
        f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
    )
    source = folder / "source"  # building writes beside the sources
    shutil.copytree(HELLO, source, ignore=shutil.ignore_patterns("build", "*.egg-info"))
    subprocess.run(
        [bin_ / "python", "-m", "pip", "install", *PIP_OFFLINE, str(source)],
        check=True,
        capture_output=True,
    )
    return bin_


def run(clean, *args, cwd=None):
    env = {key: value for key, value in os.environ.items() if not key.startswith("RLVR_PLUGINS")}
    env.pop("PYTHONPATH", None)
    return subprocess.run(
        [clean / "python", "-m", *args],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=cwd,
        env={**env, "NO_COLOR": "1", "OMP_NUM_THREADS": "1"},
    )


def test_it_is_listed(clean):
    done = run(clean, "rlvr_core.cli.main", "plugins", "list", "--json", cwd=clean)
    assert done.returncode == 0, done.stderr
    plugins = {record["name"]: record for record in json.loads(done.stdout)}
    hello = plugins["hello"]
    assert (hello["distribution"], hello["version"]) == ("rlvr-hello", "0.1.0")
    assert (hello["status"], hello["problems"]) == ("ok", [])
    assert hello["components"] == [{"kind": "verifier", "name": "hello/greeting"}]
    assert Path(hello["file"]).is_relative_to(clean.parent)
    assert "hello" in run(clean, "rlvr_core.cli.main", "--help", cwd=clean).stdout


def test_its_own_test_passes_there(clean, tmp_path):
    shutil.copytree(HELLO / "tests", tmp_path / "tests")
    done = run(clean, "pytest", "-q", "-p", "no:cacheprovider", "tests", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "9 passed" in done.stdout  # one a check of a verifier


def test_it_verifies_a_file(clean):
    args = ["verify", "hello/greeting", str(HELLO / "answers.jsonl"), "--with", "nameless=0.1"]
    done = run(clean, "rlvr_core.cli.main", *args, cwd=clean)
    assert done.returncode == 0, done.stderr
    verdicts = [json.loads(line) for line in done.stdout.splitlines()]
    assert [verdict["id"] for verdict in verdicts] == ["greet_1", "greet_2", "greet_3"]
    assert [verdict["score"] for verdict in verdicts] == [1.0, 0.1, 0.0]
    assert [verdict["passed"] for verdict in verdicts] == [True, False, False]


CONFIG = """\
model: {path: model}
data:
  sources:
    - use: jsonl
      with: {path: people.jsonl, template: "Greet {name}.", verifier: hello/greeting}
sampler: {use: shuffle, with: {drop_zero_variance: false}}
sampling: {n: 2, max_tokens: 24}
rewards: [{use: hello/greeting, with: {greeting: boxed}}]
train: {steps: 2, prompts_per_step: 2, warmup_steps: 0}
"""
"""The tiny model says "boxed" to everybody, and nobody's name."""


def test_it_is_used_in_a_run(clean, tmp_path):
    make = ["tiny-model", "model", "--task", "math/arithmetic", "--steps", "40"]
    made = run(clean, "rlvr_core.cli.main", *make, cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    (tmp_path / "run.yaml").write_text(CONFIG)
    (tmp_path / "people.jsonl").write_text('{"name": "Ada"}\n{"name": "Grace"}\n{"name": "Emmy"}\n')
    done = run(clean, "rlvr_core.cli.main", "run", "run.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    show = run(clean, "rlvr_core.cli.main", "show", "last", "--json", cwd=tmp_path)
    shown = json.loads(show.stdout)
    assert (shown["outcome"], shown["steps"]) == ("finished", 2)
    assert 0 < max(shown["curve"]["reward"]) <= 0.25
    (record,) = (tmp_path / "runs").glob("*/run.json")
    assert json.loads(record.read_text())["versions"]["plugins"]["rlvr-hello"] == "0.1.0"
