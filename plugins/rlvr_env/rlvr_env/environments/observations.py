"""Validates what an environment's ``step`` returned, and converts it to plain JSON."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from rlvr_core.api import Done, Json, Message, Observation
from rlvr_core.verify.verdicts import plain_verdict

ROLES = ("tool", "user")
FEWEST_CHARACTERS = 20
"""Minimum characters left of a message that is cut to fit into a conversation."""
MAX_COUNTS = 100
"""Maximum number of counters of an environment."""


@dataclass(frozen=True, slots=True)
class Branched(Observation):
    """An observation for one of several branches of a conversation.

    Attributes:
        branch: Number of the branch to continue; the conversation began with branch 0.
        opening: For a new branch: the messages and tools that it begins with in place of the
            prompt, in the form for a chat template.
        fork: For a new branch without an opening: the branch that it copies, and the last reply of
            the model to copy, counted from 1.
    """

    branch: int = 0
    opening: Mapping[str, Json] | None = None
    fork: tuple[int, int] | None = None


@runtime_checkable
class OpensItself(Protocol):
    """A state whose conversation begins with its own messages, not only with the prompt."""

    opening: Mapping[str, Json]
    """The opening of ``Branched``; rendered, it must begin with the problem's prompt."""


def shortened(text: str, most: int) -> str:
    """Cut a text at ``most`` characters, with a mark that says how many are left out."""
    if len(text) <= most:
        return text
    return f"{text[:most]}\n[... {len(text) - most:,} more characters are left out]"


def cut_to_fit(
    messages: Sequence[Message],
    ids: Sequence[int],
    most: int,
    tokens_of: Callable[[Sequence[Message]], Sequence[int]],
) -> tuple[tuple[Message, ...], Sequence[int]]:
    """Cut the longest of some messages, with a mark, until all have ``most`` tokens or fewer.

    Args:
        messages: The messages.
        ids: Tokens of the messages.
        most: The largest number of tokens.
        tokens_of: Returns the tokens of messages.

    Returns:
        Messages and tokens; unchanged if only a few characters could remain.
    """
    longest = max(range(len(messages)), key=lambda index: len(messages[index].content))
    text = messages[longest].content
    characters = len(text) * most // len(ids)
    while characters >= FEWEST_CHARACTERS:
        cut = replace(messages[longest], content=f"{text[:characters]}\n[... the rest is left out]")
        shorter = (*messages[:longest], cut, *messages[longest + 1 :])
        if len(shorter_ids := tokens_of(shorter)) <= most:
            return shorter, shorter_ids
        characters //= 2
    return tuple(messages), ids


def plain_answer(answer: object, max_characters: int | None = None) -> dict[str, Json]:
    """Validate and convert the return value of ``step``; cut long messages.

    Raises:
        TypeError: If it is neither an ``Observation`` nor ``Done``, or a field has the wrong type.
        ValueError: If there is no message, or a role or number is wrong.
    """
    if isinstance(answer, Done):
        verdict = None if answer.verdict is None else plain_verdict(answer.verdict)
        return {"done": verdict, "counts": _counts(answer.counts)}
    if not isinstance(answer, Observation):
        raise TypeError(f"returned {type(answer).__name__}, neither Observation nor Done")
    if not answer.messages:
        raise ValueError("an Observation has at least one message")
    for message in answer.messages:
        if not isinstance(message, Message):
            raise TypeError(f"messages are Message with text, not {type(message).__name__}")
        content: object = message.content
        if not isinstance(content, str):
            raise TypeError(f"the content of a message is text, not {type(content).__name__}")
        if message.role not in ROLES:
            raise ValueError(f"an environment speaks as {' or '.join(ROLES)}, not {message.role}")
        message.content.encode()  # raises for a lone surrogate
    most = sys.maxsize if max_characters is None else max_characters
    messages = [[message.role, shortened(message.content, most)] for message in answer.messages]
    return {"messages": messages, "counts": _counts(answer.counts)}


def _counts(counts: Mapping[str, float]) -> dict[str, float]:
    if len(counts) > MAX_COUNTS:
        raise ValueError(f"{len(counts)} counts; {MAX_COUNTS} are the most")
    checked: dict[str, float] = {}
    for name, count in counts.items():
        number = float(count)
        if not math.isfinite(number):
            raise ValueError(f"count {name} is {number}")
        checked[str(name)] = number
    return checked
