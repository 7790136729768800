"""``rlvr launch --preflight`` on the machines themselves: a job's own check, and nothing else."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlvr_core.api import LaunchPlan, MachineError
from rlvr_core.builtin.jobs.inside.check import ALONE
from rlvr_core.builtin.jobs.processes import supervise


def check_inside(plan: LaunchPlan) -> Iterator[tuple[str, bool | None, str]]:
    """Start the processes of a plan, which examine their machines and end.

    Args:
        plan: That of a launcher whose processes are on this machine, and on others where the
            command is given too.

    Yields:
        Name, whether it is in order (None: in doubt) and text of each finding.

    Raises:
        MachineError: If the processes cannot meet, or one of them fails.
    """
    details: dict[str, Any] = dict(plan.details)
    with tempfile.TemporaryDirectory(prefix="rlvr-preflight-") as folder:
        file = Path(folder, "found.json")
        details["environment"] = {**details["environment"], ALONE: str(file)}
        details["command"] = [*details["command"], "--display", "none"]
        try:
            code = supervise(replace(plan, details=details))
        finally:
            os.environ.pop(ALONE, None)
        if code != 0 or not file.exists():
            raise MachineError(f"the check of the machines ended with {code}: see what it says")
        for one in json.loads(file.read_text()):
            where = f"{one['where']}: " if one["where"] else ""
            yield one["check"], one["good"], "; ".join([where + one["what"], *one["remedy"]])
