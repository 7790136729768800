"""What the distributions say of themselves agrees."""

import re
import tomllib
from pathlib import Path

import pytest

from rlvr_core.plugins.first_party import FIRST_PARTY

ROOT = Path(__file__).resolve().parents[3]
PLUGINS = sorted((ROOT / "plugins").glob("rlvr_*"))
FOLDERS = [ROOT, *PLUGINS]


def project(folder):
    return tomllib.loads((folder / "pyproject.toml").read_text())["project"]


def test_each_first_party_plugin_is_a_distribution_here():
    assert len(FIRST_PARTY) == 14
    assert {project(folder)["name"] for folder in PLUGINS} == set(FIRST_PARTY.values())
    for folder in PLUGINS:
        (plugin,) = project(folder)["entry-points"]["rlvr"]
        assert FIRST_PARTY[plugin] == project(folder)["name"] == folder.name.replace("_", "-")


def test_the_extra_all_of_the_core_brings_every_one():
    extra = project(ROOT)["optional-dependencies"]["all"]
    assert sorted(re.match("[a-z0-9-]+", line)[0] for line in extra) == sorted(FIRST_PARTY.values())


def test_all_carry_one_version_and_so_does_the_citation():
    versions = {project(folder)["version"] for folder in FOLDERS}
    (version,) = versions
    assert f'__version__ = "{version}"' in (ROOT / "rlvr_core" / "__init__.py").read_text()
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## [{version}]\n" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_licence_is_in_each_and_the_same(folder):
    assert project(folder)["license"] == "Apache-2.0"
    assert project(folder)["license-files"] == ["LICENSE"]
    assert (folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


@pytest.mark.parametrize("folder", PLUGINS, ids=lambda folder: folder.name)
def test_a_plugin_has_a_readme_under_its_name(folder):
    assert project(folder)["readme"] == "README.md"
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {project(folder)['name']}\n")


@pytest.mark.parametrize("folder", PLUGINS, ids=lambda folder: folder.name)
def test_a_plugin_accepts_all_patches_of_this_minor_version_and_no_other(folder):
    major, minor, _ = map(int, project(folder)["version"].split("."))
    wanted = f">={major}.{minor},<{major}.{minor + 1}"
    ours = [line for line in project(folder)["dependencies"] if line.startswith("rlvr-")]
    assert "rlvr-core" + wanted in ours
    assert {re.sub(r"^[a-z0-9-]+", "", line) for line in ours} == {wanted}


def test_the_core_bounds_transformers():
    assert "transformers>=5.16,<6" in project(ROOT)["dependencies"]
