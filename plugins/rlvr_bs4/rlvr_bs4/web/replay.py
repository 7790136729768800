"""Playing a recorded conversation once more, to see how it is graded."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from rlvr_bs4.datasets import problem_id
from rlvr_bs4.task import Task
from rlvr_bs4.web.datasets import problem
from rlvr_bs4.web.environment import Web
from rlvr_core import DataError, Transcript
from rlvr_core.testing import play

_PROBLEM = re.compile(r"bs4_[0-9a-f]{16}")


def recorded(text: str, task: Task) -> list[list[str]] | None:
    """What the model said in each recorded conversation of a text that is about a task.

    A record is a row of ``traces/conversations.jsonl``, a row of an evaluation with a
    ``transcript``, or such a transcript; one in all, or one in each line.

    Returns:
        A list of turns for each; None if the text is no record but an answer.

    Raises:
        DataError: If all of them are about other tasks.
    """
    rows = _rows(text)
    if not rows or not all(map(_turns, rows)):
        return None
    mine = [row for row in rows if _is_about(row, task)]
    if not mine:
        raise DataError(
            f"no conversation in it is about problem {problem_id(task)}",
            remedy="give the archetype, --seed and --size of the problem that was played",
        )
    return [[t["text"] for t in _turns(row) if t["role"] == "assistant"] for row in mine]


def replay(task: Task, replies: list[str], options: Mapping[str, Any]) -> Transcript:
    """Play a conversation again: its programs are run again, and it is graded as in a run.

    Args:
        task: What it is about.
        replies: The model's turns.
        options: Of ``bs4/web``.
    """
    web = Web(Web.Config(**options))
    try:
        return play(web, problem(task), replies, max_turns=max(1, len(replies)))
    finally:
        web.shut()


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
    inner = row.get("transcript")
    turns = (inner if isinstance(inner, dict) else row).get("turns")
    if not isinstance(turns, list):
        return []
    good = all(isinstance(turn, dict) and isinstance(turn.get("text"), str) for turn in turns)
    return turns if good and all("role" in turn for turn in turns) else []


def _is_about(row: dict[str, Any], task: Task) -> bool:
    """Whether a record names the task's problem, or none at all."""
    named = _PROBLEM.search(f"{row.get('id', '')} {row.get('problem_id', '')}")
    return named is None or named[0] == problem_id(task)
