"""Plays an environment against replies of your own, for the tests of a plugin."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

from rlvr_core.api import (
    ChecksProblems,
    ClosesConversations,
    Done,
    Ended,
    JudgesUnfinished,
    Problem,
    Reply,
    Transcript,
    Turn,
)
from rlvr_core.api.services import said


def play(
    environment: Any,
    problem: Problem,
    replies: Sequence[str],
    *,
    seed: int = 0,
    max_turns: int = 8,
) -> Transcript:
    """The conversation in which the model writes these replies, as a run would record it.

    The state is pickled and read back between calls, as in a run, and what the environment says is
    checked. Turns have no tokens here.

    Args:
        environment: An instance.
        problem: What it is played with; ``check`` is called if there is one.
        replies: What the model writes, turn by turn; some may be left over.
        seed: Of ``start``.
        max_turns: Turns the model may write.

    Returns:
        The transcript; ``max_turns`` is how it ends that has no reply left.

    Raises:
        TypeError: If the environment returns what it must not.
        ValueError: Likewise.
        Exception: What the environment raises: in a run a failure of the conversation.
    """
    if isinstance(environment, ChecksProblems):
        environment.check(problem)
    state = environment.start(problem, seed)
    turns: list[Turn] = []
    counts: Counter[str] = Counter()
    ended: Ended = "max_turns"
    verdict = None
    for turn, text in enumerate(replies[:max_turns]):
        state = pickle.loads(pickle.dumps(state))
        turns.append(Turn("assistant", text, 0))
        found = environment.step(state, Reply(text, turn, max_turns - turn - 1))
        checked = said(found)
        counts.update(cast("dict[str, float]", checked["counts"]))
        if isinstance(found, Done):
            ended, verdict = "done", found.verdict
            break
        if turn + 1 < max_turns:
            turns += [
                Turn("tool" if one.role == "tool" else "user", one.content, 0)
                for one in found.messages
            ]
    if ended != "done" and isinstance(environment, JudgesUnfinished):
        verdict = environment.cut(pickle.loads(pickle.dumps(state)), ended)
    if isinstance(environment, ClosesConversations):
        environment.close(pickle.loads(pickle.dumps(state)))
    return Transcript("", tuple(turns), ended, "", verdict, dict(counts))
