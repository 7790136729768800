"""One process of a run, started by a launcher: ``python -m`` this module, ``run CONFIG``."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from rlvr_core.cli.main import main
from rlvr_core.workers.child import end_with_parent

STOPPED = "RLVR_LAUNCH_STOPPED"
"""Environment variable with a file that is there once the launcher was asked to stop."""

if __name__ == "__main__":
    # the launcher is its parent: one that is killed leaves nothing behind
    end_with_parent(os.getppid())
    # until the run listens itself: an import may swallow KeyboardInterrupt
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    stopped = STOPPED in os.environ and Path(os.environ[STOPPED]).exists()
    code = 130 if stopped else main()
    sys.stdout.flush()
    sys.stderr.flush()
    # now and then torch with gloo aborts while the interpreter is taken down, long after the
    # run's last word; the exit code must be the run's
    os._exit(code)
