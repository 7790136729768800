"""Runs ``rlvr run`` in a process that ends when the sweep that started it does, even by SIGKILL.

``python -m rlvr_cluster.sweeps.child PARENT run ...``
"""

from __future__ import annotations

import sys

from rlvr_core.cli.main import main as rlvr
from rlvr_core.workers.child import end_with_parent


def main(parent: int, arguments: list[str]) -> int:
    """Become the command; returns its exit code."""
    # on a kernel without this, the lock of the run's folder refuses a second process
    end_with_parent(parent)
    sys.argv = ["rlvr", *arguments]  # what run.json records
    return rlvr(arguments)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
