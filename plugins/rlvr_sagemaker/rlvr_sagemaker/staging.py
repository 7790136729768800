"""The files of a job, and the description of what it does with them."""

from __future__ import annotations

import collections
import json
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rlvr_cluster.jobs.staging import Staged, overrides
from rlvr_cluster.jobs.staging import stage as stage_for_job
from rlvr_core.api import LaunchRequest
from rlvr_sagemaker.options import Options, gpu_list, pairs
from rlvr_sagemaker.request import DESCRIPTION
from rlvr_sagemaker.store import S3Store

LINKS = 20
"""Files behind links that are named when a job is submitted."""


def description(
    staged: Staged, config: Options, request: LaunchRequest, runs: str, job: str
) -> dict[str, Any]:
    """The description from which the job knows what to do."""
    layout = staged.layout
    described: dict[str, Any] = {
        "arguments": staged.arguments(request),
        "directory": layout.directory,
        "job": job,
        "name": request.name,
        "takes_over": bool(request.continues),
        "runs": runs,
        "processes": config.processes,
        "train_gpus": gpu_list(config.train_gpus),
        "engine_gpus": config.engine_gpus or [],
        "install": list(staged.install),
        "secrets": pairs(config.secrets),
    }
    if request.beside is not None:
        described["eval_config"] = layout.moved(request.beside.config)
        described["eval_set"] = overrides(request.beside.references, layout)
        described["eval_gpus"] = gpu_list(config.eval_gpus)
    return described


def stage(config: Options, request: LaunchRequest) -> Staged:
    """Find the files of a job.

    Raises:
        ConfigError: If one is missing, looks like a secret, or they are too large; all at once.
    """
    return stage_for_job(
        request,
        config.include,
        config.max_staged_mb,
        (
            "put it on S3 once, and name it so: rlvr sagemaker put PATH s3://bucket/…",
            "or leave things out by .rlvrignore, or raise --max-staged-mb",
        ),
        reserved=DESCRIPTION,
    )


def upload(details: Mapping[str, Any], store: S3Store, say: Callable[[str], None]) -> None:
    """Upload the files of a plan and the job's description to where the job finds them."""
    files = details["files"]
    say(f"{len(files)} files to {store.place}")
    linked = [file for file in files if "real" in file]
    for file in linked[:LINKS]:
        say(f"  by a link: {file['key']} is {file['real']}")
    if len(linked) > LINKS:
        say(f"  and {len(linked) - LINKS} more by links: rlvr launch … --dry-run names them")
    with ThreadPoolExecutor(8) as pool:
        sent = pool.map(lambda file: store.put(Path(file["path"]), file["key"]), files)
        collections.deque(sent, maxlen=0)  # raises what an upload has raised
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / DESCRIPTION
        path.write_text(json.dumps(details["description"], indent=1) + "\n", encoding="utf-8")
        store.put(path, DESCRIPTION)
