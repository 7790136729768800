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

from rlvr_sagemaker.containers import engine
from rlvr_sagemaker.options import Options
from rlvr_sagemaker.request import CHANNEL, DESCRIPTION


def run_here(config: Options, details: Mapping[str, Any], say: Callable[[str], None]) -> int:
    """Run the image with docker or podman; its runs come to ``runs/<job>/`` of this directory.

    A job finds its own runs there and no others: given the same name again, it goes on with them.

    Raises:
        MachineError: If neither works here.
    """
    tool = engine()
    runs = Path("runs", details["job"]).absolute()
    runs.mkdir(parents=True, exist_ok=True)
    say(f"its runs come to {runs}")
    with tempfile.TemporaryDirectory(prefix="rlvr-local-") as folder:
        root = Path(folder)
        lay_out(root, details)
        image = details["request"]["AlgorithmSpecification"]["TrainingImage"]
        command = [tool, "run", "--rm", "--init", "--shm-size", "8g", *_gpus(tool, config)]
        for name, value in details["request"]["Environment"].items():
            command += ["--env", f"{name}={value}"]
        ours = _credentials(config)
        for name in ours:
            command += ["--env", name]  # the value from docker's own environment: ps shows words
        for source, target in ((root, "/opt/ml"), (runs, "/opt/ml/checkpoints")):
            command += ["--volume", f"{source}:{target}"]
        command += [*_user(tool), image, "train"]
        return subprocess.run(command, env=os.environ | ours, check=False).returncode


def _gpus(tool: str, config: Options) -> list[str]:
    """Words that show the container its GPUs; podman knows them by the names of CDI."""
    if not config.gpus:
        return []
    if tool == "podman":
        return [word for gpu in config.gpus for word in ("--device", f"nvidia.com/gpu={gpu}")]
    return ["--gpus", f'"device={",".join(map(str, config.gpus))}"']


def _user(tool: str) -> list[str]:
    """Words that let files of the run belong to who asked for it.

    Nobody has that number in the image, so that the home and the name are said.
    """
    user, group = os.getuid(), os.getgid()
    same = ["--userns", "keep-id"] if tool == "podman" and user != 0 else []
    return [*same, "--user", f"{user}:{group}", "--env", "HOME=/tmp", "--env", "USER=rlvr"]


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
