"""A batch script that makes each trial of a sweep one task of a Slurm array."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlvr_core.builtin.sweeps.spec import Sweep

_SCRIPT = """\
#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --array=0-{last}
#SBATCH --output={name}-%A_%a.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:TERM@120

set -euo pipefail
cd {directory}
# a task that is put back into the queue goes on with its trial
exec {rlvr} sweep {file} --trial "$SLURM_ARRAY_TASK_ID"
"""


def array_script(sweep: Sweep, trials: int) -> str:
    """Return the script; partition, GPUs and time are options of ``sbatch``."""
    return _SCRIPT.format(
        name=sweep.spec.name,
        last=trials - 1,
        directory=shlex.quote(str(Path.cwd())),
        rlvr=f"{shlex.quote(sys.executable)} -m rlvr_core.cli.main",
        file=shlex.quote(str(sweep.path)),
    )
