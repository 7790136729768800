"""Builds the index of a run in the background, and keeps it up to date with a growing file.

If two viewers are open, a lock file beside the index lets one of them build; both read what is
there so far. An index that no longer fits its files (the run resumed from an earlier checkpoint, or
another run has taken its folder) is rebuilt from scratch.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from rlvr_core.record.jsonl import open_segment, parse_line
from rlvr_view.viewer.index import Cache, add_group, connect, remove
from rlvr_view.viewer.stream import DAMAGE, TAIL, Part, lines_from, parts

COMMIT_EVERY = 0.3
"""Seconds between commits, after which readers see new rows."""
LOOK_EVERY = 1.0
"""Seconds between two looks at the files of a run."""
FIRST_LOOK = 0.4
"""Seconds that a run's first request waits for its index; enough for most runs."""
GLANCE = 0.05
"""As above, for a page that shows only how many rollouts were read."""
FORGET_AFTER = 60.0
"""Seconds without a request after which a run is no longer followed."""


class StoppedError(Exception):
    """The viewer is ending while an index is being built."""


def update(file: Path, stream: Path, stop: threading.Event) -> None:
    """Bring an index up to date with its stream.

    Raises:
        StoppedError: If ``stop`` was set meanwhile; what was read so far stays.
        sqlite3.Error: If the index cannot be written.
    """
    with closing(connect(file)) as index:
        files = parts(stream)
        if not _fits(index, files):
            _empty(index)
        total = sum(part.raw_size() for part in files)
        for part in files:
            known = index.execute("SELECT * FROM parts WHERE number = ?", (part.number,)).fetchone()
            if known is not None and (known["size"], known["changed"]) == (part.size, part.changed):
                continue
            if not _read(index, part, known, total, stop):
                return  # what follows it waits for the next look, so that groups stay in order
        done = index.execute("SELECT sum(done) FROM parts").fetchone()[0] or 0
        index.execute("INSERT OR REPLACE INTO progress VALUES (1, ?, ?)", (done, done))


def _fits(index: sqlite3.Connection, files: list[Part]) -> bool:
    """Return whether the files still hold the indexed content."""
    by_number = {part.number: part for part in files}
    try:
        return all(
            known["number"] in by_number and _same(known, by_number[known["number"]])
            for known in index.execute("SELECT * FROM parts")
        )
    except FileNotFoundError:
        return True  # closed or compressed since it was listed: the next look compares it


def _same(known: sqlite3.Row, part: Part) -> bool:
    if (known["size"], known["changed"]) == (part.size, part.changed):
        return True
    if known["damaged"]:
        return False
    if not part.compressed:
        return bool(part.size >= known["done"] and part.tail(known["done"]) == known["tail"])
    crc, size = part.trailer()
    if size == known["done"]:
        return bool(crc == known["crc"])
    return bool(size > known["done"] and _crc_of_start(part, known["done"]) == known["crc"])


def _crc_of_start(part: Part, length: int) -> int:
    crc = 0
    with suppress(*DAMAGE), open_segment(part.path) as file:
        while length > 0 and (block := file.read(min(length, 1 << 20))):
            crc = zlib.crc32(block, crc)
            length -= len(block)
    return crc


def _empty(index: sqlite3.Connection) -> None:
    index.execute("BEGIN IMMEDIATE")
    for table in ("completions", "texts", "groups", "parts", "progress"):
        index.execute(f"DELETE FROM {table}")
    index.execute("COMMIT")


def _read(
    index: sqlite3.Connection,
    part: Part,
    known: sqlite3.Row | None,
    total: int,
    stop: threading.Event,
) -> bool:
    """Index a file's lines from the last indexed one; False if the file is no longer there."""
    done, crc, skipped = (known["done"], known["crc"], known["skipped"]) if known else (0, 0, 0)
    before = index.execute(
        "SELECT coalesce(sum(done), 0) FROM parts WHERE number <> ?", (part.number,)
    ).fetchone()[0]
    damaged, due = 0, time.monotonic() + COMMIT_EVERY
    tail = b""
    index.execute("BEGIN IMMEDIATE")

    def keep(*, whole: bool) -> None:
        # size 0 marks a file that was not read to its end, so that the next look continues it
        size, changed = (part.size, part.changed) if whole else (0, 0)
        cells = (part.number, done, crc, zlib.crc32(tail), size, changed, damaged, skipped)
        index.execute("INSERT OR REPLACE INTO parts VALUES (?, ?, ?, ?, ?, ?, ?, ?)", cells)
        index.execute("INSERT OR REPLACE INTO progress VALUES (1, ?, ?)", (before + done, total))
        index.execute("COMMIT")

    try:
        with open_segment(part.path) as file:
            if os.fstat(file.fileno()).st_ino != part.inode:
                index.execute("ROLLBACK")  # closed or compressed since it was listed
                return False
            if done:
                file.seek(max(0, done - TAIL))
                tail = file.read(min(done, TAIL))
            for line in lines_from(file, done, crc):
                row = parse_line(line.content) if line.content is not None else None
                if row is None or not add_group(index, (part.number, done, line.length), row):
                    skipped += 1
                done, crc, tail = done + line.length, line.crc, (tail + line.end)[-TAIL:]
                if time.monotonic() > due:
                    keep(whole=False)
                    if stop.is_set():
                        raise StoppedError
                    index.execute("BEGIN IMMEDIATE")
                    due = time.monotonic() + COMMIT_EVERY
    except FileNotFoundError:
        index.execute("ROLLBACK")
        return False
    except DAMAGE:
        damaged = 1
    keep(whole=True)
    return True


class Follower:
    """Follows the runs that are being viewed, each in its own thread.

    Args:
        cache: The folder of indexes.
    """

    def __init__(self, cache: Cache) -> None:
        self.cache = cache
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._last_request: dict[Path, float] = {}
        self._threads: dict[Path, threading.Thread] = {}
        self._firsts: dict[Path, tuple[float, threading.Event]] = {}
        self.faults: dict[Path, str] = {}

    def follow(self, run: Path, stream: Path, patience: float = FIRST_LOOK) -> Path:
        """Keep the index of a run up to date for a while; return its file.

        Args:
            run: The run's folder.
            stream: The run's rollouts.
            patience: Maximum seconds to wait for the index, from the start of its first build.
        """
        file = self.cache.file(run)
        with self._lock:
            now = self._last_request[file] = time.monotonic()
            running = self._threads.get(file)
            if (running is None or not running.is_alive()) and not self._stop.is_set():
                read = threading.Event()
                thread = threading.Thread(
                    target=self._follow, args=(file, stream, read), daemon=True
                )
                self._threads[file], self._firsts[file] = thread, (now, read)
                self.cache.used(file)
                thread.start()
            begun, read = self._firsts.get(file, (now - patience, threading.Event()))
        read.wait(max(0.0, begun + patience - now))
        return file

    def close(self) -> None:
        """End the threads."""
        self._stop.set()
        for thread in list(self._threads.values()):
            thread.join(timeout=5)

    def _follow(self, file: Path, stream: Path, read: threading.Event) -> None:
        before: list[Part] | None = None
        while not self._stop.is_set():
            files = parts(stream)
            if files != before:
                try:
                    with building(file) as alone:
                        if alone:
                            update(file, stream, self._stop)
                            before = files
                    self.faults.pop(file, None)
                except StoppedError:
                    return
                except (OSError, sqlite3.Error) as error:
                    self.faults[file] = str(error)
                    if not isinstance(error, OSError | sqlite3.OperationalError):
                        remove(file)  # it is damaged
            read.set()
            self._stop.wait(LOOK_EVERY)
            with self._lock:
                if time.monotonic() - self._last_request[file] > FORGET_AFTER:
                    del self._threads[file]
                    return


@contextmanager
def building(file: Path) -> Iterator[bool]:
    """Hold the lock for building an index; yield False if another viewer holds it."""
    descriptor = os.open(file.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        except OSError:
            pass  # the file system has no locks; SQLite's own still keep the index whole
        yield True
    finally:
        os.close(descriptor)
