"""Other Pythons than the one that runs the tests: every file compiles, and the wheels work.

Compiled dependencies are at hand for this environment's Python alone, so the others run what needs
none of them. A Python named in RLVR_TEST_PYTHONS (paths, separated as in PATH) that has the
dependencies trains two steps too.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from test_wheels import ROOT, build  # type: ignore

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

VERSIONS = ("3.12", "3.13")
PURE = ("click", "pluggy", "yaml")
"""What the commands without compiled dependencies import; yaml does without its compiled part."""
COMPILE = """
import pathlib, sys
files = [file for folder in sys.argv[1:] for file in pathlib.Path(folder).rglob("*.py")]
for file in files:
    compile(file.read_text(encoding="utf-8"), str(file), "exec")
print(len(files))
"""
WHOLE = "import datasets, re2, jsonschema, plotext, pydantic, torch, transformers"


def _version(python):
    """The version that an interpreter says; empty where it does not run."""
    words = [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _candidates(version):
    named = os.environ.get("RLVR_TEST_PYTHONS", "")
    yield from filter(None, named.split(os.pathsep))
    if found := shutil.which(f"python{version}"):
        yield found
    if pyenv := shutil.which("pyenv"):
        root = subprocess.run([pyenv, "root"], capture_output=True, text=True, check=False)
        for folder in sorted(Path(root.stdout.strip(), "versions").glob(f"{version}.*")):
            yield str(folder / "bin" / f"python{version}")


@pytest.fixture(params=VERSIONS)
def python(request):
    """A Python of the version; skipped where there is none."""
    for one in _candidates(request.param):
        if _version(one) == request.param:
            return one
    return pytest.skip(
        f"no Python {request.param} on PATH, in pyenv or in RLVR_TEST_PYTHONS: not tried with it"
    )


def test_every_file_compiles_without_a_warning(python):
    folders = ["rlvr_core", "plugins", "examples", "tools", "benchmarks", "docs", "tests"]
    words = [python, "-I", "-W", "error", "-c", COMPILE, *(str(ROOT / one) for one in folders)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 1000


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with the wheels of rlvr-core and rlvr-math, and the dependencies that are Python."""
    folder = tmp_path_factory.mktemp("installed")
    for source in (ROOT, ROOT / "plugins" / "rlvr_math"):
        (wheel,) = build(source, tmp_path_factory.mktemp("wheel"))
        words = ["install", "--quiet", "--no-index", "--no-deps", "--target", folder, wheel]
        subprocess.run([sys.executable, "-m", "pip", *words], check=True)
    return folder


@pytest.fixture
def rlvr(python, installed, tmp_path):
    """Runs rlvr by the other Python in an empty folder, with warnings as errors."""
    pure = tmp_path / "pure"
    pure.mkdir()
    for name in PURE:
        module = Path(__import__(name).__file__).parent
        # without what is compiled for this Python
        shutil.copytree(module, pure / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    empty = tmp_path / "empty"
    empty.mkdir()

    def run(*words, strict=True):
        more = [installed] if not strict else [installed, pure]
        return subprocess.run(
            [python, *(["-W", "error"] if strict else []), "-m", "rlvr_core.cli.main", *words],
            cwd=empty,
            env={
                **{key: value for key, value in os.environ.items() if key != "VIRTUAL_ENV"},
                "PYTHONPATH": os.pathsep.join(map(str, more)),
                "OMP_NUM_THREADS": "1",
                "HF_HUB_OFFLINE": "1",
            },
            capture_output=True,
            text=True,
            check=False,
        )

    run.folder = empty
    return run


def test_help_examples_and_documentation_from_wheels(rlvr):
    told = {}
    for words in (["--help"], ["examples", "list"], ["examples", "copy", "quickstart"],
                  ["docs"], ["docs", "tutorial"]):  # fmt: skip
        done = rlvr(*words)
        assert (done.returncode, done.stderr) == (0, ""), words
        told[" ".join(words)] = done.stdout
    assert "Start with: rlvr examples copy quickstart" in told["--help"]
    copied = (rlvr.folder / "examples" / "quickstart.yaml").read_text()
    assert copied == (ROOT / "examples" / "quickstart.yaml").read_text()
    assert told["docs tutorial"].startswith("# Ten minutes")
    assert rlvr("docs", "gards").returncode == 2


def test_two_steps_of_the_quick_start(rlvr, python):
    if subprocess.run([python, "-c", WHOLE], capture_output=True, check=False).returncode:
        pytest.skip(f"{python} lacks rlvr's compiled dependencies: nothing is trained with it")
    assert rlvr("examples", "copy", "quickstart", strict=False).returncode == 0
    checked = rlvr("config", "check", "examples/quickstart.yaml", strict=False)
    assert checked.returncode == 0, checked.stderr
    done = rlvr("run", "examples/quickstart.yaml", "--set", "train.steps=2", "--set",
                "eval.tasks=[]", "--set", "train.warmup_steps=0", strict=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(list(rlvr.folder.glob("runs/*/checkpoints/step000002"))) == 1
