"""One process of a run, started by a launcher: ``python -m`` this module, ``run CONFIG``."""

from __future__ import annotations

import os
import sys

from rlvr_core.api.services import main

if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # now and then torch with gloo aborts while the interpreter is taken down, long after the
    # run's last word; the exit code must be the run's
    os._exit(code)
