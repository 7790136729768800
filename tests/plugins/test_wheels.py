"""The wheels: what is in them; each plugin works with the core alone, and with all others."""

from __future__ import annotations

import json
import os
import shutil
import site
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
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


def test_the_core_s_wheel_has_every_example_and_page_of_the_clone(tmp_path):
    (wheel,) = build(ROOT, tmp_path)
    with zipfile.ZipFile(wheel) as archive:
        pages = {name for name in archive.namelist() if name.startswith(PAGES)}
        inside = {
            name.removeprefix(INSIDE): archive.read(name)
            for name in archive.namelist()
            if name.startswith(INSIDE)
        }
    tracked = call("git", "ls-files", "examples", cwd=ROOT).splitlines()
    assert inside == {
        name.removeprefix("examples/"): (ROOT / name).read_bytes() for name in tracked
    }
    assert pages == {PAGES + page.name for page in (ROOT / "docs").glob("*.md")}


@pytest.mark.slow
def test_a_wheel_built_from_the_sdist_has_them_too(tmp_path):
    (sdist,) = build(ROOT, tmp_path, "--sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (source,) = (tmp_path / "unpacked").iterdir()
    call(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path / "again",
         source, cwd=tmp_path)  # fmt: skip
    (wheel,) = (tmp_path / "again").iterdir()
    names = zipfile.ZipFile(wheel).namelist()
    assert INSIDE + "quickstart.yaml" in names
    assert PAGES + "guards.md" in names
    assert INSIDE + "rlvr_hello/rlvr_hello.py" in names


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """The wheel of each distribution, by the plugin's name; the core's is ``core``."""
    found = {}
    for source in (ROOT, *PLUGINS):
        name = "core" if source == ROOT else source.name.removeprefix("rlvr_")
        (found[name],) = build(source, tmp_path_factory.mktemp(name))
    return found


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


ALONE = [["core", *USES.get(one, []), one] for one in
         (source.name.removeprefix("rlvr_") for source in PLUGINS)]  # fmt: skip
TOGETHER = ["core", *(source.name.removeprefix("rlvr_") for source in PLUGINS)]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("names", [["core"], *ALONE, TOGETHER], ids="+".join)
def test_wheels_work_in_an_empty_folder(names, wheels, others, tmp_path):
    bin_ = installed(names, wheels, others, tmp_path)
    empty = tmp_path / "empty"
    empty.mkdir()
    env = {"HF_HUB_OFFLINE": "1", "PYTHONPATH": ""}
    listed = json.loads(call(bin_ / "rlvr", "plugins", "list", "--json", cwd=empty, **env))
    assert {one["name"]: one["status"] for one in listed} == dict.fromkeys(names, "ok")
    for one in listed:
        assert Path(one["file"]).is_relative_to(tmp_path / "venv"), "from the wheel, not a clone"
    call(bin_ / "rlvr", "examples", "copy", "quickstart", cwd=empty, **env)
    for name in names[1:]:
        call(bin_ / "rlvr", "plugins", "show", name, cwd=empty, **env)
    # making the pages of bs4 takes ten minutes; its own tests do
    checked = set(names[1:]) - {"bs4"} if names == TOGETHER else set[str]()
    for name in checked:
        said = call(bin_ / "rlvr", "plugins", "check", name, cwd=empty, **env)
        assert " 0 broken" in said
