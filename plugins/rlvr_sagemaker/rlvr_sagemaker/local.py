"""The job's image on this machine, with the folders SageMaker would give it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rlvr_core import MachineError
from rlvr_sagemaker.options import Options
from rlvr_sagemaker.request import CHANNEL, DESCRIPTION


def run_here(config: Options, details: Mapping[str, Any], say: Callable[[str], None]) -> int:
    """Run the image with docker; its runs come to ``runs/<job>/`` of the working directory.

    A job finds its own runs there and no others: given the same name again, it goes on with them.

    Raises:
        MachineError: If docker is not there.
    """
    runs = Path("runs", details["job"]).absolute()
    runs.mkdir(parents=True, exist_ok=True)
    say(f"its runs come to {runs}")
    with tempfile.TemporaryDirectory(prefix="rlvr-local-") as folder:
        root = Path(folder)
        lay_out(root, details)
        image = details["request"]["AlgorithmSpecification"]["TrainingImage"]
        command = ["docker", "run", "--rm", "--init", "--shm-size", "8g"]
        if config.gpus:
            command += ["--gpus", f'"device={",".join(map(str, config.gpus))}"']
        for name, value in details["request"]["Environment"].items():
            command += ["--env", f"{name}={value}"]
        ours = _credentials(config)
        for name in ours:
            command += ["--env", name]  # the value from docker's own environment: ps shows words
        for source, target in ((root, "/opt/ml"), (runs, "/opt/ml/checkpoints")):
            command += ["--volume", f"{source}:{target}"]
        command += ["--user", f"{os.getuid()}:{os.getgid()}", image, "train"]
        try:
            return subprocess.run(command, env=os.environ | ours, check=False).returncode
        except FileNotFoundError as error:
            raise MachineError("docker is not installed here") from error


def _credentials(config: Options) -> dict[str, str]:
    """What the container needs to reach S3 as its user; nothing where nobody is logged in.

    Raises:
        MachineError: If somebody is, and it has expired.
    """
    import boto3

    from rlvr_sagemaker.aws import call, region_here

    found = call("reading the credentials", lambda: boto3.session.Session().get_credentials())
    if found is None:
        return {}
    keys = call("reading the credentials", found.get_frozen_credentials)
    named = {
        "AWS_ACCESS_KEY_ID": keys.access_key,
        "AWS_SECRET_ACCESS_KEY": keys.secret_key,
        "AWS_SESSION_TOKEN": keys.token,
        "AWS_REGION": config.region or region_here(),
    }
    return {name: value for name, value in named.items() if value}


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
