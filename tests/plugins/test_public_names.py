"""What ``rlvr_core.api`` offers plugins, and that importing it costs next to nothing."""

from __future__ import annotations

import subprocess
import sys

import rlvr_core
from rlvr_core import api


def test_every_public_name_resolves():
    for name in api.__all__:
        assert getattr(api, name) is not None
    assert set(api._HOME) == set(api.__all__)
    assert set(api.__all__) <= set(dir(api))


def test_version_is_that_of_the_distribution():
    from importlib import metadata

    assert metadata.version("rlvr-core") == rlvr_core.__version__


def test_import_loads_no_library():
    code = "import sys, rlvr_core.api; print({'pydantic', 'pluggy', 'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
