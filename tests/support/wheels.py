"""Builds the project's wheels, and installs some of them into new environments."""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLUGINS = sorted((ROOT / "plugins").glob("rlvr_*"))
INSIDE = "rlvr_core/examples/files/"
PAGES = "rlvr_core/cli/manual/files/"
NOT_SOURCE = shutil.ignore_patterns("__pycache__", "*.egg-info", "build", "runs", ".*", "tests")
USES = {  # what a plugin declares beside the core
    "bs4": ["code", "env"],
    "devkit": ["env"],
    "doctor": ["guards"],
    "sagemaker": ["cluster"],
}


def call(*words, cwd, **env):
    done = subprocess.run(
        list(map(str, words)),
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", **env},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(source, folder, what="--wheel"):
    """Build from a copy of the sources: building writes beside them."""
    copy = folder / "source" / source.name
    if source == ROOT:
        copy.mkdir(parents=True)
        for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, copy)
        for name in ("rlvr_core", "examples", "docs"):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns(
                "__pycache__", "*.egg-info", "build", "runs"))  # fmt: skip
    else:
        shutil.copytree(source, copy, ignore=NOT_SOURCE)
    words = ["-m", "build", what, "--no-isolation", "--outdir", folder / "dist", copy]
    call(sys.executable, *words, cwd=folder)
    return sorted((folder / "dist").iterdir())


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    """A folder with all packages of this environment but rlvr's own."""
    folder = tmp_path_factory.mktemp("others")
    own = sysconfig.get_path("purelib")
    for place in [*site.getsitepackages(), *(one for one in sys.path if "site-packages" in one)]:
        for one in Path(place).iterdir():
            ours = one.name.lower().startswith(("rlvr", "__editable__")) or one.suffix == ".pth"
            if not ours and not (folder / one.name).exists():
                (folder / one.name).symlink_to(one)
    assert Path(own).is_dir()
    return folder


def installed(names, wheels, others, folder):
    """The ``bin`` of a new environment with these wheels, and no other part of rlvr."""
    call(sys.executable, "-m", "venv", "--without-pip", folder / "venv", cwd=folder)
    python = folder / "venv" / "bin" / "python"
    purelib = call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))",
                   cwd=folder).strip()  # fmt: skip
    (Path(purelib) / "others.pth").write_text(f"{others}\n")
    call(python, "-m", "pip", "install", "--no-index", "--no-deps", "--quiet",
         *(wheels[name] for name in names), cwd=folder)  # fmt: skip
    return python.parent
