"""Append-only JSON lines that survive a kill, can be truncated, and are compressed as they grow.

A stream is ``rollouts.jsonl`` plus closed segments ``rollouts.0001.jsonl.gz``, … in order. An
offset counts the uncompressed bytes of all of them, so it stays valid when a segment is closed and
compressed.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import math
import os
import re
import threading
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic_core import to_json

from rlvr_core.api import Json, RunError
from rlvr_core.record.files import sync_folder, write_atomic, write_failed

SEGMENT_BYTES = 8_000_000
"""Size at which a growing file is closed and compressed: a mirror sends a growing file whole, again
and again."""

# characters JSON does not escape, but that act on a terminal or end a line for some readers
_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029]")


class Stream:
    """One append-only file of JSON lines; each ``write`` appends a line.

    Args:
        path: The growing file; its segments lie beside it.
        segment_bytes: Size at which it is closed and compressed; None for never.
    """

    def __init__(self, path: Path, *, segment_bytes: int | None = SEGMENT_BYTES) -> None:
        self.path = path
        self._segment_bytes = segment_bytes
        self._lock = threading.Lock()
        self._file = -1
        with self._writing():
            self._open()

    def write(self, line: Mapping[str, Json]) -> None:
        """Append one line.

        Raises:
            RunError: If it cannot be written; the file is then truncated to its previous end.
        """
        data = encode(line)
        with self._writing():
            self._append(data)
            if self._segment_bytes is not None and self._bytes >= self._segment_bytes:
                self._close_segment()

    def offset(self) -> int:
        """Return the offset of the next line, in bytes of the whole stream."""
        with self._lock:
            return self._closed_bytes + self._bytes

    def sync(self) -> None:
        """Flush everything written so far to disk.

        Raises:
            RunError: If the flush fails.
        """
        with self._writing():
            os.fsync(self._file)
            sync_folder(self.path.parent)

    def rewind(self, offset: int) -> bool:
        """Truncate the stream to ``offset``; an interrupted call can be repeated.

        Returns:
            Whether the stream was at least that long; if not, it now ends after its last whole
            line.

        Raises:
            RunError: If the files cannot be changed.
        """
        with self._writing():
            os.close(self._file)
            self._file = -1
            reached = self._cut(offset)
            self._open()
        return reached

    def close(self) -> None:
        """Close the file; safe to call twice."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        with self._lock:
            try:
                yield
            except OSError as error:
                raise write_failed(error, self.path) from error

    def _open(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._bytes = os.fstat(self._file).st_size
        self._closed_bytes = sum(map(_raw_size, segments(self.path)))

    def _append(self, data: bytes) -> None:
        written = 0
        try:
            while written < len(data):  # a full disk may accept a part and then refuse
                written += os.write(self._file, data[written:])
        except OSError:
            if written:
                os.ftruncate(self._file, self._bytes)
            raise
        self._bytes += len(data)

    def _close_segment(self) -> None:
        last = segments(self.path)[-1:]
        number = int(_NUMBER.findall(last[0].name)[-1]) + 1 if last else 1
        closed = self.path.with_name(f"{self.path.stem}.{number:04d}.jsonl")
        full = self._file
        os.fsync(full)
        self.path.rename(closed)
        self._open()
        os.close(full)
        _compress_closed(self.path)

    def _cut(self, offset: int) -> bool:
        before = 0
        closed = segments(self.path)
        for position, segment in enumerate(closed):
            raw = _raw_size(segment)
            if offset <= before + raw:
                # this segment becomes the growing file; it is moved last, so that after a kill
                # half-way the same truncation can be made again
                with open_segment(segment) as source:
                    kept = source.read(offset - before)
                write_atomic(self.path, kept)
                for later in reversed(closed[position:]):
                    # a kill during compression leaves both files
                    later.with_name(f"{later.name}.gz").unlink(missing_ok=True)
                    later.unlink()
                sync_folder(self.path.parent)
                return True
            before += raw
        if not self.path.exists():
            return offset <= before
        here = self.path.stat().st_size
        reached = offset <= before + here
        os.truncate(self.path, offset - before if reached else whole_lines(self.path))
        return reached


_NUMBER = re.compile(r"\.(\d{4,})\.jsonl(?:\.gz)?$")


def segments(path: Path) -> list[Path]:
    """List the closed segments of the stream at ``path``, oldest first."""
    by_number: dict[int, Path] = {}
    for candidate in sorted(path.parent.glob(f"{path.stem}.*.jsonl*")):
        match = _NUMBER.search(candidate.name)
        if match and candidate.name == f"{path.stem}{match.group()}":
            # both files exist if compression was interrupted: the uncompressed one is complete
            if int(match[1]) in by_number and candidate.suffix == ".gz":
                continue
            by_number[int(match[1])] = candidate
    return [by_number[number] for number in sorted(by_number)]


def read_jsonl(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a stream, closed segments first.

    A missing file has no lines. A line that is not a JSON object (incomplete after a kill, or
    damaged) is skipped.
    """
    for part in [*segments(path), path]:
        try:
            with open_segment(part) as file:
                for raw in file:
                    line = parse_line(raw)
                    if line is not None:
                        yield line
        except FileNotFoundError:
            continue
        except (EOFError, zlib.error, gzip.BadGzipFile):
            continue  # a damaged segment is read up to the damage


def encode(line: Mapping[str, Json]) -> bytes:
    """Encode one line of valid JSON with its newline; non-finite numbers become null."""
    try:
        # ten times as fast as json: a line has every token of a group
        data = to_json(line, inf_nan_mode="null")
    except ValueError:  # lone surrogates, which UTF-8 cannot express, or nested deeply
        data = json.dumps(finite_json(line), allow_nan=False, separators=(",", ":")).encode()
    if not data.isascii() or b"\x7f" in data:  # most lines are: no search
        data = _ESCAPED.sub(lambda match: f"\\u{ord(match.group()):04x}", data.decode()).encode()
    return data + b"\n"


def finite_json(value: Any) -> Json:
    """Return a JSON value with null in place of each number that is not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite_json(item) for item in value]
    return value


def parse_line(raw: bytes) -> dict[str, Any] | None:
    """Parse a line; None if it is incomplete, damaged or not an object."""
    if not raw.endswith(b"\n"):
        return None
    try:
        line = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, dict) else None


def open_segment(path: Path) -> Any:
    """Open a file of a stream for reading, compressed or not."""
    if path.suffix != ".gz":
        try:
            return path.open("rb")
        except FileNotFoundError:
            path = path.with_name(f"{path.name}.gz")  # compressed since it was listed
    return gzip.open(path, "rb")


def _raw_size(segment: Path) -> int:
    if segment.suffix != ".gz":
        return segment.stat().st_size
    with segment.open("rb") as file:  # gzip's trailer holds the uncompressed size
        file.seek(-4, os.SEEK_END)
        return int.from_bytes(file.read(4), "little")


def _compress_closed(path: Path) -> None:
    """Compress the closed segments of a stream, including those left by a killed process."""
    for litter in path.parent.glob(f".{path.stem}.*.jsonl.gz.tmp-*"):
        litter.unlink(missing_ok=True)
    for closed in segments(path):
        if closed.suffix != ".gz":
            # without room it stays as it is, and the next write meets the same error
            with contextlib.suppress(RunError, OSError):
                packed = gzip.compress(closed.read_bytes(), compresslevel=1, mtime=0)
                write_atomic(closed.with_name(f"{closed.name}.gz"), packed)
                closed.unlink()


def whole_lines(path: Path) -> int:
    """Return the length of a file in bytes up to its last newline."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - 65536)
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            end = start
    return 0
