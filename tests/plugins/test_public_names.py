"""The version of the wheel, and that importing ``rlvr_core.api`` costs next to nothing."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata

import rlvr_core


def test_version_is_that_of_the_distribution():
    assert metadata.version("rlvr-core") == rlvr_core.__version__


def test_import_loads_no_heavy_library():
    heavy = {"torch", "numpy", "transformers", "yaml"}
    code = f"import sys, rlvr_core.api; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
