"""Starts a command that ends when the process that started it ends, even by SIGKILL.

Run as a script: ``leash.py PARENT LOCK COMMAND...``. It locks the file LOCK for as long as the
command runs, so that other processes can see it, requests SIGTERM from the kernel on the death of
its parent process (on Linux), and becomes the command. It imports nothing of this package, to start
quickly.
"""

import ctypes
import fcntl
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent: int, lock: str, command: list[str]) -> None:
    """Become the command."""
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX)  # waits for an earlier one; stays through exec
        os.set_inheritable(descriptor, True)
    except OSError:
        os.close(descriptor)  # the file system has no locks
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit(128 + signal.SIGTERM)  # it has ended already
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
