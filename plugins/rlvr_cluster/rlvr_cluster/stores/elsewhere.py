"""Helpers of launchers for other machines: job names, NAME=VALUE pairs, stores."""

from __future__ import annotations

import itertools
import re
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from rlvr_cluster.jobs.job_book import Job, JobBook
from rlvr_cluster.jobs.protocol import JobStatus
from rlvr_core.api import Complaint, ConfigError, LaunchRequest
from rlvr_core.record.secrets import secrets_in_words
from rlvr_core.toolkit import is_uri

_PAIR = re.compile(r"^[A-Za-z_]\w*=", re.ASCII)


def job_name(run: str) -> str:
    """Return a name that no other job has."""
    plain = re.sub(r"[^A-Za-z0-9-]+", "-", run).strip("-") or "run"
    return f"{plain}-{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:6]}"


def pairs(words: Sequence[str]) -> dict[str, str]:
    """Split NAME=VALUE words."""
    return {word.partition("=")[0]: word.partition("=")[2] for word in words}


def wrong_pairs(flag: str, words: Sequence[str]) -> list[Complaint]:
    """Return a fault for each word that is not NAME=VALUE, or looks like a secret."""
    faults: list[Complaint] = []
    for word in words:
        faults += secrets_in_words([flag, word])
        if not _PAIR.match(word):
            faults.append(Complaint("it takes NAME=VALUE", flag))
    return faults


def checked_store(store: str | None) -> str:
    """Return the URI that runs are copied to.

    Raises:
        ConfigError: If it is not a URI.
    """
    if store is None or not is_uri(store):
        raise ConfigError(
            "no store is given, and files on a node are lost when the job ends",
            where="--store",
            remedy="name a URI: s3://bucket/runs, or file:///shared/runs",
        )
    return store.rstrip("/")


def refuse_second_writer(runs: str, launcher: str, status: Callable[[Job], JobStatus]) -> None:
    """Check that no job of the book still writes to a run.

    Args:
        runs: URI that the run is copied to.
        launcher: The launcher whose jobs are checked.
        status: Returns the status of a job.

    Raises:
        ConfigError: If such a job is waiting or running.
    """
    for job in JobBook().jobs():
        same_run = (job.runs, job.launcher) == (runs, launcher)
        if same_run and status(job).state in ("waiting", "running"):
            raise ConfigError(
                f"job {job.job} is still at work on that run",
                where="--resume",
                remedy=f"wait for it, or stop it first: rlvr jobs stop {job.job}",
            )


def kept_of(request: LaunchRequest) -> dict[str, Any]:
    """Return the data that the job book keeps for ``rlvr launch --resume JOB``."""
    words = list(request.arguments)
    return {
        "arguments": words,
        "set": [value for flag, value in itertools.pairwise(words) if flag == "--set"],
    }
