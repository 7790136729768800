"""Starts a command that ends when the process that started it ends, even by SIGKILL.

Run as a script: ``leash.py PARENT COMMAND...``. It requests SIGTERM from the kernel on the death of
its parent process (on Linux), and becomes the command. It imports nothing of this package, to start
quickly.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> None:
    """Become the command."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit(128 + signal.SIGTERM)  # it has ended already
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
