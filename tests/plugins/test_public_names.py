"""What ``rlvr_core.api`` offers plugins, and that importing it costs next to nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import rlvr_core
from rlvr_core import api
from rlvr_core.api import services


def test_every_public_name_resolves():
    for face in (api, services):
        for name in face.__all__:
            assert getattr(face, name) is not None
        homes = [name for names in face._HOMES.values() for name in names.split()]
        assert sorted(homes) == face.__all__  # each name has one home
        assert set(face.__all__) <= set(dir(face))
    assert not set(api.__all__) & set(services.__all__)


def test_the_public_face_is_the_frozen_one():
    """A change of the face changes the list in the same commit: python tools/docs.py."""
    root = Path(__file__).parents[2]
    code = "import faces, sys; sys.stdout.write(faces.frozen())"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root / "tools", capture_output=True, text=True, check=True
    )
    kept = (root / "tests/plugins/public_api.txt").read_text(encoding="utf-8")
    assert done.stdout.splitlines() == kept.splitlines()


def test_version_is_that_of_the_distribution():
    from importlib import metadata

    assert metadata.version("rlvr-core") == rlvr_core.__version__


def test_import_loads_no_library():
    code = "import sys, rlvr_core.api; print({'pydantic', 'pluggy', 'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
