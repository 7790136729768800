"""Puts examples and documentation into the wheel; all else of the build is in pyproject.toml.

They stand once, in ``examples/`` and ``docs/``. An editable install reads them there, a wheel
carries a copy.
"""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

LEFT_OUT = ("__pycache__", "*.egg-info", "build", "dist", "runs", ".*")
COPIED = {
    "examples": ("rlvr_core/examples/files", LEFT_OUT),
    "docs": ("rlvr_core/cli/manual/files", (*LEFT_OUT, "_ext", "_generated", "images", "*.py")),
}
"""Where each folder stands in the wheel, and what of it is left out."""


class BuildWithCopies(build_py):
    """Builds the packages, and the folders that are copied into them."""

    def run(self) -> None:
        """Build; an editable build has nothing to copy."""
        super().run()
        if not self.editable_mode:
            for folder, (inside, left_out) in COPIED.items():
                target = Path(self.build_lib, inside)
                shutil.rmtree(target, ignore_errors=True)
                shutil.copytree(folder, target, ignore=shutil.ignore_patterns(*left_out))


setup(cmdclass={"build_py": BuildWithCopies})
