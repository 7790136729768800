"""A sweep as a Slurm array with one task per trial, then a job for table and report."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rlvr_core.api import ConfigError, MachineError, RunError
from rlvr_core.api.services import write_atomic

if TYPE_CHECKING:
    from rlvr_core.builtin.sweeps.spec import Sweep

OPTION = "--sbatch"
OWN = {"--array", "--dependency", "--job-name", "--output", "--error", "--open-mode", "--requeue"}
OWN |= {"--parsable", "--wrap", "--wait", "--signal", "--test-only"}
"""Options of ``sbatch`` that the sweep sets itself, or that change its output."""
FOR_TABLE = {"--partition", "--account", "--qos", "--reservation", "--time", "--clusters"}
"""Options that are also passed to the job of table and report, which needs no GPU."""
_QUEUE, _ANSWER = "slurm.json", re.compile(r"(\d+)(;\S+)?")

_ARRAY = """\
#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --array={numbers}
#SBATCH --output={logs}/slurm-%A_%a.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:TERM@120

set -euo pipefail
cd {directory}
# a task that is put back into the queue goes on with its trial
exec {rlvr} sweep {file} --trial "$SLURM_ARRAY_TASK_ID" --parallel {parallel}
"""
_TABLE = """\
#!/bin/bash
#SBATCH --job-name={name}-table
#SBATCH --output={logs}/table.txt
#SBATCH --open-mode=truncate

set -euo pipefail
cd {directory}
exec {rlvr} sweep {file} --collect
"""


@dataclass(frozen=True, slots=True)
class Queued:
    """The jobs that a sweep was last submitted as.

    Attributes:
        array: Job id of the array.
        table: Job id of the job for table and report.
    """

    array: str
    table: str

    def status(self) -> str | None:
        """Return their states in the queue; None if none of them is queued any more.

        Raises:
            MachineError: If the queue cannot be queried.
        """
        jobs = f"--jobs={self.array},{self.table}"
        lines = _slurm(["squeue", "--noheader", "--array", "--format=%F %T", jobs], check=False)
        states = [line.split() for line in lines.splitlines()]
        tasks = Counter(state.lower() for job, state in states if job == self.array)
        if not states:
            return None
        counts = ", ".join(f"{count} {state}" for state, count in tasks.items())
        return f"slurm job {self.array}: {counts or 'all tasks ended'}; table: job {self.table}"


def check_options(options: Sequence[str]) -> None:
    """Refuse options of ``sbatch`` that cannot be passed on.

    Raises:
        ConfigError: If one is malformed, or is the sweep's own.
    """
    for one in options:
        name = one.partition("=")[0]
        if not re.fullmatch(r"--[a-z0-9-]+(=[^\n]+)?", one):
            raise ConfigError(
                f"'{one}' is no option that can be passed on to sbatch",
                where=OPTION,
                remedy=f"write one option each, in its long form: {OPTION} --time=04:00:00",
            )
        if name in OWN:
            raise ConfigError(
                f"the sweep sets {name} of sbatch itself", where=OPTION, remedy="take it out"
            )


def scripts(sweep: Sweep, trials: Sequence[int], parallel: int) -> tuple[str, str]:
    """Return the scripts of the array and of the job after it."""
    parts = {
        "name": sweep.spec.name,
        "numbers": ",".join(map(str, trials)),
        "logs": str(sweep.folder.absolute()).replace("%", "%%"),
        "directory": shlex.quote(str(Path.cwd())),
        "rlvr": f"{shlex.quote(sys.executable)} -m rlvr_core.cli.main",
        "file": shlex.quote(str(sweep.path)),
        "parallel": parallel,
    }
    return _ARRAY.format(**parts), _TABLE.format(**parts)


def submit(sweep: Sweep, trials: Sequence[int], parallel: int, options: Sequence[str]) -> Queued:
    """Submit trials, and the job after them.

    Args:
        sweep: The sweep.
        trials: Their numbers.
        parallel: Runs of a trial at once.
        options: Further options of ``sbatch``.

    Raises:
        RunError: If trials of the sweep are in the queue already.
        MachineError: If Slurm cannot be reached, or refuses; nothing is queued then.
    """
    before = queued(sweep)
    if before is not None and before.status() is not None:
        raise RunError(
            f"this sweep is in the queue already, as job {before.array}",
            where=str(_file(sweep)),
            remedy=(
                f"wait until it has ended: squeue --jobs={before.array}",
                f"or take it out: scancel {before.array} {before.table}",
            ),
        )
    existed = sweep.folder.is_dir()
    sweep.folder.mkdir(parents=True, exist_ok=True)  # where the logs go
    array, table = scripts(sweep, trials, parallel)
    try:
        first = _sbatch(array, options)
    except MachineError:
        if not existed:
            sweep.folder.rmdir()
        raise
    passed = [one for one in options if one.partition("=")[0] in FOR_TABLE]
    try:
        second = _sbatch(table, [*passed, f"--dependency=afterany:{first}"])
    except MachineError:
        _slurm(["scancel", first], check=False)
        raise
    write_atomic(_file(sweep), json.dumps({"array": first, "table": second}) + "\n")
    return Queued(first, second)


def queued(sweep: Sweep) -> Queued | None:
    """Return the jobs that the sweep was last submitted as; None if it never was."""
    try:
        found = json.loads(_file(sweep).read_text(encoding="utf-8"))
        return Queued(str(found["array"]), str(found["table"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(
            "this file is damaged, and with it which jobs the sweep has",
            where=str(_file(sweep)),
            remedy="see that squeue has none of them, and remove it",
        ) from error


def _file(sweep: Sweep) -> Path:
    return sweep.folder / _QUEUE


def _sbatch(script: str, options: Sequence[str]) -> str:
    answer = _slurm(["sbatch", "--parsable", *options], script).strip()
    found = _ANSWER.fullmatch(answer)
    if found is None:
        raise MachineError(f"sbatch answered {answer!r}, which is no job's number", where="sbatch")
    return found[1]


def _slurm(command: list[str], script: str | None = None, *, check: bool = True) -> str:
    """Run a command of Slurm, and return its output.

    Raises:
        MachineError: If it is not installed, or fails.
    """
    try:
        done = subprocess.run(
            command, input=script, capture_output=True, text=True, check=False, timeout=120
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MachineError(
            f"{command[0]} cannot be run: {error}",
            where="--backend slurm",
            remedy=(
                "give the command on a machine of the cluster that can submit jobs",
                "or print the script there: --backend slurm --dry-run",
            ),
        ) from error
    if check and done.returncode != 0:
        stderr = " ".join(done.stderr.split())
        raise MachineError(
            f"{command[0]} failed ({done.returncode}): {stderr}",
            where=" ".join(command),
            remedy=f"correct the options that {OPTION} passes on, or ask the cluster's people",
        )
    return done.stdout
