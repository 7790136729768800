"""Playing a recorded conversation once more, to see how it is graded."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast, get_args

from rlvr_bs4.datasets import problem_id
from rlvr_bs4.task import Task
from rlvr_bs4.web import tools
from rlvr_bs4.web.datasets import problem
from rlvr_bs4.web.environment import Web
from rlvr_core.api import DataError, Ended, Transcript
from rlvr_core.testing import play

_PROBLEM = re.compile(r"bs4_[0-9a-f]{16}")
_ENDS: tuple[Ended, ...] = get_args(Ended)


@dataclass(frozen=True, slots=True)
class Recorded:
    """What is on record of a conversation.

    Attributes:
        problem: Id of its problem; empty if it is not said.
        replies: The model's turns.
        ended: How it ended; ``done`` if it is not said.
        calls: How many calls were counted; None if it is not said.
    """

    problem: str
    replies: tuple[str, ...]
    ended: Ended = "done"
    calls: int | None = None


def conversations(text: str) -> list[Recorded] | None:
    """The conversations in a text.

    A record is a row of ``traces/conversations.jsonl``, a row of an evaluation with a
    ``transcript``, or such a transcript; one in all, or one in each line.

    Returns:
        All of them; None if the text holds anything else.
    """
    rows = _rows(text)
    return list(map(_recorded, rows)) if rows and all(map(_turns, rows)) else None


def recorded(text: str, task: Task) -> list[Recorded] | None:
    """The conversations in a text that are about a task; None if the text is an answer.

    Raises:
        DataError: If all of them are about other tasks.
    """
    found = conversations(text)
    if found is None:
        return None
    mine = [one for one in found if one.problem in ("", problem_id(task))]
    if not mine:
        raise DataError(
            f"no conversation in it is about problem {problem_id(task)}",
            remedy="give the archetype, --seed and --size of the problem that was played",
        )
    return mine


def replay(task: Task, spoken: Recorded, web: Web) -> Transcript:
    """Play a conversation again: its programs are run again, and it is graded as in a run.

    A turn that was cut off is not played: a run does not show it to the environment either.

    Args:
        task: What it is about.
        spoken: The conversation.
        web: The environment, with the options it was played with.
    """
    replies = list(spoken.replies)
    if spoken.ended in ("turn_length", "budget") and not _all_played(spoken, web):
        replies.pop()
    found = play(web, problem(task), replies, max_turns=max(1, len(replies)))
    if found.ended != "max_turns" or spoken.ended == "done" or found.verdict is None:
        return found
    detail = found.verdict.detail.removeprefix(found.ended)
    verdict = replace(found.verdict, detail=f"{spoken.ended}{detail}")
    return replace(found, ended=spoken.ended, verdict=verdict)


def _all_played(spoken: Recorded, web: Web) -> bool:
    """Whether the calls of all turns were counted, so that what was cut off came after them."""
    options = web.config
    calls = [tools.calls(options.format, one, options.repair) for one in spoken.replies]
    return bool(calls and calls[-1]) and sum(map(len, calls)) == spoken.calls


def _rows(text: str) -> list[Any]:
    try:
        return [json.loads(text)]
    except ValueError:
        pass
    try:
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError:
        return []


def _turns(row: Any) -> list[dict[str, str]]:
    """The turns of a record; none if it is no record."""
    if not isinstance(row, dict):
        return []
    turns = _inner(row).get("turns")
    if not isinstance(turns, list):
        return []
    good = all(isinstance(turn, dict) and isinstance(turn.get("text"), str) for turn in turns)
    return turns if good and all("role" in turn for turn in turns) else []


def _recorded(row: dict[str, Any]) -> Recorded:
    inner = _inner(row)
    named = _PROBLEM.search(f"{row.get('id', '')} {row.get('problem_id', '')}")
    ended, counts = inner.get("ended"), inner.get("counts")
    calls = counts.get("tool_calls", 0) if isinstance(counts, dict) else None
    return Recorded(
        problem="" if named is None else named[0],
        replies=tuple(turn["text"] for turn in _turns(row) if turn["role"] == "assistant"),
        ended=cast("Ended", ended) if ended in _ENDS else "done",
        calls=int(calls) if isinstance(calls, (int, float)) else None,
    )


def _inner(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Where a record has its turns: in itself or in its transcript."""
    inner = row.get("transcript")
    return inner if isinstance(inner, dict) else row
