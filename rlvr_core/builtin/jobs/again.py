"""What another machine has begun: fetched, so that it can go on here, and sent back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rlvr_core.api.services import load_host
from rlvr_core.builtin.jobs.fetch import Fetch, runs_in
from rlvr_core.builtin.jobs.mirror import BEHIND


def fetch_newest(uri: str, root: Path, say: Callable[[str], None]) -> Path | None:
    """Fetch the newest run of a mirror, with its newest and its best checkpoint.

    Args:
        uri: Where run folders are, as ``run.mirror`` named it.
        root: Folder of run folders.
        say: Told what is fetched.

    Returns:
        The run's folder; None where no run has got far enough to go on.

    Raises:
        MachineError: If the store fails.
    """
    host = load_host()
    for name in reversed(runs_in(host.ask_store(uri))):
        folder = root / name
        fetch = Fetch(host.ask_store(f"{uri.rstrip('/')}/{name}"), folder, "last")
        if {"run.json", "resolved.yaml"} <= fetch.there:  # else it ended before it had begun
            say(f"going on with {name}: {fetch.files} files, {fetch.size:,} bytes")
            fetch.run()
            return folder
    return None


def unsent(root: Path) -> list[Path]:
    """The runs in a folder of which a store is not known to have everything."""
    return [mark.parent for mark in sorted(root.glob(f"*/{BEHIND}"))]


def fetch_results(uri: str, folder: Path) -> None:
    """Fetch what an evaluation has left at a URI, if it has left anything."""
    Fetch(load_host().ask_store(uri), folder, "none").run()


def send_results(folder: Path, uri: str) -> None:
    """Send the files of an evaluation to a URI."""
    store = load_host().ask_store(uri)
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if path.is_file() and not any(part.startswith(".") for part in parts):
            store.put(path, "/".join(parts))
