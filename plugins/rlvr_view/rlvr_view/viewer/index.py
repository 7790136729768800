"""The index of a run's rollouts: one row a group, one a completion, in SQLite.

It holds the fields to search and sort by, and where each group is in the run's files. It can be
deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from rlvr_core.api import MachineError
from rlvr_core.toolkit import cache_folder, finite
from rlvr_view.report.groups import labels_of

KEPT_DAYS = 30
"""Days after which an unused index is removed."""
VERSION = 1
"""Version of the tables; part of the file name, so that two versions of rlvr never share one."""
SEARCHED = 200_000
"""Characters of a text that are indexed for search."""

_TABLES = """
CREATE TABLE IF NOT EXISTS parts (
    number INTEGER PRIMARY KEY, done INTEGER, crc INTEGER, tail INTEGER,
    size INTEGER, changed INTEGER, damaged INTEGER, skipped INTEGER);
CREATE TABLE IF NOT EXISTS groups (
    id INTEGER PRIMARY KEY, key TEXT UNIQUE, part INTEGER, offset INTEGER, length INTEGER,
    step INTEGER, version INTEGER, sampled INTEGER, draw INTEGER, problem TEXT, dataset TEXT,
    labels TEXT, prompt TEXT, n INTEGER, judged INTEGER, passed INTEGER, reward REAL,
    tokens REAL);
CREATE TABLE IF NOT EXISTS completions (
    grp INTEGER, sample INTEGER, passed INTEGER, reward REAL, advantage REAL, fate TEXT,
    finish TEXT, status TEXT, tokens INTEGER, PRIMARY KEY (grp, sample)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS texts (
    grp INTEGER, sample INTEGER, text TEXT, told TEXT, PRIMARY KEY (grp, sample)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS groups_step ON groups (step, draw);
CREATE INDEX IF NOT EXISTS groups_problem ON groups (problem, step);
CREATE TABLE IF NOT EXISTS progress (one INTEGER PRIMARY KEY, done INTEGER, total INTEGER);
"""


class Cache:
    """The folder of indexes: the cache folder, or a temporary one if that is not writable.

    Attributes:
        folder: The folder.
        temporary: Whether it is removed when the viewer ends.
    """

    def __init__(self, folder: Path | None = None) -> None:
        preferred = folder or cache_folder() / "view"
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        try:
            preferred.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.TemporaryFile(dir=preferred):
                self.folder = preferred
            self._prune()
        except OSError:
            self._temporary = tempfile.TemporaryDirectory(prefix="rlvr-view-")
            self.folder = Path(self._temporary.name)

    @property
    def temporary(self) -> bool:
        """Whether it is removed when the viewer ends."""
        return self._temporary is not None

    def file(self, run: Path) -> Path:
        """Return the file of a run's index."""
        name = hashlib.sha256(os.fsencode(run.resolve())).hexdigest()[:24]
        return self.folder / f"{name}-{VERSION}.sqlite"

    def used(self, file: Path) -> None:
        """Mark an index as recently used, so that it is not removed."""
        with suppress(OSError):
            os.utime(file)

    def _prune(self) -> None:
        """Remove indexes that have not been used for long."""
        for file in self.folder.glob("*.sqlite"):
            with suppress(OSError):
                if time.time() - file.stat().st_mtime > KEPT_DAYS * 86_400:
                    remove(file)

    def close(self) -> None:
        """Remove a temporary folder."""
        if self._temporary is not None:
            self._temporary.cleanup()


def remove(file: Path) -> None:
    """Remove an index."""
    for name in (file.name, f"{file.name}-wal", f"{file.name}-shm"):
        file.with_name(name).unlink(missing_ok=True)


def connect(file: Path) -> sqlite3.Connection:
    """Open an index and create its tables.

    Raises:
        sqlite3.DatabaseError: If the file is not an index.
    """
    index = sqlite3.connect(file, timeout=10, isolation_level=None)
    try:
        index.execute("PRAGMA journal_mode=WAL")
        index.execute("PRAGMA synchronous=OFF")  # a lost index is built again
        index.executescript(_TABLES)
    except sqlite3.Error:
        index.close()
        raise
    index.row_factory = sqlite3.Row
    return index


@contextmanager
def reading(file: Path) -> Iterator[sqlite3.Connection]:
    """Open an index for reading; an empty one if it is missing or damaged.

    Raises:
        MachineError: If the file cannot be opened.
    """
    try:
        opened = connect(file)
    except sqlite3.OperationalError as error:
        raise MachineError(
            f"the index of the rollouts cannot be opened: {error}",
            where=str(file),
            remedy="make room there, or remove the file: it is built again",
        ) from error
    except sqlite3.DatabaseError:
        opened = sqlite3.connect(":memory:", isolation_level=None)
        opened.executescript(_TABLES)
        opened.row_factory = sqlite3.Row
    with closing(opened):
        opened.execute("PRAGMA query_only=ON")
        opened.execute("BEGIN")  # one snapshot for the whole page
        yield opened


def storable(value: Any) -> str:
    """Return text that SQLite can store: NUL and lone surrogates escaped."""
    text = str(value).replace("\x00", "\\x00")
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def add_group(
    index: sqlite3.Connection, place: tuple[int, int, int], row: Mapping[str, Any]
) -> bool:
    """Add one line of ``rollouts.jsonl``; False if it is not a group.

    Args:
        index: The index.
        place: Number of the file, offset and length of the line.
        row: The line.
    """
    step, members = row.get("step"), row.get("completions")
    if _whole(step) is None or not isinstance(members, list):
        return False
    members = [member for member in members if isinstance(member, dict)]
    passed = [member["passed"] for member in members if isinstance(member.get("passed"), bool)]
    rewards = [number for m in members if (number := _real(m.get("reward"))) is not None]
    lengths = [number for m in members if (number := _real(m.get("n_tokens"))) is not None]
    draw = _whole(row.get("draw_index"))
    cells = (
        _free_key(index, f"{step}.{draw if draw is not None else 'x'}"),
        *place,
        step,
        _whole(row.get("version")),
        _whole(row.get("sampled_version")),
        draw,
        storable(row.get("problem_id")),
        storable(row.get("dataset") or ""),
        json.dumps({storable(k): storable(v) for k, v in labels_of(row).items()}),
        storable(row.get("prompt") or "")[:SEARCHED],
        len(members),
        len(passed),
        sum(passed),
        sum(rewards) / len(rewards) if rewards else None,
        sum(lengths) / len(lengths) if lengths else None,
    )
    marks = ", ".join("?" * len(cells))
    added = index.execute(f"INSERT INTO groups VALUES (NULL, {marks})", cells).lastrowid
    index.executemany(
        "INSERT INTO completions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [(added, sample, *_completion(member, row)) for sample, member in enumerate(members)],
    )
    index.executemany(
        "INSERT INTO texts VALUES (?, ?, ?, ?)",
        [(added, sample, *_texts(member)) for sample, member in enumerate(members)],
    )
    return True


def _completion(completion: Mapping[str, Any], row: Mapping[str, Any]) -> tuple[Any, ...]:
    verdicts = _verdicts(completion)
    bad = [str(v["status"]) for v in verdicts if v.get("status") not in ("ok", None)]
    passed = completion.get("passed")
    return (
        int(passed) if isinstance(passed, bool) else None,
        _real(completion.get("reward")),
        _real(completion.get("advantage")),
        storable(completion.get("fate") or row.get("fate") or ""),
        storable(completion.get("finish_reason") or ""),
        storable(bad[0] if bad else "ok" if verdicts else ""),
        _whole(completion.get("n_tokens")),
    )


def _texts(completion: Mapping[str, Any]) -> tuple[str, str]:
    """Return a completion's text, and the details of its verdicts."""
    details = "\n".join(str(verdict.get("detail") or "") for verdict in _verdicts(completion))
    return storable(spoken_text(completion))[:SEARCHED], storable(details)[:SEARCHED]


def spoken_text(completion: Mapping[str, Any]) -> str:
    """Return the text of a completion; for a conversation, of every turn."""
    transcript = completion.get("transcript")
    turns = transcript.get("turns") if isinstance(transcript, dict) else None
    if not isinstance(turns, list):
        return str(completion.get("text") or "")
    return "\n".join(str(turn.get("text") or "") for turn in turns if isinstance(turn, dict))


def _verdicts(completion: Mapping[str, Any]) -> list[dict[str, Any]]:
    verdicts = completion.get("verdicts")
    values = verdicts.values() if isinstance(verdicts, dict) else ()
    return [value for value in values if isinstance(value, dict)]


def _free_key(index: sqlite3.Connection, key: str) -> str:
    """Return an unused key: a resumed run may have drawn the same group twice."""
    taken, free = 1, key
    while index.execute("SELECT 1 FROM groups WHERE key = ?", (free,)).fetchone():
        taken += 1
        free = f"{key}-{taken}"
    return free


def _whole(value: Any) -> int | None:
    """Return an integer that SQLite can hold, else None."""
    fits = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
    return value if fits else None


def _real(value: Any) -> float | None:
    """Return a finite number as a float, else None."""
    try:
        return None if finite(value) is None else float(value)
    except OverflowError:
        return None
