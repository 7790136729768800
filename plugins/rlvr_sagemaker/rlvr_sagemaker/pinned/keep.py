"""Constraints for pip in an image: what is installed stays as it is, all else is as given.

Called by the Dockerfile with a file of pins; prints the constraints. A base with torch and vLLM has
them fit to each other and to its CUDA, so that no pin of ours may change them.
"""

import re
import sys
from importlib import metadata
from pathlib import Path

_TOOLS = {"pip", "setuptools", "wheel"}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main(path: str) -> None:
    """Print the constraints."""
    kept = {_normal(package.name): package.version for package in metadata.distributions()}
    for tool in _TOOLS:
        kept.pop(tool, None)
    lines = Path(path).read_text("utf-8").splitlines()
    given = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    for name, version in sorted((given | kept).items()):
        sys.stdout.write(f"{name}=={version}\n")


if __name__ == "__main__":
    main(sys.argv[1])
