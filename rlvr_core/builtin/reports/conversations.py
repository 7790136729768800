"""``rlvr show --conversation``: prints a conversation turn by turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from rlvr_core.api import ConfigError, RunView
from rlvr_core.api.services import RunFolder, answers, printable, read_jsonl

LISTED = 20
"""Number of conversations listed when a name matches several."""


def find_conversations(folder: RunFolder, requested: str) -> list[Mapping[str, Any]]:
    """Return the conversation of this id, in training or evaluation; else all whose id contains it.

    Raises:
        ConfigError: If there is none.
    """
    near: list[Mapping[str, Any]] = []
    for row in _conversations(folder):
        if row.get("id") == requested:
            return [row]
        if requested in str(row.get("id")):
            near.append(row)
    if not near:
        some = [str(row.get("id")) for row in islice(_conversations(folder), 3)]
        known = f"it has: {', '.join(some)}" if some else "it has none: no problem was played"
        raise ConfigError(
            f"the run has no conversation '{requested}'", where=str(folder.path), remedy=known
        )
    return near


def lines(found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines of one conversation, or a list of several; safe on a terminal."""
    if len(found) == 1:
        yield from _full(found[0])
        return
    for row in found[-LISTED:]:
        yield _head(row)
    if len(found) > LISTED:
        yield f"and {len(found) - LISTED} earlier ones"


def _conversations(folder: RunFolder) -> Iterator[Mapping[str, Any]]:
    yield from read_jsonl(folder.traces / "conversations.jsonl")
    for line in RunView(folder).evaluations:
        for row in answers(folder, line):
            transcript = row.get("transcript")
            if isinstance(transcript, dict):
                place = f"{line.get('task')}@{line.get('step')}"
                id_ = f"{place}:{row.get('problem_id')}.{row.get('sample')}"
                yield {**row, **transcript, "id": id_, "step": line.get("step")}


def _head(row: Mapping[str, Any]) -> str:
    passed = {True: "right", False: "wrong"}.get(row.get("passed"), "not judged")  # type: ignore[arg-type]
    turns = sum(turn.get("role") == "assistant" for turn in row.get("turns", []))
    heading = f"{row.get('id')}  {turns} turns, {row.get('ended')}, {passed}"
    return printable(heading)


def _full(row: Mapping[str, Any]) -> Iterator[str]:
    yield _head(row)
    facts = {
        "environment": row.get("environment"),
        "reward": row.get("reward"),
        "counts": ", ".join(f"{k} {v:g}" for k, v in (row.get("counts") or {}).items()),
        "detail": row.get("detail"),
    }
    facts |= {
        name: " ".join(str(part) for part in (verdict.get("score"), verdict.get("detail")) if part)
        for name, verdict in (row.get("verdicts") or {}).items()
    }
    yield from (printable(f"  {name:<12} {fact}") for name, fact in facts.items() if fact)
    yield from _turn_lines([{"role": "prompt", "text": row.get("prompt")}, *row.get("turns", [])])
    branches = row.get("branches") or []
    for number, branch in enumerate(branches, start=1):
        yield from ("", f"branch {number} of {len(branches)}, with the same reward")
        yield from _turn_lines((branch.get("transcript") or {}).get("turns", []))


def _turn_lines(turns: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for turn in turns:
        yield from ("", f"  {turn.get('role')}")
        # each line is prefixed by a bar, so that none can imitate our output
        text = printable(str(turn.get("text") or ""))
        yield from (f"  | {line}" for line in text.split("\n"))
