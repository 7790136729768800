"""Commands of ``rlvr`` on the stand-in, one after another; a line of JSON for each.

    python -m tests.together.gpu_standin.whole_runs '[{"words": ["run", "a.yaml"], "memory": 80}]'

A process of its own, like ``run.py``. ``memory`` is the card's, in GiB.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from rlvr_core.cli.main import main
from tests.together.gpu_standin import machine


def run(job: Mapping[str, Any]) -> dict[str, Any]:
    """Do a command; return its exit code."""
    memory = int(job.get("memory", 80) * 2**30)
    with machine.standin.StandIn(name=machine.NAME, capacity=memory):
        return {"code": main(job["words"])}


if __name__ == "__main__":
    machine.pretend()
    for given in json.loads(sys.argv[1]):
        sys.stdout.write(json.dumps(run(given)) + "\n")
