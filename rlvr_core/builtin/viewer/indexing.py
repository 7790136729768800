"""Builds the index of a run in the background, and keeps it in step with a file that grows.

Of two viewers one builds, by a lock on a file beside the index, and both read what is there so
far. An index that does not fit its files (the run went on from an earlier checkpoint, or another
run has its place) is built again from nothing.
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

from rlvr_core.api.services import open_segment, parse_line
from rlvr_core.builtin.viewer.index import Cache, add_group, connect, remove
from rlvr_core.builtin.viewer.stream import DAMAGE, TAIL, Part, lines_from, parts

COMMIT_EVERY = 0.3
"""Seconds after which what was read can be seen."""
LOOK_EVERY = 1.0
"""Seconds between two looks at the files of a run."""
FIRST_LOOK = 0.4
"""Seconds that the first request of a run waits for its index, which most are read in."""
GLANCE = 0.05
"""The same of a page that shows none of the rollouts, but how many were read."""
FORGET_AFTER = 60.0
"""Seconds without a request after which a run is no longer followed."""


class StoppedError(Exception):
    """The viewer ends while an index is being built."""


def update(file: Path, stream: Path, stop: threading.Event) -> None:
    """Bring an index in step with its stream.

    Raises:
        StoppedError: If ``stop`` was set on the way; what was read so far stays.
        sqlite3.Error: If the index cannot be written.
    """
    with closing(connect(file)) as index:
        found = parts(stream)
        if not _fits(index, found):
            _empty(index)
        total = sum(part.raw_size() for part in found)
        for part in found:
            known = index.execute("SELECT * FROM parts WHERE number = ?", (part.number,)).fetchone()
            if known is not None and (known["size"], known["changed"]) == (part.size, part.changed):
                continue
            if not _read(index, part, known, total, stop):
                return  # what follows it waits for the next look, so that groups stay in order
        done = index.execute("SELECT sum(done) FROM parts").fetchone()[0] or 0
        index.execute("INSERT OR REPLACE INTO progress VALUES (1, ?, ?)", (done, done))


def _fits(index: sqlite3.Connection, found: list[Part]) -> bool:
    """Whether what was indexed still stands in the files."""
    there = {part.number: part for part in found}
    try:
        return all(
            known["number"] in there and _same(known, there[known["number"]])
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
    """Index the lines of a file from where it was left; False if it is not there any more."""
    done, crc, skipped = (known["done"], known["crc"], known["skipped"]) if known else (0, 0, 0)
    before = index.execute(
        "SELECT coalesce(sum(done), 0) FROM parts WHERE number <> ?", (part.number,)
    ).fetchone()[0]
    damaged, due = 0, time.monotonic() + COMMIT_EVERY
    tail = b""
    index.execute("BEGIN IMMEDIATE")

    def keep(*, whole: bool) -> None:
        # a file that was not read to its end has the size 0 here, so that it is gone on with
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
    """Follows the runs that somebody looks at, each in a thread of its own.

    Args:
        cache: Where indexes are kept.
    """

    def __init__(self, cache: Cache) -> None:
        self.cache = cache
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._asked: dict[Path, float] = {}
        self._threads: dict[Path, threading.Thread] = {}
        self._firsts: dict[Path, tuple[float, threading.Event]] = {}
        self.faults: dict[Path, str] = {}

    def follow(self, run: Path, stream: Path, patience: float = FIRST_LOOK) -> Path:
        """Keep the index of a run in step for a while; return its file.

        Args:
            run: The run's folder.
            stream: Its rollouts.
            patience: Seconds after it was begun that an index is waited for.
        """
        file = self.cache.file(run)
        with self._lock:
            now = self._asked[file] = time.monotonic()
            running = self._threads.get(file)
            if (running is None or not running.is_alive()) and not self._stop.is_set():
                read = threading.Event()
                made = threading.Thread(target=self._follow, args=(file, stream, read), daemon=True)
                self._threads[file], self._firsts[file] = made, (now, read)
                self.cache.used(file)
                made.start()
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
            found = parts(stream)
            if found != before:
                try:
                    with building(file) as alone:
                        if alone:
                            update(file, stream, self._stop)
                            before = found
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
                if time.monotonic() - self._asked[file] > FORGET_AFTER:
                    del self._threads[file]
                    return


@contextmanager
def building(file: Path) -> Iterator[bool]:
    """Hold the lock of who builds an index; False while another viewer does."""
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
