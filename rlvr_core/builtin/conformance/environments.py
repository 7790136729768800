"""What an environment promises; ``play`` plays one against replies, for the tests of a plugin."""

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
from rlvr_core.builtin.conformance.junk import junk
from rlvr_core.builtin.conformance.subject import Check, Subject, Unchecked, demand


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


class _Anew:
    """An environment of which every call meets a new instance, as in other processes."""

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


def environment_finishes(subject: Subject) -> None:
    """Check that the replies of the example bring the conversation to its end, with a verdict."""
    problem, replies = _given(subject)
    script = play(subject.build(), problem, replies, max_turns=len(replies) + 1)
    demand(
        script.ended == "done",
        f"after the {len(replies)} replies of the example the conversation is not done",
    )
    demand(script.n_turns == len(replies), f"it is done after {script.n_turns} replies already")


def environment_repeats(subject: Subject) -> None:
    """Check that one seed plays one conversation, and that its state holds all it remembers."""
    problem, replies = _given(subject)
    one = subject.build()
    first, second = (play(one, problem, replies, seed=5) for _ in range(2))
    demand(first == second, f"played again with the same seed, {first} becomes {second}")
    anew = play(_Anew(subject), problem, replies, seed=5)
    demand(
        (anew.turns, anew.verdict) == (first.turns, first.verdict),
        f"in other processes {first.turns} becomes {anew.turns}: keep everything in the state",
    )


def environment_keeps_apart(subject: Subject) -> None:
    """Check that two conversations at a time do not disturb each other."""
    problem, replies = _given(subject)
    environment = subject.build()
    alone = [turn.text for turn in play(environment, problem, replies, seed=5).turns]
    states = [environment.start(problem, 5) for _ in range(2)]
    heard: list[list[str]] = [[], []]
    for turn, text in enumerate(replies):
        for state, lines in zip(states, heard, strict=True):
            found = environment.step(state, Reply(text, turn, len(replies) - turn))
            lines.append(text)
            lines += [] if isinstance(found, Done) else [m.content for m in found.messages]
    for lines in heard:
        demand(lines == alone, f"beside another conversation, {alone} becomes {lines}")


def environment_stands_junk(subject: Subject) -> None:
    """Check that whatever a model writes is answered."""
    problem, replies = _given(subject)
    environment = subject.build()
    for what, text in junk(str(problem.prompt), replies[-1], replies[0]).items():
        try:
            said(environment.step(environment.start(problem, 5), Reply(text, 0, 7)))
        except Exception as error:
            what = f"on {what} it raises {type(error).__name__}: {str(error)[:200]}"
            raise AssertionError(f"{what}; answer the model instead") from error


ENVIRONMENT_CHECKS: tuple[Check, ...] = (
    Check("finishes", "the replies of its example bring it to its end", environment_finishes),
    Check(
        "repeats", "one seed, one conversation; all it remembers is its state", environment_repeats
    ),
    Check("apart", "two conversations do not disturb each other", environment_keeps_apart),
    Check("junk", "whatever a model writes is answered", environment_stands_junk),
)
