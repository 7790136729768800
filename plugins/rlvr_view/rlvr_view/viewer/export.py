"""Export chosen completions: lines as recorded, or answers for supervised fine-tuning."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr_core.record.jsonl import encode
from rlvr_view.viewer.choice import SORTS, Choice
from rlvr_view.viewer.stream import read_rows

KINDS = ("jsonl", "sft")


@dataclass(frozen=True, slots=True)
class Selection:
    """The exported part.

    Attributes:
        places: File, offset and length of the line of each group.
        keys: The key of each group.
        samples: Indices of the chosen completions of each group.
    """

    places: list[tuple[int, int, int]]
    keys: list[str]
    samples: list[set[int]]


def select(index: sqlite3.Connection, choice: Choice) -> Selection:
    """Return the groups and completions that fit a choice, on all pages."""
    where, values = choice.groups()
    inner, inner_values = choice.completions()
    groups = index.execute(
        f"SELECT g.id, g.key, g.part, g.offset, g.length FROM groups g WHERE {where} "
        f"ORDER BY {SORTS[choice.sort]}",
        values,
    ).fetchall()
    samples: dict[int, set[int]] = {}
    for grp, sample in index.execute(
        f"SELECT c.grp, c.sample FROM completions c JOIN groups g ON g.id = c.grp "
        f"WHERE {where} AND {inner}",
        [*values, *inner_values],
    ):
        samples.setdefault(grp, set()).add(sample)
    return Selection(
        [(row["part"], row["offset"], row["length"]) for row in groups],
        [row["key"] for row in groups],
        [samples.get(row["id"], set()) for row in groups],
    )


def recorded(stream: Path, selection: Selection) -> Iterator[bytes]:
    """Yield each group's line as recorded, with only the chosen completions.

    Each completion gets a field ``sample``, its index in the group.
    """
    for place, row in read_rows(stream, selection.places):
        if row is not None:
            chosen = selection.samples[place]
            members = [{"sample": n, **member} for n, member in _members(row) if n in chosen]
            yield encode({**row, "completions": members})


def answers(stream: Path, selection: Selection, *, raw_text: bool) -> Iterator[bytes]:
    """Yield a line for each chosen answer: ``id``, ``prompt``, ``answer``; each answer once.

    The prompt is the text that the model saw. Conversations, whose turns are not one answer to
    imitate, and answers that were cut off are left out.

    Args:
        stream: The run's rollouts.
        selection: The chosen rollouts.
        raw_text: Whether prompts were raw text, not chats; each line then also has ``messages``.
    """
    seen: set[int] = set()
    for place, row in read_rows(stream, selection.places):
        if row is None:
            continue
        prompt = str(row.get("prompt") or "")
        for sample, completion in _members(row):
            text = completion.get("text")
            if sample not in selection.samples[place] or not isinstance(text, str) or not text:
                continue
            if (
                isinstance(completion.get("transcript"), dict)
                or completion.get("finish_reason") == "length"
            ):
                continue
            if hash((prompt, text)) in seen:
                continue
            seen.add(hash((prompt, text)))
            line: dict[str, Any] = {
                "id": f"{row.get('problem_id')}@{selection.keys[place]}/{sample}",
                "prompt": prompt,
                "answer": text,
            }
            if raw_text:
                line["messages"] = [
                    {"role": "user", "content": prompt},
                    {"role": "assistant", "content": text},
                ]
            yield encode(line)


def _members(row: Mapping[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    members = row.get("completions")
    valid = (
        [member for member in members if isinstance(member, dict)]
        if isinstance(members, list)
        else []
    )
    yield from enumerate(valid)
