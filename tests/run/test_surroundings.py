"""What verdicts depend on beside the verifier's own code is found in its code."""

import os
import sys

import pytest

from rlvr_core.builtin.provenance import surroundings as module
from rlvr_core.builtin.provenance.surroundings import surroundings

CODE = """
import json, os, pathlib
import sympy
import near_library

TABLE = pathlib.Path(__file__).parent / "aliases.json"
NOT_A_FILE = "no-such-file.json"

def judge(text):
    import {package}.inner
    from .inner import helper
    if os.environ.get("LENIENT") or os.getenv("API_TOKEN") or os.environ["MODE"]:
        return True
"""


@pytest.fixture
def found(tmp_path, monkeypatch, request):
    """A package with a verifier, a table, and a library that is no distribution."""
    package = f"judging_{request.node.name.partition('[')[0][-20:]}"
    folder = tmp_path / package
    folder.mkdir()
    for name, text in {
        "__init__.py": "",
        "verifiers.py": CODE.format(package=package),
        "inner.py": "helper = 1\n",
        "aliases.json": "{}",
    }.items():
        (folder / name).write_text(text)
    (tmp_path / "near_library.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("LENIENT", "API_TOKEN", "MODE"):
        monkeypatch.delenv(name, raising=False)
    yield lambda: surroundings("acme/judge", f"{package}.verifiers:judge")
    sys.modules.pop(package, None)


def test_libraries_files_and_variables_are_named(found):
    import sympy

    assert found().keys() == {
        "file aliases.json", "library near_library", "library sympy",
        "variable API_TOKEN", "variable LENIENT", "variable MODE",
    }  # fmt: skip
    assert found()["library sympy"] == sympy.__version__
    assert found()["variable MODE"] == "not set"


@pytest.mark.parametrize("name", ["near_library.py", "aliases.json"])
def test_a_change_is_seen_wherever_it_is(found, tmp_path, name):
    before = found()
    (path,) = tmp_path.rglob(name)
    path.write_text("y = 2\n")
    changed = [key for key, value in found().items() if before[key] != value]
    assert changed == ["library near_library" if name.endswith("py") else "file aliases.json"]


def test_code_is_parsed_once_and_an_edit_in_the_same_second_is_seen(found, tmp_path, monkeypatch):
    parsed = []
    parse = module.ast.parse
    monkeypatch.setattr(module.ast, "parse", lambda code: parsed.append(code) or parse(code))
    module._named.cache_clear()
    assert found().keys() == found().keys()
    assert len(parsed) == 3  # of the package
    (path,) = tmp_path.rglob("verifiers.py")
    before = path.stat()
    path.write_text(path.read_text().replace('"MODE"', '"MOOD"'))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    assert found().keys() >= {"variable MOOD", "variable LENIENT"}
    assert "variable MODE" not in found()
    assert len(parsed) == 4


def test_a_variable_is_compared_and_not_told(found, monkeypatch):
    monkeypatch.setenv("LENIENT", "very-much")
    monkeypatch.setenv("API_TOKEN", "one")
    one = found()
    monkeypatch.setenv("LENIENT", "not-so-much")
    monkeypatch.setenv("API_TOKEN", "two")
    other = found()
    assert one["variable LENIENT"] != other["variable LENIENT"]
    assert "very-much" not in str(one)
    # of what may be a secret not even a hash is kept
    assert one["variable API_TOKEN"] == other["variable API_TOKEN"] == "set"


def test_a_file_that_is_too_large_is_compared_by_its_size(found, monkeypatch):
    monkeypatch.setattr(module, "LARGEST", 1)
    assert found()["file aliases.json"] == "2 bytes"


def test_code_that_is_not_there_has_no_surroundings():
    assert surroundings("acme/judge", "no_such_package.verifiers:judge") == {}
