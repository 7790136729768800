"""Marks tests of the core that look at it through a plugin of the project, too."""

from importlib.util import find_spec

import pytest


def needs(*packages: str) -> pytest.MarkDecorator:
    """Skip a test where one of these plugins is not installed, such as ``rlvr_doctor``."""
    missing = [package for package in packages if find_spec(package) is None]
    names = ", ".join(package.replace("_", "-") for package in missing)
    return pytest.mark.skipif(bool(missing), reason=f"comes with {names}")
