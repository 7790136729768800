"""Processes of a Ray cluster on this machine, and patience with them."""

import contextlib
import time

import psutil

PATIENCE = 180.0
NODE = {"object_store_memory": 100 * 2**20}


def of_the_cluster(*words):
    """Process ids of the cluster's processes, those of actors included, by their first words."""
    found = set()
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            line = " ".join(child.cmdline())
            if any(word in line for word in words):
                found.add(child.pid)
    return found


def wait_for(reached):
    """What this is in the end: true, or what it is when patience is over."""
    until = time.monotonic() + PATIENCE
    while not (found := reached()) and time.monotonic() < until:
        time.sleep(0.05)
    return found
