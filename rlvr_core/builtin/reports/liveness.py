"""Whether the process of a run is still there."""

from __future__ import annotations

import socket
from collections.abc import Mapping

from rlvr_core.api import Json


def is_alive(process: Mapping[str, Json]) -> bool | None:
    """Whether the process of a ``run.json`` still runs; None if it is on another machine."""
    import psutil

    if process.get("host") != socket.gethostname():
        return None
    try:
        found = psutil.Process(int(process["pid"]))
        if found.status() == psutil.STATUS_ZOMBIE:
            return False
        # a pid is used again sooner or later; its start time tells the two apart
        return abs(found.create_time() - float(process["created"])) < 2.0
    except (psutil.Error, KeyError, TypeError, ValueError):
        return False
