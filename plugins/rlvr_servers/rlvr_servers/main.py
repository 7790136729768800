"""The process of a vLLM server that the trainer starts: it does not outlive the trainer.

python -m rlvr_servers.main FD FOLDER [arguments of vLLM's server]
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from multiprocessing import resource_tracker


def main() -> None:
    """Serve until stopped, or until the other end of pipe ``FD`` is closed; then clean up."""
    # Slurm, say, gives notice to every process of a job: the trainer then ends its step, and needs
    # its servers for that. Blocked and not ignored: vLLM, whose processes inherit this, sets
    # handlers of its own. Python unblocks both when it starts its resource tracker: so that first.
    resource_tracker.ensure_running()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    fd, folder = int(sys.argv.pop(1)), sys.argv.pop(1)
    os.set_inheritable(fd, False)
    threading.Thread(target=_end_with_trainer, args=(fd, folder), daemon=True).start()
    from vllm.entrypoints.launchers.api_server.entry import main as serve

    serve()


def _end_with_trainer(fd: int, folder: str) -> None:
    """End with the trainer, which holds the other end; the kernel closes it in any case."""
    while os.read(fd, 1):
        pass
    shutil.rmtree(folder, ignore_errors=True)
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    main()
