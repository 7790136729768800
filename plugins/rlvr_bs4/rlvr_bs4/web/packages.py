"""The packages that programs may import, in a folder of their own.

A sandbox is shown this folder and not the one they are installed in: what makes the tasks, and so
knows the answers, is installed there as well.
"""

from __future__ import annotations

import compileall
import shutil
import sys
import tempfile
from importlib import metadata, util
from pathlib import Path

from rlvr_core.api.services import cache_folder

NEEDED = ("beautifulsoup4", "soupsieve", "typing_extensions")
WISHED = ("lxml",)
_MODULES = {"beautifulsoup4": "bs4"}


def folder() -> str:
    """A folder with BeautifulSoup, and lxml where that is installed; made when it is not there.

    Raises:
        ImportError: If BeautifulSoup is not installed.
    """
    versions = {name: metadata.version(name) for name in NEEDED}
    for name in WISHED:
        if util.find_spec(name) is not None:
            versions[name] = metadata.version(name)
    tag = "-".join([sys.implementation.cache_tag or "", *sorted(versions.values())])
    place = cache_folder() / "bs4-packages" / tag
    if not place.is_dir():
        _make(place, [_MODULES.get(name, name) for name in versions])
    return str(place)


def modules() -> tuple[str, ...]:
    """What to import ahead of all programs."""
    return ("bs4", *(f"{name}.etree" for name in WISHED if util.find_spec(name) is not None))


def _make(place: Path, modules: list[str]) -> None:
    """Copy modules into a folder that appears when it is whole."""
    place.parent.mkdir(parents=True, exist_ok=True)
    half = Path(tempfile.mkdtemp(dir=place.parent))
    try:
        for name in modules:
            spec = util.find_spec(name)
            if spec is None or spec.origin is None:
                raise ImportError(f"{name} is not installed")
            origin = Path(spec.origin)
            if origin.name == "__init__.py":
                ignore = shutil.ignore_patterns("tests", "__pycache__", "includes", "*.c", "*.pyx")
                shutil.copytree(origin.parent, half / name, ignore=ignore)
            else:
                shutil.copy(origin, half / origin.name)
        compileall.compile_dir(half, quiet=2)
        for path in (half, *half.rglob("*")):  # a program's user is nobody's
            path.chmod(0o755 if path.is_dir() else 0o644)
        try:
            half.rename(place)
        except OSError:
            if not place.is_dir():  # else another process was faster
                raise
    finally:
        shutil.rmtree(half, ignore_errors=True)
