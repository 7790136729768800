"""Reads the difference of trainer and engine log-probs by token, as ``gaps_guard.py`` writes it."""

from __future__ import annotations

import base64
import binascii
import gzip
import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlvr_core.record.jsonl import open_segment, parse_line, segments


def add_gaps(row: dict[str, Any], traces: Path) -> None:
    """Add ``gaps`` to each completion of a group: trainer - engine log-prob of each token, in nats.

    Each branch of a conversation gets its own gaps. NaN marks a token outside the loss. A
    completion without a record is left unchanged.

    Args:
        row: The group as recorded.
        traces: The run's folder of traces.
    """
    recorded = _of_step(traces / "gaps.jsonl", row.get("step"))
    for completion in row["completions"]:
        if not isinstance(completion, dict):
            continue
        for prompt, part in (
            (row, completion),
            *((branch, branch) for branch in branches_of(completion)),
        ):
            key = key_of(prompt.get("prompt_ids"), part.get("token_ids"))
            if gaps := _decoded(recorded.get(key), part):
                part["gaps"] = gaps


def branches_of(completion: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the branches that a completion was recorded with."""
    branches = completion.get("branches")
    return (
        [branch for branch in branches if isinstance(branch, dict)]
        if isinstance(branches, list)
        else []
    )


def _of_step(path: Path, step: Any) -> Mapping[str, Any]:
    """Return the last record of a step; lines of other steps are not parsed."""
    # earlier versions wrote a space here
    begin = (b'{"step":%d,' % step, b'{"step": %d,' % step) if isinstance(step, int) else b"\n"
    recorded: Mapping[str, Any] = {}
    for part in [*segments(path), path]:
        try:
            with open_segment(part) as file:
                for raw in file:
                    if raw.startswith(begin) and (line := parse_line(raw)):
                        gaps = line.get("gaps")
                        recorded = gaps if isinstance(gaps, dict) else {}
        except (OSError, EOFError, zlib.error, gzip.BadGzipFile):
            continue
    return recorded


def key_of(prompt_ids: Sequence[int] | None, token_ids: Sequence[int] | None) -> str:
    """Return the key of a completion: a hash of its prompt and tokens."""
    text = json.dumps([prompt_ids, token_ids])
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _decoded(value: Any, completion: Mapping[str, Any]) -> list[float]:
    tokens = completion.get("token_ids")
    if not isinstance(value, str) or not isinstance(tokens, list):
        return []
    try:
        data = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return []
    if len(data) != 2 * len(tokens):
        return []
    gaps: list[float] = np.frombuffer(data, "<f2").astype(float).tolist()
    return gaps
