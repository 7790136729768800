"""What ``rlvr_core.api`` offers plugins, and that importing it costs next to nothing."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import rlvr_core
from rlvr_core import api


def test_every_public_name_resolves():
    for name in api.__all__:
        assert getattr(api, name) is not None


def test_the_public_face_is_the_frozen_one():
    """A change of the face changes ``public_api.txt`` in the same commit."""
    frozen = Path(__file__).with_name("public_api.txt").read_text(encoding="utf-8")
    assert sorted(api.__all__) == frozen.splitlines()


def test_version_is_that_of_the_distribution():
    assert metadata.version("rlvr-core") == rlvr_core.__version__


def test_import_loads_no_heavy_library():
    heavy = {"torch", "numpy", "transformers", "yaml"}
    code = f"import sys, rlvr_core.api; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
