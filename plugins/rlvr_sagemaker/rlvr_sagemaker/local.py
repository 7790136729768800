"""The job's image on this machine, with the folders SageMaker would give it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlvr_core import MachineError
from rlvr_sagemaker.options import Options
from rlvr_sagemaker.request import CHANNEL, DESCRIPTION


def run_here(config: Options, details: Mapping[str, Any]) -> int:
    """Run the image with docker; its runs come to ``runs/`` of the working directory.

    Raises:
        MachineError: If docker is not there.
    """
    runs = Path("runs").absolute()
    runs.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="rlvr-local-") as folder:
        root = Path(folder)
        lay_out(root, details)
        command = ["docker", "run", "--rm", "--init", "--shm-size", "8g"]
        if config.gpus:
            command += ["--gpus", f'"device={",".join(map(str, config.gpus))}"']
        for name, value in details["request"]["Environment"].items():
            command += ["--env", f"{name}={value}"]
        for source, target in ((root, "/opt/ml"), (runs, "/opt/ml/checkpoints")):
            command += ["--volume", f"{source}:{target}"]
        command += ["--user", f"{os.getuid()}:{os.getgid()}", config.picture(), "train"]
        try:
            return subprocess.run(command, check=False).returncode
        except FileNotFoundError as error:
            raise MachineError("docker is not installed here") from error


def lay_out(root: Path, details: Mapping[str, Any]) -> None:
    """Make ``/opt/ml`` of a job with one machine."""
    code = root / "input" / "data" / CHANNEL
    code.mkdir(parents=True)
    for one in details["files"]:
        target = code / one["key"]
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(one["path"], target)
    (code / DESCRIPTION).write_text(json.dumps(details["description"], indent=1), "utf-8")
    (code / details["description"]["directory"]).mkdir(parents=True, exist_ok=True)
    where = root / "input" / "config"
    where.mkdir()
    machines = {"hosts": ["algo-1"], "current_host": "algo-1", "network_interface_name": "eth0"}
    (where / "resourceconfig.json").write_text(json.dumps(machines), "utf-8")
    for name in ("model", "output", "checkpoints"):
        (root / name).mkdir()
