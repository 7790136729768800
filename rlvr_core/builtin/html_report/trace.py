"""Reads a trace of any size: all of it if that is quick, else every k-th line."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from rlvr_core.api.services import open_segment, parse_line, segments

BUDGET = 256_000_000
"""Maximum bytes of a trace to parse; takes a few seconds."""
LONGEST_LINE = 64_000_000
"""Longer lines are skipped, so that memory stays bounded whatever a run wrote."""


_MOST = 1032
"""Maximum uncompressed bytes for one compressed byte."""


class Trace:
    """The lines of a stream of a run, thinned out evenly where it is large.

    Args:
        path: The growing file of the stream; its closed segments lie beside it.
        budget: Maximum bytes to parse.

    Attributes:
        every: One line in this many is read.
        damaged: Names of files that could not be read to their ends.
        too_long: Number of lines that were skipped because of their length.
    """

    def __init__(self, path: Path, budget: int = BUDGET) -> None:
        self._parts = [*segments(path), path]
        self.every = max(1, -(-sum(map(_raw_bytes, self._parts)) // budget))
        self.damaged: list[str] = []
        self.too_long = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        number = 0
        for part in self._parts:
            try:
                with open_segment(part) as file:
                    for raw in self._whole_lines(file):
                        line = parse_line(raw) if number % self.every == 0 else None
                        number += 1
                        if line is not None:
                            yield line
            except FileNotFoundError:
                continue
            except (OSError, EOFError, zlib.error, gzip.BadGzipFile):
                self.damaged.append(part.name)

    def _whole_lines(self, file: IO[bytes]) -> Iterator[bytes]:
        while raw := file.readline(LONGEST_LINE):
            if raw.endswith(b"\n"):
                yield raw
            elif len(raw) == LONGEST_LINE:
                self.too_long += 1
                while raw and not raw.endswith(b"\n"):
                    raw = file.readline(LONGEST_LINE)


def _raw_bytes(part: Path) -> int:
    """Return the size of a file's uncompressed content."""
    try:
        with part.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            if part.suffix != ".gz" or size < 4:
                return size
            file.seek(-4, os.SEEK_END)  # gzip's trailer; of a file that was cut off, anything
            return min(int.from_bytes(file.read(4), "little"), size * _MOST)
    except OSError:
        return 0
