"""A conversation played again: the same replies to the same environment, which must say the same.

Environments do it whose traits say that they are ``deterministic``.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rlvr_core.api import (
    Done,
    EnvironmentTraits,
    JudgesUnfinished,
    Message,
    Observation,
    Reply,
    traits_of,
)

if TYPE_CHECKING:
    from rlvr_core.api import Completion, Group, GroupsScored, Problem, Transcript, Turn, Verdict
    from rlvr_core.builtin.invariants.seeds import Seeds

AT_LEAST = 4
"""Conversations of a step that are played again."""

PLAYING = 0.02
"""Seconds a step in which more of them are: an environment may hear the wrong words and yet answer
most of them alike."""

TRYING = 0.25
"""Seconds for the seeds that a conversation beside training may have had: whatever has not been
tried by then may be the right one."""

WORLD = -1
"""What stands for the sample in the seed of an environment."""

NO_ROOM = "\n[... the rest is left out]"
"""Ends a message that was cut to fit into the conversation."""


class Replays:
    """Plays conversations again.

    Args:
        max_turns: Cap on the turns of a conversation.
        environment: Returns an instance of a problem's environment.
        seeds: Follows the draws of the sampler; None if it counts them in another way, and then
            nothing is played again.
    """

    def __init__(
        self, max_turns: int, environment: Callable[[Problem], Any], seeds: Seeds | None
    ) -> None:
        self._max_turns, self._environment, self._seeds = max_turns, environment, seeds

    def run_started(self) -> None:
        """Begin where the sampler is."""
        if self._seeds is not None:
            self._seeds.run_started()

    def wrong(self, event: GroupsScored) -> str:
        """Return what is wrong with a few conversations of a step; empty if nothing is."""
        if self._seeds is None:
            return ""
        self._seeds.on_groups(event)
        places = [
            (group, number)
            for group in event.groups
            for number, member in enumerate(group.members)
            if self._seeds.known(group, event.version) and self._playable(group, member.completion)
        ]
        stride = max(1, len(places) // AT_LEAST)
        first = [(event.step + part) % stride for part in range(stride)]
        spread = [place for part in first for place in places[part::stride]]
        until = time.monotonic() + PLAYING
        for number, (group, sample) in enumerate(spread):
            if number >= AT_LEAST and time.monotonic() > until:
                break
            if what := self._differs(group, group.members[sample].completion):
                return f"conversation {sample} about problem {group.problem.id}, {what}"
        return ""

    def _playable(self, group: Group, completion: Completion) -> bool:
        script = completion.transcript
        if script is None or script.failed or completion.branches:
            return False
        if "failed_calls" in script.counts:  # what the call was told is not in the transcript
            return False
        environment = self._environment(group.problem)
        if environment is None:
            return False
        traits = traits_of(environment, EnvironmentTraits)
        return traits.deterministic and not traits.asynchronous

    def _differs(self, group: Group, completion: Completion) -> str:
        """Return what the environment says otherwise under every seed that it may have had."""
        assert self._seeds is not None
        found, until = "", time.monotonic() + TRYING
        for seed in self._seeds.all_of(group, WORLD):
            found = self._played(group.problem, seed, completion)
            # beside training there are hundreds of seeds that it may have had
            if not found or (not self._seeds.exact and time.monotonic() > until):
                return ""
        return found

    def _played(self, problem: Problem, seed: int, completion: Completion) -> str:
        environment, script = self._environment(problem), completion.transcript
        assert script is not None
        most = traits_of(environment, EnvironmentTraits).max_characters
        rounds = list(_rounds(script.turns, len(completion.prompt_ids)))
        # a turn that was cut off is no reply; of a budget it is not known whether it was that
        unheard = script.ended in ("turn_length", "budget")
        with suppress(Exception):  # an error would have ended the conversation as failed
            state = _copied(environment.start(problem, seed))
            for number, (text, heard, *sizes) in enumerate(rounds):
                last = number == len(rounds) - 1
                if last and unheard:
                    break
                reply = Reply(text, number, self._max_turns - number - 1, *sizes)
                found = environment.step(state, reply)
                state = _copied(state)
                if what := _unlike(found, heard, script, most, last=last):
                    return f"played again with the same replies: {what}"
            judges = isinstance(environment, JudgesUnfinished)
            if judges and script.ended in ("max_turns", "turn_length"):
                due = environment.cut(state, script.ended)
                if _outcome(due) != _outcome(script.verdict):
                    return f"played again and cut off, {_given(due, script.verdict)}"
        return ""


def _copied(state: Any) -> Any:
    """Return a state as it comes out of the other process that the next call may be in."""
    return pickle.loads(pickle.dumps(state, pickle.HIGHEST_PROTOCOL))


def _rounds(
    turns: Sequence[Turn], n_prompt: int
) -> Iterator[tuple[str, tuple[Message, ...], int, int]]:
    """Yield each turn of the model with what it was answered, and its ``Reply``'s token counts."""
    said: Turn | None = None
    heard: list[Message] = []
    before = behind = n_prompt
    for turn in [*turns, None]:
        if turn is not None and turn.role != "assistant":
            heard.append(Message(turn.role, turn.text))
        else:
            if said is not None:
                known = said.n_tokens > 0
                yield said.text, tuple(heard), before if known else 0, said.n_tokens
            said, heard, before = turn, [], behind
        behind += 0 if turn is None else turn.n_tokens


def _unlike(
    found: Observation | Done,
    heard: tuple[Message, ...],
    script: Transcript,
    most: int,
    *,
    last: bool,
) -> str:
    """Return how an environment's answer differs from the one that is recorded."""
    done = last and script.ended == "done"
    if isinstance(found, Done) != done:
        other = "goes on" if done else "ends the conversation"
        return f"its environment {other}, and the conversation {'ended' if done else 'went on'}"
    if isinstance(found, Done):
        same = _outcome(found.verdict) == _outcome(script.verdict)
        return "" if same else _given(found.verdict, script.verdict)
    if last and not heard:
        return ""
    said = [message.content for message in found.messages]
    given = [message.content for message in heard]
    if len(said) != len(given) or not all(
        _is_given(one, its, most) for one, its in zip(said, given, strict=True)
    ):
        return f"its environment says {said!r:.80}, and the model was given {given!r:.80}"
    # whatever is no tool's message is a user's in a transcript
    by = ["tool" if message.role == "tool" else "user" for message in found.messages]
    as_ = [message.role for message in heard]
    if by != as_:
        return f"its environment speaks as {', '.join(by)}, and was heard as {', '.join(as_)}"
    return ""


def _is_given(said: str, given: str, most: int) -> bool:
    """Whether a model was given what an environment said: all of it, or its beginning if too long.

    Args:
        said: What the environment said.
        given: What the model was given.
        most: Characters beyond which a message is cut.
    """
    beyond = len(said) - most
    if beyond > 0:
        said = f"{said[:most]}\n[... {beyond:,} more characters are left out]"
    return given == said or (given.endswith(NO_ROOM) and said.startswith(given[: -len(NO_ROOM)]))


def _outcome(verdict: Verdict | None) -> tuple[float | None, bool | None] | None:
    return None if verdict is None else (verdict.score, verdict.passed)


def _given(due: Verdict | None, recorded: Verdict | None) -> str:
    scores = [None if one is None else one.score for one in (due, recorded)]
    return f"its environment's verdict has the score {scores[0]}, and the recorded one {scores[1]}"
