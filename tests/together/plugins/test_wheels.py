"""The wheels: what is in them; each plugin works with the core alone, and with all others."""

from __future__ import annotations

import json
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.support.wheels import INSIDE, PAGES, PLUGINS, ROOT, USES, build, call, installed, others

__all__ = ["others"]


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
    # making the pages of bs4 takes ten minutes; what needs options is checked by its own tests
    checked = ("math", "ifeval", "code", "gym", "sagemaker") if names == TOGETHER else ()
    for name in checked:
        said = call(bin_ / "rlvr", "plugins", "check", name, cwd=empty, **env)
        assert " 0 broken" in said
