"""The GPU's driver against the installed wheels: which CUDA each speaks, and for which cards.

A wheel brings its own CUDA, and the driver must not be of an older major version; see NVIDIA's
"CUDA Compatibility". A driver with the package ``cuda-compat`` speaks a newer CUDA than its number
says, so the library that torch itself loads is called, and not ``nvidia-smi``.
"""

from __future__ import annotations

import ctypes
import mmap
import re
from collections.abc import Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

_OLDEST = {11: "450.80", 12: "525.60", 13: "580.65"}
"""Oldest driver of NVIDIA for each major version of CUDA, on Linux."""
_KERNEL = Path("/proc/driver/nvidia/version")
_NUMBER = re.compile(r"Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+)+)")
_ARCHITECTURE = re.compile(r"(sm|compute)_(\d+)(\d)([af]?)")


def driver_cuda(library: str = "libcuda.so.1") -> tuple[int, int] | None:
    """Return the newest CUDA that this machine's driver speaks; None if there is none.

    Starts nothing on a GPU.
    """
    try:
        ask = ctypes.CDLL(library).cuDriverGetVersion
    except (OSError, AttributeError):
        return None
    number = ctypes.c_int(0)
    if ask(ctypes.byref(number)) != 0 or number.value <= 0:
        return None
    return number.value // 1000, number.value % 1000 // 10


def driver_number(path: Path = _KERNEL) -> str:
    """Return the number of the driver's kernel module, as in 570.133.20; empty if unknown."""
    try:
        found = _NUMBER.search(path.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return ""
    return found[1] if found else ""


def too_old(driver: Sequence[int] | None, wheel: str, built_for: str) -> tuple[str, ...]:
    """Return what is wrong with a driver for a wheel, then what to do; nothing if it will do.

    Args:
        driver: CUDA of the driver; None if there is none.
        wheel: Name and version of the wheel.
        built_for: CUDA of the wheel, as in ``13.0`` or ``13``.
    """
    major = int(built_for.partition(".")[0])
    if driver is None or driver[0] >= major:
        return ()
    oldest = _OLDEST.get(major)
    return (
        f"the driver speaks CUDA {driver[0]}.{driver[1]} at most, and {wheel} is built for CUDA "
        f"{built_for}",
        f"take machines with a newer driver ({oldest} or later)"
        if oldest
        else "take machines with a newer driver",
        f"or an image whose wheels are built for CUDA {driver[0]}: "
        f"https://pytorch.org/get-started/previous-versions",
    )


def runs_on(capability: Sequence[int], architectures: Sequence[str]) -> bool:
    """Whether code for these architectures runs on a card of this compute capability.

    Machine code (``sm_80``) runs on cards of its major version that are not older, ``sm_90a`` on
    9.0 alone; portable code (``compute_90``) is compiled on any card that is not older. True if
    nothing is known of the architectures.
    """
    major, minor = capability
    found = [_ARCHITECTURE.fullmatch(one) for one in architectures]
    known = [(m[1], int(m[2]), int(m[3]), m[4]) for m in found if m]
    return not known or any(
        (major, minor) == (high, low)
        or (suffix != "a" and major == high and minor >= low)
        or (kind == "compute" and not suffix and (major, minor) >= (high, low))
        for kind, high, low, suffix in known
    )


def runtime_of(library: Path) -> str:
    """Return the major version of the CUDA runtime that a compiled library is linked with.

    Found as text, for importing it would need that very runtime. Empty if it is linked with none.
    """
    with (
        library.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        found = re.search(rb"libcudart\.so\.(\d+)", content)
        return found[1].decode() if found else ""


def vllm_built() -> tuple[str, str, str]:
    """Return version, CUDA and torch that the installed vLLM was built for; each may be empty."""
    try:
        version, needs = metadata.version("vllm"), metadata.requires("vllm") or []
    except metadata.PackageNotFoundError:
        return "", "", ""
    pins = [re.match(r"torch\s*==\s*([0-9][^\s;,]*)", one) for one in needs]
    spec = find_spec("vllm")  # imports nothing
    cuda = ""
    for folder in (spec and spec.submodule_search_locations) or ():
        for library in sorted(Path(folder).glob("_C*.so")):
            cuda = cuda or runtime_of(library)
    return version, cuda, next((pin[1] for pin in pins if pin), "")
