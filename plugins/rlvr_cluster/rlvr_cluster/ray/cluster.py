"""Connects to a Ray cluster, and describes its resources."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import socket
from collections.abc import Iterator
from typing import Any

from rlvr_core.api import ConfigError, MachineError

_REACH = 5.0
"""Seconds in which the head of a cluster must accept a connection."""

OPTION = "engine.with.address"
START = "start one: ray start --head, and on each further machine ray start --address=HEAD:6379"


def import_ray(wanted_by: str) -> Any:
    """Import Ray.

    Raises:
        MachineError: If it is not installed.
    """
    if importlib.util.find_spec("ray") is None:
        raise MachineError(
            f"{wanted_by} needs Ray, which is not installed",
            remedy="pip install 'rlvr-core[ray]', here and on every node of the cluster",
        )
    import ray

    return ray


def connect(address: str | None, wanted_by: str = "engine ray", where: str = OPTION) -> bool:
    """Connect this process to a running cluster.

    It never starts one.

    Args:
        address: ``host:port`` of its head; None for ``RAY_ADDRESS``, or else for the cluster on
            this machine.
        wanted_by: The part of the run that needs the cluster.
        where: The option that gives the address.

    Returns:
        Whether the connection is new; False if this process already had one.

    Raises:
        ConfigError: If the address belongs to Ray Client.
        MachineError: If there is no cluster, or it has another version of Ray or Python.
    """
    ray = import_ray(wanted_by)
    if ray.is_initialized():
        return False
    at = address or os.environ.get("RAY_ADDRESS") or "auto"
    if "://" in at:
        raise ConfigError(
            f"{wanted_by} must run on a node of the cluster, and {at} is an address for clients",
            where=where,
            remedy="start the run on a node of the cluster, or with ray job submit",
        )
    _check_reachable(at, where)
    with _signals_kept():
        try:
            ray.init(
                address=at,
                log_to_driver=False,
                configure_logging=False,
                include_dashboard=None,
            )
        except (Exception, SystemExit) as error:  # Ray exits if the head does not answer
            raise _no_cluster(at, " ".join(str(error).split()), where) from error
    return True


def _check_reachable(at: str, where: str) -> None:
    """Check that the head accepts a connection: Ray would try for minutes and then exit."""
    if at == "auto":
        return
    host, _, port = at.rpartition(":")
    if not host or not port.isdigit():
        raise ConfigError(
            f"'{at}' is no address of a Ray cluster",
            where=where,
            remedy="write host:port, as in 10.0.0.7:6379",
        )
    try:
        with socket.create_connection((host, int(port)), timeout=_REACH):
            pass
    except OSError as error:
        raise _no_cluster(at, str(error), where) from error


def _no_cluster(at: str, why: str, where: str) -> MachineError:
    place = "on this machine" if at == "auto" else f"at {at}"
    named = f"{where}, or RAY_ADDRESS in the environment, says where one is"
    return MachineError(
        f"no Ray cluster can be reached {place}: {why}", where=where, remedy=(START, named)
    )


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """Restore the run's signal handlers, which Ray replaces."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            with contextlib.suppress(ValueError):  # in a thread, where Ray has set none
                signal.signal(number, handler)


def resources() -> str:
    """Describe the resources of the cluster and how many are free."""
    ray = import_ray("engine ray")
    every, free = ray.cluster_resources(), ray.available_resources()
    nodes = sum(bool(node["Alive"]) for node in ray.nodes())
    counts = [f"{free.get(name, 0):g} of {every.get(name, 0):g} {name} free" for name in _KINDS]
    return f"{nodes} node{'s' if nodes != 1 else ''} with {' and '.join(counts)}"


_KINDS = ("CPU", "GPU")
