"""Reads the last lines of a run's traces."""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path
from typing import Any

from rlvr_core.api.services import open_segment, parse_line, segments


def tail_jsonl(path: Path, n: int) -> list[dict[str, Any]]:
    """Return the last ``n`` complete lines of a stream, without reading all of a large one."""
    if n <= 0:
        return []
    lines: list[dict[str, Any]] = []
    for part in [path, *reversed(segments(path))]:
        found = [parse_line(raw) for raw in _last_raw(part, n - len(lines))]
        lines = [line for line in found if line is not None] + lines
        if len(lines) >= n:
            break
    return lines[-n:]


def _last_raw(part: Path, n: int) -> list[bytes]:
    """Return the last ``n`` complete lines, and an incomplete one after them if there is one."""
    if part.suffix == ".gz":
        with open_segment(part) as file:
            return list(deque(file, maxlen=n))
    if not part.is_file():
        return []
    with part.open("rb") as file:
        start = file.seek(0, os.SEEK_END)
        data = b""
        while start > 0 and data.count(b"\n") <= n:
            block = min(start, max(65536, len(data)))
            start -= block
            file.seek(start)
            data = file.read(block) + data
    return data.splitlines(keepends=True)[-n - 1 :] if start == 0 else _after_first(data)[-n - 1 :]


def _after_first(data: bytes) -> list[bytes]:
    return data[data.index(b"\n") + 1 :].splitlines(keepends=True)
