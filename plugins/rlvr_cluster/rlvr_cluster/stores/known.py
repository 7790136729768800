"""Records what a run's folder and its place in a store had in common: ``.store.json``.

For each file that was sent or fetched, it holds the tag in the store and the size, time and hash
of the local file. This shows what has changed since: the stored file has another tag, or the local
file has other content.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rlvr_core.toolkit import write_atomic

KNOWN = ".store.json"
"""Name of the record in a run's folder."""

_HASHED = 64 << 20
"""Files up to this size are compared by content when their time has changed."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The state of a file when the local and the stored copy were last the same.

    Attributes:
        tag: Tag in the store.
        size: Size of the local file in bytes.
        mtime_ns: Modification time of the local file.
        sha256: Hash of the local file; empty for large files and for parts of files.
    """

    tag: str
    size: int
    mtime_ns: int
    sha256: str = ""


class Known:
    """The record of what a folder and its place in a store had in common.

    Args:
        folder: The run's folder.
        place: URI of the run in the store; a record of another place is ignored.

    Attributes:
        files: Last common state of each file, by key.
        nonces: Nonces of the owner objects that this folder has written or was about to write.
        fetched: Whether the folder came from the store.
    """

    def __init__(self, folder: Path, place: str = "") -> None:
        self._folder = folder
        self.place = place
        self.files: dict[str, Seen] = {}
        self.nonces: list[str] = []
        self.fetched = False
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            data: dict[str, Any] = json.loads((folder / KNOWN).read_text(encoding="utf-8"))
            if not place or data["place"] in ("", place):
                self.place = data["place"] or place
                self.nonces = [str(nonce) for nonce in data["nonces"]]
                self.fetched = bool(data["fetched"])
                self.files = {key: Seen(**fields) for key, fields in data["files"].items()}

    def save(self) -> None:
        """Write the record; do nothing if the folder is gone."""
        if not self._folder.is_dir():
            return
        data = {
            "place": self.place,
            "fetched": self.fetched,
            "nonces": self.nonces[-4:],
            "files": {key: asdict(seen) for key, seen in self.files.items()},
        }
        write_atomic(self._folder / KNOWN, json.dumps(data, indent=0) + "\n")

    def note(
        self, key: str, tag: str, path: Path, state: tuple[int, int], *, whole: bool = True
    ) -> None:
        """Record that a local file and its copy in the store are the same.

        Args:
            key: Key in the store.
            tag: Tag in the store.
            path: The local file.
            state: Size and ``mtime_ns`` when it was sent or fetched.
            whole: Whether all of the file is in the store, so that its hash can be compared later.
        """
        digest = _digest(path) if whole and state[0] <= _HASHED else ""
        self.files[key] = Seen(tag, *state, digest)

    def changed_here(self, key: str, path: Path) -> bool:
        """Return whether a local file differs from the one that was sent or fetched.

        A missing file counts as unchanged, because it can be fetched again.
        """
        try:
            stat = path.stat()
        except OSError:
            return False
        seen = self.files.get(key)
        if seen is None:
            return True
        if (stat.st_size, stat.st_mtime_ns) == (seen.size, seen.mtime_ns):
            return False
        if stat.st_size == seen.size and not seen.sha256:
            return not key.startswith("checkpoints/")  # a checkpoint's files are never rewritten
        return stat.st_size != seen.size or _digest(path) != seen.sha256


def hidden(key: str) -> bool:
    """Return whether a stored file is not part of the run: the owner object, probes, ``.kept``."""
    return any(part.startswith(".") and part not in (".", "..") for part in key.split("/"))


def begins_with(path: Path, start: Path) -> bool:
    """Return whether a file begins with the content of another."""
    try:
        with path.open("rb") as long, start.open("rb") as short:
            while block := short.read(1 << 20):
                if long.read(len(block)) != block:
                    return False
    except FileNotFoundError:
        return False
    return True


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
