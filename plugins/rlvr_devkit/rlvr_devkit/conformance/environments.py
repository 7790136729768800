"""Promises of environments; ``play`` plays one with given replies, for tests of plugins."""

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
from rlvr_devkit.conformance.junk import junk
from rlvr_devkit.conformance.subject import Check, Subject, Unchecked, demand
from rlvr_env.environments.observations import plain_answer


def play(
    environment: Any,
    problem: Problem,
    replies: Sequence[str],
    *,
    seed: int = 0,
    max_turns: int = 8,
) -> Transcript:
    """Return the conversation in which the model writes these replies, as a run would record it.

    The state is pickled and unpickled between calls, as in a run, and observations are validated.
    Turns have no tokens here.

    Args:
        environment: An instance.
        problem: The problem; checked first, if the environment has ``check``.
        replies: Replies of the model, turn by turn; not all need be used.
        seed: Seed for ``start``.
        max_turns: Maximum turns of the model.

    Returns:
        The transcript; it ends by ``max_turns`` if no reply is left.

    Raises:
        TypeError: If the environment returns a wrong type.
        ValueError: If it returns a wrong value.
        Exception: Any exception of the environment; in a run, the conversation fails.
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
        answer = environment.step(state, Reply(text, turn, max_turns - turn - 1))
        checked = plain_answer(answer)
        counts.update(cast("dict[str, float]", checked["counts"]))
        if isinstance(answer, Done):
            ended, verdict = "done", answer.verdict
            break
        if turn + 1 < max_turns:
            turns += [
                Turn("tool" if message.role == "tool" else "user", message.content, 0)
                for message in answer.messages
            ]
    if ended != "done" and isinstance(environment, JudgesUnfinished):
        verdict = environment.cut(pickle.loads(pickle.dumps(state)), ended)
    if isinstance(environment, ClosesConversations):
        environment.close(pickle.loads(pickle.dumps(state)))
    return Transcript("", tuple(turns), ended, "", verdict, dict(counts))


class _Anew:
    """An environment with a new instance for every call, as in other processes."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject

    def start(self, problem: Problem, seed: int) -> Any:
        return self._subject.build().start(problem, seed)

    def step(self, state: Any, reply: Reply) -> Any:
        return self._subject.build().step(state, reply)


def _given(subject: Subject) -> tuple[Problem, Sequence[str]]:
    problem, replies = subject.example.problem, subject.example.replies
    if problem is None or not replies:
        raise Unchecked("give an Example with a problem, and replies that finish it")
    return problem, replies


def environment_repeats(subject: Subject) -> None:
    """Check that its example ends, and that equal seeds give equal conversations."""
    problem, replies = _given(subject)
    first = play(subject.build(), problem, replies, seed=5, max_turns=len(replies) + 1)
    demand(
        first.ended == "done",
        f"after the {len(replies)} replies of the example the conversation is not done",
    )
    demand(first.n_turns == len(replies), f"it is done after {first.n_turns} replies already")
    again = play(_Anew(subject), problem, replies, seed=5, max_turns=len(replies) + 1)
    demand(
        (again.turns, again.verdict) == (first.turns, first.verdict),
        f"played again with the same seed, in other processes, {first.turns} becomes "
        f"{again.turns}: keep everything in the state",
    )


def environment_stands_junk(subject: Subject) -> None:
    """Check that every reply of a model gets an answer."""
    problem, replies = _given(subject)
    environment = subject.build()
    for what, text in junk(str(problem.prompt), replies[-1], replies[0]).items():
        try:
            plain_answer(environment.step(environment.start(problem, 5), Reply(text, 0, 7)))
        except Exception as error:
            what = f"on {what} it raises {type(error).__name__}: {str(error)[:200]}"
            raise AssertionError(f"{what}; answer the model instead") from error


ENVIRONMENT_CHECKS: tuple[Check, ...] = (
    Check("repeats", "one seed, one conversation, to the end of its example", environment_repeats),
    Check("junk", "whatever a model writes is answered", environment_stands_junk),
)
