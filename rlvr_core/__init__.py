"""rlvr: reinforcement learning with verifiable rewards.

What a plugin imports is in ``rlvr_core.api``.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

__version__ = "0.1.0"


class _Files:
    """Finds the modules of ``use: ./file.py:name``, in this process and in its children."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """The spec of such a module; None for any other."""
        if not name.startswith("_rlvr_file_"):
            return None
        from rlvr_core.host import files

        return files.find_spec(name)


if not any(getattr(one, "__qualname__", "") == "_Files" for one in sys.meta_path):
    sys.meta_path.append(_Files)
