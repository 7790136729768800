"""Continues a run of another machine: fetches it from a store, and sends results back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rlvr_cluster.stores.fetch import BothChangedError, Fetch, runs_in
from rlvr_cluster.stores.mirror import BEHIND
from rlvr_cluster.stores.ownership import beside, is_beside
from rlvr_core.toolkit import load_host


def fetch_newest(uri: str, root: Path, say: Callable[[str], None]) -> Path | None:
    """Fetch the newest run of a mirror, with its newest and its best checkpoint.

    If the local folder comes from an attempt that a later one has replaced, it is moved aside.

    Args:
        uri: URI of the run folders, as in ``run.mirror``.
        root: Folder of run folders.
        say: Called with what is fetched.

    Returns:
        The run's folder; None if no run can be resumed.

    Raises:
        MachineError: If the store fails.
    """
    host = load_host()
    names = runs_in(host.ask_store(uri))
    for name in reversed([name for name in names if not is_beside(name)]):
        place, folder = f"{uri.rstrip('/')}/{name}", root / name
        store = host.ask_store(place)
        try:
            fetch = Fetch(store, folder, "last", place=place)
        except BothChangedError:  # the store has a later attempt's files
            aside = root / beside(name)
            folder.rename(aside)
            say(f"{folder} is not what the store has any more: kept as {aside}")
            fetch = Fetch(store, folder, "last", place=place)
        if {"run.json", "resolved.yaml"} <= fetch.there:  # otherwise it ended before it had started
            say(f"going on with {name}: {fetch.files} files, {fetch.size:,} bytes")
            fetch.run()
            return folder
    return None


def unsent(root: Path) -> list[Path]:
    """List the runs in a folder whose copy in the store may be incomplete."""
    return [mark.parent for mark in sorted(root.glob(f"*/{BEHIND}"))]


def fetch_results(uri: str, folder: Path) -> None:
    """Fetch the results of an evaluation from a URI, unless this machine has them."""
    if folder.is_dir() and any(folder.iterdir()):
        return
    Fetch(load_host().ask_store(uri), folder, "none").run()


def send_results(folder: Path, uri: str) -> None:
    """Send the files of an evaluation to a URI."""
    store = load_host().ask_store(uri)
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if path.is_file() and not any(part.startswith(".") for part in parts):
            store.put(path, "/".join(parts))
