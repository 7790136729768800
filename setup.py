"""Puts the examples into the wheel; everything else of the build is in pyproject.toml.

They stand once, in ``examples/``. An editable install reads them there, a wheel carries a copy.
"""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

EXAMPLES = "examples"
INSIDE = "rlvr_core/builtin/examples/files"
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.egg-info", "build", "dist", "runs", ".*")


class BuildWithExamples(build_py):
    """Builds the packages, and a folder with the examples in one of them."""

    def run(self) -> None:
        """Build; an editable build has nothing to copy."""
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib, INSIDE)
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(EXAMPLES, target, ignore=LEFT_OUT)


setup(cmdclass={"build_py": BuildWithExamples})
