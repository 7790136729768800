"""Compiles the stand-in's library, once for each torch; a program by itself."""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import importlib.util
import os
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("standin.cpp")


def torch_folder() -> Path:
    """Folder of the installed torch, which is not imported."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None, "torch is not installed"
    assert spec.origin is not None
    return Path(spec.origin).parent


def build() -> Path:
    """Return the library, compiled if it is not there.

    Raises:
        FileNotFoundError: There is no g++.
        subprocess.CalledProcessError: g++ failed; its words are in ``stderr``.
    """
    torch = torch_folder()
    version = (torch / "version.py").read_bytes()
    digest = hashlib.sha256(version + SOURCE.read_bytes()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "rlvr" / "tests"
    library = cache / f"gpu-standin-{digest}.so"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "gpu-standin.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if library.exists():
            return library
        made = library.with_suffix(".tmp")
        command = ["g++", "-O1", "-std=c++20", "-shared", "-fPIC", f"-I{torch / 'include'}"]
        command += [str(SOURCE), "-o", str(made), f"-L{torch / 'lib'}", "-lc10", "-ltorch_cpu"]
        subprocess.run(command, check=True, capture_output=True, text=True)
        made.rename(library)
    return library


def load() -> None:
    """Load the library into this process, before torch is imported. It cannot be unloaded."""
    libraries = torch_folder() / "lib"
    for name in ("libc10.so", "libtorch_cpu.so"):
        ctypes.CDLL(str(libraries / name), mode=ctypes.RTLD_GLOBAL)
    ctypes.CDLL(str(build()))


if __name__ == "__main__":
    print(build())
