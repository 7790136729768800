"""rlvr: reinforcement learning with verifiable rewards.

What a plugin imports is in ``rlvr_core.api``.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

__all__ = ["RunView", "__version__", "evaluate", "train"]

__version__ = "0.2.0"

NO_WINDOWS = "rlvr runs on Linux and macOS, not on Windows"


FILE_PREFIX = "_rlvr_file_"
"""Prefix of the module names under which files named by a config are imported."""

_HOMES = {
    "RunView": "rlvr_core.record.view",
    "evaluate": "rlvr_core.script.evaluate",
    "train": "rlvr_core.script.train",
}
"""Module of each name, imported on first use."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'rlvr_core' has no attribute {name!r}")
    if sys.platform == "win32":
        raise ImportError(f"{NO_WINDOWS}; use it in WSL 2, which is Linux")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Files:
    """Finds the modules of ``use: ./file.py:name``, in this process and in its children."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Return the spec of such a module; None for any other."""
        if not name.startswith(FILE_PREFIX):
            return None
        from rlvr_core.plugins import files

        return files.find_spec(name)


if not any(getattr(one, "__qualname__", "") == "_Files" for one in sys.meta_path):
    sys.meta_path.append(_Files)
