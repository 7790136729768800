"""``rlvr new``: what it writes works, and what it refuses leaves nothing behind."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml

from rlvr_core.api import ConfigError
from rlvr_core.plugins.registry import REGISTERING
from rlvr_core.testing.lab import Lab, install_plugin
from rlvr_devkit.conformance.checks import CHECKS
from rlvr_devkit.scaffold.kinds import TEMPLATES
from rlvr_devkit.scaffold.names import check_name
from rlvr_devkit.scaffold.package import render, write
from tests.support.tables import table

ROOT = Path(__file__).parents[3]


def name_of(kind):
    return f"my-{kind.replace('_', '-')}"


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """A folder with a package of every kind."""
    folder = tmp_path_factory.mktemp("packages")
    for kind in TEMPLATES:
        name = name_of(kind)
        write(render(kind, check_name(name)), folder / name)
    return folder


@pytest.fixture(scope="module")
def site(packages, tmp_path_factory):
    """The same as pip leaves them."""
    folder = tmp_path_factory.mktemp("site")
    for kind in TEMPLATES:
        name = name_of(kind)
        module = check_name(name).module
        source = (packages / name / f"{module}.py").read_text()
        install_plugin(folder, name, {f"{module}.py": source})
    return folder


def test_there_is_a_template_and_a_list_of_checks_for_every_hook_that_registers():
    without = {"verifier_pool", "forward_path"}
    assert set(TEMPLATES) == {*REGISTERING.values(), "observer"} - without
    assert set(CHECKS) == {*REGISTERING.values(), "plugin"}


@pytest.mark.parametrize("kind", TEMPLATES)
def test_a_package_keeps_its_promises_before_it_is_installed(kind, packages, tmp_path):
    done = Lab(tmp_path).rlvr("plugins", "check", str(packages / name_of(kind)))
    assert "0 broken, 0 unchecked" in done.stdout


@pytest.mark.slow
@pytest.mark.essential
def test_the_tests_of_all_packages_pass(packages, site):
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "rlvr_core.testing.fixtures", packages],
        env=os.environ | {"PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout


@pytest.mark.parametrize("kind", [kind for kind, one in TEMPLATES.items() if not one.shell])
def test_the_configuration_of_a_package_is_right(kind, packages, site):
    file = packages / name_of(kind) / "config.yaml"
    assert name_of(kind) in file.read_text()
    assert file.read_text().strip() in file.with_name("README.md").read_text()
    done = Lab(file.parent, site=site).rlvr("config", "check", "config.yaml")
    assert done.stdout.startswith("ok: config.yaml")


@pytest.mark.parametrize("kind", TEMPLATES)
def test_a_package_is_small_and_whole(kind, packages):
    folder, names = packages / name_of(kind), check_name(name_of(kind))
    files = {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}
    wanted = {"pyproject.toml", "README.md", ".gitignore", ".github/workflows/test.yml"}
    assert wanted | {f"{names.module}.py", f"tests/test_{names.module}.py"} <= files
    tree = ast.parse((folder / f"{names.module}.py").read_text())
    assert ast.get_docstring(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value = ast.Constant("")  # docstrings
    code = ast.unparse(tree).splitlines()
    assert 10 <= sum(line.strip() not in ("", "''") for line in code) <= 50
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["rlvr"] == {names.name: names.module}
    jobs = yaml.safe_load((folder / ".github/workflows/test.yml").read_text())["jobs"]
    runs = [step["run"] for step in jobs["test"]["steps"] if "run" in step]
    assert runs[-2:] == [f"rlvr plugins check {names.name}", "pytest"]
    assert len((folder / "README.md").read_text().splitlines()) <= 50


def test_the_code_is_as_ruff_wants_it(packages):
    for words in (["check", "-q"], ["format", "-q", "--check"]):
        for kind in TEMPLATES:
            done = subprocess.run(
                [sys.executable, "-m", "ruff", *words, "."],
                cwd=packages / name_of(kind),
                capture_output=True,
                text=True,
            )
            assert done.returncode == 0, done.stdout


def test_templates_are_in_the_wheel():
    devkit = ROOT / "plugins" / "rlvr_devkit"
    data = tomllib.loads((devkit / "pyproject.toml").read_text())["tool"]["setuptools"]
    patterns = data["package-data"]["rlvr_devkit"]
    templates = devkit / "rlvr_devkit" / "scaffold" / "templates"
    files = [file for file in templates.rglob("*") if file.is_file()]
    assert len(files) > 40
    for file in files:
        path = str(file.relative_to(devkit / "rlvr_devkit"))
        assert any(
            fnmatch(path, pattern) and path.count("/") == pattern.count("/") for pattern in patterns
        )


@pytest.mark.parametrize("name", ["verdict", "registrar", "a", "two_words", "x2"])
def test_names_that_the_code_uses_itself_are_no_trouble(name, tmp_path):
    lab = Lab(tmp_path)
    lab.rlvr("new", "verifier", name)
    assert "0 broken, 0 unchecked" in lab.rlvr("plugins", "check", f"./{name}").stdout


def test_kinds_may_be_written_as_elsewhere(tmp_path):
    lab = Lab(tmp_path)
    for kind, name in (("losses", "one"), ("eval-task", "two"), ("observers", "three")):
        lab.rlvr("new", kind, name)
    done = lab.rlvr("new", "verifer", "four", check=2)
    assert "there is no kind 'verifer'" in done.stderr
    assert "did you mean: verifier?" in done.stderr


@pytest.mark.parametrize(("name", "what", "remedy"), table(__file__, "bad names"))
def test_bad_names_are_refused_with_what_to_do(name, what, remedy, tmp_path):
    done = Lab(tmp_path).rlvr("new", "verifier", name, check=2)
    assert f"a plugin cannot be called '{name}'" in done.stderr
    assert what in done.stderr
    assert remedy in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_name_of_an_installed_plugin_is_taken(tmp_path, installed_plugin):
    source = "from rlvr_core.api import hookimpl\n\n@hookimpl\ndef run_finished(): ...\n"
    lab = Lab(tmp_path, site=installed_plugin("toy", {"rlvr_toy.py": source}))
    done = lab.rlvr("new", "verifier", "toy", check=2)
    assert "rlvr-toy 1.0 is installed, a plugin of this name" in done.stderr
    assert "pip uninstall rlvr-toy" in done.stderr


def test_a_folder_with_something_in_it_is_left_alone(tmp_path):
    (tmp_path / "shout").mkdir()
    (tmp_path / "shout" / "mine.txt").write_text("mine")
    done = Lab(tmp_path).rlvr("new", "verifier", "shout", check=2)
    assert "there is something already" in done.stderr
    assert "at shout" in done.stderr
    assert "--into" in done.stderr
    assert [file.name for file in tmp_path.rglob("*")] == ["shout", "mine.txt"]


def test_an_empty_folder_is_used(tmp_path):
    (tmp_path / "shout").mkdir()
    Lab(tmp_path).rlvr("new", "verifier", "shout")
    assert (tmp_path / "shout" / "pyproject.toml").is_file()
    assert [file.name for file in tmp_path.iterdir()] == ["shout"]


@pytest.mark.parametrize("place", ["missing", "file"])
def test_a_place_that_cannot_be_written_is_named(place, tmp_path):
    (tmp_path / "file").write_text("")
    done = Lab(tmp_path).rlvr("new", "loss", "mine", "--into", place, check=2)
    assert "the package cannot be written" in done.stderr
    assert f"at {place}/mine" in done.stderr
    assert "--into FOLDER" in done.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_a_disk_that_is_full_leaves_no_part_of_a_package(tmp_path, monkeypatch):
    files, real = render("loss", check_name("mine")), Path.write_text

    def full(self, text, **options):
        if self.name == "README.md":
            raise OSError(28, "No space left on device")
        return real(self, text, **options)

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(ConfigError, match="No space left on device"):
        write(files, tmp_path / "mine")
    assert list(tmp_path.iterdir()) == []


def test_the_commands_help_imports_no_torch():
    code = (
        "import sys; from rlvr_core.cli.main import main; main(sys.argv[1:]); "
        "sys.exit('torch' in sys.modules)"
    )
    for words in (["new", "--help"], ["plugins", "check", "--help"]):
        done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "sampler" in done.stdout


CONFIGS = [kind for kind, template in TEMPLATES.items() if not template.shell]
ROWS = {
    "verifier": [{"question": f"3 + {n} = ", "answer": 3 + n} for n in range(8)],
    "environment": [{"question": f"From 1 to {n}. Which?\n", "secret": 7} for n in range(8, 16)],
    "tool_format": [
        {"question": f"Add 3 and {n}.", "calls": [{"name": "add", "arguments": {"a": 3, "b": n}}]}
        for n in range(8)
    ],
}
"""The problems of one's own that the configurations of some kinds read."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[pytest.mark.essential] * (kind in ("verifier", "loss")))
        for kind in CONFIGS
    ],
)
@pytest.mark.timeout(1000)
def test_the_configuration_of_a_package_runs_without_a_warning(kind, packages, site, tmp_path):
    file = packages / name_of(kind) / "config.yaml"
    if kind in ROWS:
        rows = "".join(f"{json.dumps(row)}\n" for row in ROWS[kind])
        file.with_name("problems.jsonl").write_text(rows)
    changes = {"model.path": "tiny:checks/commands", "train.steps": 2, "run.dir": tmp_path}
    words = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
    done = Lab(file.parent, site=site).rlvr("run", file.name, *words, timeout=900)
    (manifest,) = tmp_path.glob("*/run.json")
    fields = json.loads(manifest.read_text())
    assert fields["outcome"] == "finished"
    assert fields.get("warnings", []) == []
    assert "warning" not in (done.stdout + done.stderr).lower()
