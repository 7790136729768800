"""A process that is ``rlvr run``, and ends when the sweep that started it does, even by SIGKILL.

``python -m rlvr_core.builtin.sweeps.child PARENT run ...``
"""

from __future__ import annotations

import os
import signal
import sys


def main(parent: int, words: list[str]) -> int:
    """Become the command; returns its exit code."""
    if sys.platform == "linux":  # elsewhere the lock of the run's folder refuses a second process
        import ctypes

        set_parent_death_signal = 1  # PR_SET_PDEATHSIG of <sys/prctl.h>
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
    if os.getppid() != parent:
        return 128 + signal.SIGKILL  # it has ended already
    from rlvr_core.api.services import main as rlvr

    sys.argv = ["rlvr", *words]  # what run.json records
    return rlvr(words)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
