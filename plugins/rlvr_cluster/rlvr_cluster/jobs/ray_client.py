"""A client of the job server of a Ray cluster, over HTTP."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

from rlvr_core.api import ConfigError, MachineError

DEFAULT = "http://127.0.0.1:8265"
"""URL of the job server of a cluster's head on this machine."""
_VARIABLES = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")
_REACH = 5.0
"""Seconds in which the server must accept a connection."""
_environment = threading.Lock()


def address_of(given: str | None) -> str:
    """Return the address of the job server: the given one, the environment's or this machine's.

    Raises:
        ConfigError: If it is not the address of a job server.
    """
    kept = [os.environ.get(name, "") for name in _VARIABLES]
    # RAY_ADDRESS may be the address of the cluster itself, for runs on its nodes
    address = given or next((url for url in kept if url.startswith("http")), DEFAULT)
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.password:
        shown = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        raise ConfigError(
            f"'{shown}' is no address of a Ray cluster's job server",
            where="--address",
            remedy=f"write it as ray start --head shows it for the dashboard: {DEFAULT}",
        )
    return address.rstrip("/")


class JobServer:
    """A client of the job server.

    Args:
        address: URL of the server.

    Raises:
        MachineError: If Ray is not installed, or no server answers.
    """

    def __init__(self, address: str) -> None:
        if importlib.util.find_spec("ray") is None:
            raise MachineError(
                "backend ray needs Ray, which is not installed",
                remedy="pip install 'rlvr-core[ray]'",
            )
        self._address = address
        parts = urlsplit(address)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        with self._reached():  # Ray itself would wait forever
            socket.create_connection((str(parts.hostname), port), timeout=_REACH).close()
        from ray.job_submission import JobSubmissionClient

        logging.getLogger("ray.dashboard.modules.dashboard_sdk").setLevel(logging.WARNING)
        logging.getLogger("ray.dashboard.modules.job.sdk").setLevel(logging.WARNING)
        with self._reached(), _without_variables():
            self._client: Any = JobSubmissionClient(address)

    def submit(self, job: str, **what: Any) -> None:
        """Submit a job under this name; if the answer is lost, check whether it was accepted."""
        try:
            self._client.submit_job(submission_id=job, **what)
        except Exception as error:
            with contextlib.suppress(Exception):
                self._client.get_job_info(job)
                return
            raise self._failed(f"did not take job {job}", error) from error

    def info(self, job: str) -> Any:
        """Return Ray's ``JobDetails`` of a job."""
        return self._ask_job(job, self._client.get_job_info)

    def stop(self, job: str) -> None:
        """Send SIGTERM to a job's processes, and SIGKILL after the job's grace period."""
        self._ask_job(job, self._client.stop_job)

    def log(self, job: str) -> str:
        """Return all output of a job."""
        return str(self._ask_job(job, self._client.get_job_logs))

    def _ask_job(self, job: str, ask: Callable[[str], Any]) -> Any:
        try:
            return ask(job)
        except Exception as error:
            if "404" in str(error):
                raise MachineError(
                    f"the Ray cluster at {self._address} knows no job {job}",
                    remedy="a cluster forgets its jobs when its head restarts",
                ) from error
            raise self._failed(f"did not answer about job {job}", error) from error

    def _failed(self, what: str, error: Exception) -> MachineError:
        reason = " ".join(str(error).split())[:500]
        return MachineError(f"the Ray cluster at {self._address} {what}: {reason}")

    @contextlib.contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise MachineError(
                f"no job server of a Ray cluster answers at {self._address}: {error}",
                where="--address",
                remedy=(
                    "the head of the cluster needs it: pip install 'rlvr-core[ray]' there, and "
                    "ray start --head, which shows its address",
                ),
            ) from error


@contextlib.contextmanager
def _without_variables() -> Iterator[None]:
    """Hide Ray's variables, which Ray would prefer to the given address."""
    with _environment:
        kept = {name: os.environ.pop(name) for name in _VARIABLES if name in os.environ}
        try:
            yield
        finally:
            os.environ.update(kept)
