"""Runs a module of this folder in a process of its own: the stand-in changes torch for good."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any


def apart(script: str, given: Sequence[Any]) -> tuple[str, str]:
    """Return what a module of this folder prints, and what it says on stderr."""
    done = subprocess.run(
        [sys.executable, "-m", f"tests.together.gpu_standin.{script}", json.dumps(given)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout, done.stderr
