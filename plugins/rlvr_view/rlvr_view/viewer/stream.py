"""The files of a run's rollouts: lists them, sees changes, and reads single lines.

A place is the number of a file and an offset in its uncompressed bytes. It stays valid when the
growing file is closed and compressed, since the closed file keeps the number.
"""

from __future__ import annotations

import errno
import gzip
import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from rlvr_core.record.jsonl import open_segment, parse_line, segments

LONGEST_LINE = 64_000_000
"""Longer lines are skipped, so that memory stays bounded whatever a run wrote."""
TAIL = 4096
"""Bytes at the end of the part read so far that must not have changed."""
DAMAGE = (OSError, EOFError, zlib.error, gzip.BadGzipFile)

_MOST = 1032
"""Maximum uncompressed bytes for one compressed byte."""
_NUMBER = re.compile(r"\.(\d{4,})\.jsonl(?:\.gz)?$")


@dataclass(frozen=True, slots=True)
class Part:
    """One file of a stream.

    Attributes:
        number: Number of the file in the stream, from 1.
        path: The file.
        size: Bytes on the disk.
        changed: Time of its last change in nanoseconds.
        inode: Inode of the file.
    """

    number: int
    path: Path
    size: int
    changed: int
    inode: int

    @property
    def compressed(self) -> bool:
        """Whether it is gzipped."""
        return self.path.suffix == ".gz"

    def trailer(self) -> tuple[int, int]:
        """Return CRC-32 and size of the content from gzip's trailer; (0, 0) if there is none."""
        with self.path.open("rb") as file:
            if file.seek(0, os.SEEK_END) < 18:
                return 0, 0
            file.seek(-8, os.SEEK_END)
            raw = file.read(8)
        return int.from_bytes(raw[:4], "little"), int.from_bytes(raw[4:], "little")

    def raw_size(self) -> int:
        """Return the number of bytes of its content; for a damaged compressed file, an estimate."""
        return min(self.trailer()[1], self.size * _MOST) if self.compressed else self.size

    def tail(self, end: int) -> int:
        """Return the CRC-32 of the last bytes before ``end`` of an uncompressed file.

        Raises:
            FileNotFoundError: If another file has its name by now.
        """
        start = max(0, end - TAIL)
        with self.path.open("rb") as file:
            if os.fstat(file.fileno()).st_ino != self.inode:
                raise FileNotFoundError(errno.ENOENT, "closed since it was listed", str(self.path))
            file.seek(start)
            return zlib.crc32(file.read(end - start))


def parts(stream: Path) -> list[Part]:
    """List the files of a stream in order; empty if there are none."""
    files = []
    closed = segments(stream)
    numbers = [int(_NUMBER.findall(path.name)[-1]) for path in closed]
    for number, path in [*zip(numbers, closed, strict=True), (max(numbers, default=0) + 1, stream)]:
        try:
            status = path.stat()
        except OSError:
            continue  # compressed or removed since it was listed: the next look finds it
        files.append(Part(number, path, status.st_size, status.st_mtime_ns, status.st_ino))
    return files


@dataclass(frozen=True, slots=True)
class Line:
    """One whole line of a file.

    Attributes:
        length: Length in bytes.
        content: The line; None where it is too long to be read.
        crc: CRC-32 of the file up to its end.
        end: The last bytes.
    """

    length: int
    content: bytes | None
    crc: int
    end: bytes


def lines_from(file: IO[bytes], offset: int, crc: int) -> Iterator[Line]:
    """Yield each whole line from ``offset`` on; ``crc`` is that of everything before it."""
    file.seek(offset)
    while raw := file.readline(LONGEST_LINE):
        crc, length = zlib.crc32(raw, crc), len(raw)
        if raw.endswith(b"\n"):
            yield Line(length, raw, crc, raw[-TAIL:])
            continue
        if length < LONGEST_LINE:
            return  # a kill, or a write under way, leaves an incomplete line
        end = raw[-TAIL:]
        while raw and not raw.endswith(b"\n"):
            raw = file.readline(1 << 20)
            crc, length, end = zlib.crc32(raw, crc), length + len(raw), (end + raw)[-TAIL:]
        if raw:
            yield Line(length, None, crc, end)


def read_rows(
    stream: Path, places: list[tuple[int, int, int]]
) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """Yield the rows at places, in the order of the files, each with its index in ``places``.

    Args:
        stream: The stream.
        places: Number of the file, offset, length.

    Yields:
        None where the row is no longer there or is damaged.
    """
    files = {part.number: part.path for part in parts(stream)}
    order = sorted(range(len(places)), key=places.__getitem__)
    opened: int | None = None
    file: Any = None
    try:
        for index in order:
            number, offset, length = places[index]
            try:
                if number != opened:
                    if file is not None:
                        file.close()
                    opened, file = number, open_segment(files[number])
                file.seek(offset)
                yield index, parse_line(file.read(length))
            except (KeyError, *DAMAGE):
                yield index, None
    finally:
        if file is not None:
            file.close()
