"""Wheels for a machine with a GPU and no network: what it lacks, what those ask for, no more."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from gpu_wheels import (  # type: ignore
    PROJECTS,
    ROOT,
    RefusedError,
    Target,
    asked_for,
    canonicalize_name,
    collect,
    packages_of,
    summary,
)

# wheel by name: version, and what its metadata asks for
SHELF = {
    "a": ("1.5", ["b>=2", "extra-of-c; extra == 'more'", "old; python_version < '3.12'"]),
    "b": ("2.1", ["c[more]", "w; sys_platform == 'win32'", "arm; platform_machine != 'x86_64'"]),
    "c": ("0.9", ["there", "a", "d; extra == 'more'"]),
    "d": ("3.0", []),
    "there": ("7.0", ["never"]),
    "heavy": ("1.0", ["b"]),
}  # fmt: skip


@pytest.fixture
def shop(tmp_path):
    """Makes the wheels of the shelf, and notes which were asked for."""
    asked = []

    def fetch(name):
        asked.append(name)
        version, needs = SHELF[name]
        wheel = tmp_path / f"{name}-{version}-py3-none-any.whl"
        lines = [
            f"Name: {name}",
            f"Version: {version}",
            *(f"Requires-Dist: {one}" for one in needs),
        ]
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(f"{name}-{version}.dist-info/METADATA", "\n".join(lines))
            archive.writestr("vendored/other-1.0.dist-info/METADATA", "Requires-Dist: never")
        return wheel

    fetch.asked = asked
    return fetch


def target(python="3.12", **has):
    return Target(python, ("manylinux_2_28_x86_64",), has)


def collected(shop, machine, *roots, left_out=()):
    return sorted(collect([Requirement(one) for one in roots], machine, left_out, shop))


def test_what_the_machine_lacks_and_what_that_asks_for_each_once(shop):
    assert collected(shop, target(there="1.0"), "a", "there") == ["a", "b", "c", "d"]
    assert sorted(shop.asked) == ["a", "b", "c", "d"]


def test_markers_are_those_of_the_machine(shop):
    with pytest.raises(KeyError, match="old"):  # not on the shelf, and asked for by Python 3.11
        collected(shop, target("3.11", there=None), "a")


def test_a_version_that_is_too_old_is_brought_along(shop):
    assert collected(shop, target(there="6.9"), "there>=6") == []
    assert collected(shop, target(d="2.9"), "d>=3") == ["d"]
    assert collected(shop, target(d=None), "d>=3") == []  # no version is known


def test_what_is_left_out_brings_nothing_with_it(shop):
    assert collected(shop, target(), "heavy", "d", left_out=("heavy",)) == ["d"]


@pytest.mark.parametrize(
    ("has", "said"), [({}, "nothing of it"), ({"torch": "2.5.1+cu121"}, r"has 2\.5\.1\+cu121")]
)
def test_torch_is_never_fetched(shop, has, said):
    with pytest.raises(RefusedError, match=said):
        collected(shop, target(**has), "torch>=2.9")
    assert collected(shop, target(torch="2.11.0+cu130"), "torch>=2.9") == []


def test_a_pin_that_does_not_fulfil_what_is_asked_is_refused(shop):
    with pytest.raises(
        RefusedError, match=r"the project asks for d>=4, and 3\.0 is what is pinned"
    ):
        collected(shop, target(), "d>=4")


def test_lists_of_packages_as_pip_writes_them():
    assert packages_of(
        "Package           Version\n----------------- -------------\nHugging_Face.Hub  1.2\n"
        "torch             2.11.0+cu130\n"
    ) == {"hugging-face-hub": "1.2", "torch": "2.11.0+cu130"}
    assert packages_of("# said\nnumpy==2.4.0\nbuilt @ file:///x\n-e git+x\ntqdm\n") == {
        "numpy": "2.4.0", "built": None, "tqdm": None,
    }  # fmt: skip


def test_more_than_the_limit_is_refused_by_name(tmp_path):
    wheels = {}
    for name, size in (("small", 1), ("large", 3)):
        wheels[name] = tmp_path / f"{name}-1.whl"
        wheels[name].write_bytes(b"x" * size * 2**20)
    with pytest.raises(
        RefusedError, match=r"2 wheels are 4\.0 MiB.*largest: large 3\.0, small 1\.0"
    ):
        summary(wheels, 3.9, tmp_path)
    said = summary(wheels, 4, tmp_path).splitlines()
    assert said[0].startswith("2 wheels, 4.0 MiB")
    assert said[1].split()[:4] == ["python3", "-m", "pip", "install"]
    assert said[2].endswith("--no-build-isolation -e . -e ./plugins/rlvr_math")


def test_every_package_of_the_projects_has_a_pin_or_is_the_machines():
    machine = packages_of((ROOT / "tools" / "gpu_machine.txt").read_text())
    pins = packages_of((ROOT / "constraints" / "constraints.txt").read_text())
    names = {canonicalize_name(one.name) for one in asked_for(PROJECTS)}
    assert {"torch", "pydantic", "pytest-timeout", "setuptools", "pint"} <= names
    assert "rlvr-core" not in names
    assert names - set(machine) - set(pins) == set()


# stands for a machine on which they are not installed
BLOCK = """
from importlib.machinery import PathFinder

found = PathFinder.find_spec

class Without:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        absent = name.split(".")[0] in {"datasets", "pyarrow", "pandas"}
        return None if absent else found(name, path, target)

PathFinder.find_spec = Without.find_spec
"""


@pytest.mark.slow
def test_a_run_and_the_tests_of_a_gpu_do_without_what_is_left_out(tmp_path):
    """On Python's path, so that every process of the run is without them."""
    (tmp_path / "sitecustomize.py").write_text(BLOCK)
    run = [
        "-m", "rlvr_core.cli.main", "run", "examples/quickstart.yaml",
        "--set", "model.path=tiny:math/arithmetic", "--set", f"run.dir={tmp_path}",
        "--set", "train.steps=1",
    ]  # fmt: skip
    tests = [
        "-m",
        "pytest",
        "-q",
        "-m",
        "gpu",
        "tests/train/test_offload.py",
        "tests/train/test_packed.py",
    ]
    for words in (run, tests):
        done = subprocess.run(
            [sys.executable, *words],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-1500:] + done.stderr[-3000:]
