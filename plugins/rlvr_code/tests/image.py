"""An image of this machine's interpreter, for container backends where no registry can be reached."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tarfile
from pathlib import Path

from rlvr_code.sandbox.layout import layout

NAME = f"localhost/rlvr-code-tests:{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}"
_LEFT_OUT = re.compile(r"(site|dist)-packages|test|idlelib|__pycache__|ensurepip|tkinter|config-.*")


def make(tool):
    """Import the image; empty, or why the tool cannot.

    Args:
        tool: ``podman`` or ``docker``.
    """
    source = io.BytesIO()
    with tarfile.open(fileobj=source, mode="w") as tar:
        _fill(tar)
    done = subprocess.run(
        [tool, "import", "-", NAME], input=source.getvalue(), capture_output=True, timeout=300
    )
    return "" if done.returncode == 0 else done.stderr.decode(errors="replace")[-300:]


def remove(tool):
    """Remove it."""
    subprocess.run([tool, "rmi", "--force", NAME], capture_output=True, timeout=60, check=True)


def _fill(tar):
    """The interpreter under /usr, its libraries where the loader looks for them."""
    found = layout(None)
    version = Path(found.stdlib).name
    tar.add(found.python, f"usr/bin/{version}")
    _link(tar, "usr/bin/python3", version)
    tar.add(found.stdlib, f"usr/lib/{version}", filter=_wanted)
    modules = Path(found.stdlib, "lib-dynload").glob("*.so")
    said = subprocess.run(
        ["ldd", found.python, *map(str, modules)], capture_output=True, text=True, check=True
    )
    libraries = {Path(one) for one in re.findall(r"(/\S+) \(0x", said.stdout)}
    for library in sorted(libraries):
        tar.add(library.resolve(), f"usr/lib/{library.name}")
    loader = next(one for one in libraries if one.name.startswith("ld-"))
    for folder in ("lib", "lib64"):
        _link(tar, folder, "usr/lib")
    if str(loader.parent) not in ("/lib", "/lib64", "/usr/lib", "/usr/lib64"):
        raise RuntimeError(f"the loader lies in {loader.parent}")


def _wanted(entry):
    return None if _LEFT_OUT.fullmatch(Path(entry.name).name) else entry


def _link(tar, name, target):
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    tar.addfile(entry)
