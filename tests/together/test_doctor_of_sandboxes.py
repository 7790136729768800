"""``rlvr doctor`` names the installation, and each sandbox of rlvr-code."""

import json
import os
import sys
from pathlib import Path

from rlvr_code.sandbox.backends import findings
from rlvr_core.testing.fork_server import run_rlvr


def run(*args):
    return run_rlvr(*args, cwd=Path.cwd(), env=os.environ | {"NO_COLOR": "1"})


def test_doctor():
    found = json.loads(run("doctor", "--json").stdout)
    assert found["python"] == sys.version.split()[0]
    assert found["libraries"]["torch"]
    assert {"name": "core", "status": "ok"}.items() <= found["plugins"][0].items()


def test_doctor_names_each_sandbox_whether_it_works_and_what_it_does_not_stop():
    found = json.loads(run("doctor", "--json").stdout)["findings"]
    told = [one for one in found if one["id"].startswith("sandbox/")]
    kinds = ["bwrap", "namespaces", "landlock", "docker", "podman", "unsafe"]
    assert sorted(one["id"].removeprefix("sandbox/") for one in told) == sorted(kinds)
    text = run("doctor").stdout
    for one in told:
        works = one["text"].startswith("works")
        assert works or one["text"].startswith("not here: ")
        assert len(one["text"].partition(": ")[2]) > 5, "how it works, or why it does not"
        if works:
            assert "does not stop: " in one["remedy"]
        assert f"{one['plugin']}: {one['id']}" in text
        assert one["remedy"] in text
    (unsafe,) = [one for one in told if one["id"] == "sandbox/unsafe"]
    assert "has to be asked for by name" in unsafe["text"]
    assert {one.id for one in findings()} == {one["id"] for one in told}
