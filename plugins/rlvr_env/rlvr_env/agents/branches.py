"""Finds the branch of a conversation that a request of an agent program continues.

Programs send the whole history with every request. A request whose history is that of a branch,
the model's own replies included, goes on with that branch: only the messages behind it are new,
and what was sampled stays the tokens that it was. Any other history, as of a program that tries
again, edits, shortens or begins anew, is a branch of its own. It begins with the tokens of the
branch that it has the most replies of the model in common with.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from rlvr_core.api import Json

_NEW = ("user", "tool")
"""Roles of messages that can go behind a reply; another one begins a branch by itself."""


@dataclass(slots=True)
class Branch:
    """A branch of a conversation.

    Attributes:
        number: Number of the branch.
        tools: The tools that it was begun with.
        messages: The messages of the branch, normalised.
        replies: How many messages there are up to and with each of the model's replies.
    """

    number: int
    tools: str
    messages: list[str] = field(default_factory=list)
    replies: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Placed:
    """The place of a request.

    Attributes:
        branch: The branch of the request.
        new: The messages that the branch did not have.
        fresh: Whether the branch is a new one.
        fork: Of a new branch that begins as another one does: the number of that one, and how many
            of its replies they share.
    """

    branch: Branch
    new: list[Json]
    fresh: bool = False
    fork: tuple[int, int] | None = None


class Branches:
    """The branches of one conversation."""

    def __init__(self) -> None:
        self._all: list[Branch] = []
        self._replies: set[str] = set()

    def __len__(self) -> int:
        return len(self._all)

    def place(self, messages: Sequence[Json], tools: Json) -> Placed:
        """Return the branch that a request continues, or a new one.

        A new branch shares the beginning of the one that has the most of the request's history, up
        to a reply of the model.

        Args:
            messages: All messages of the request.
            tools: The tools of the request.
        """
        sent, plain_tools = [_normal(message) for message in messages], _plain(tools)
        # behind its last message that can only be part of a beginning
        least = max(
            (n for n, message in enumerate(messages) if message["role"] not in _NEW), default=-1
        )
        fitting = [
            (kept, kept == len(branch.messages), branch.number, shared)
            for branch in self._all
            if branch.tools == plain_tools
            for most in [min(_common(branch.messages, sent), len(sent) - 1)]
            for shared, kept in enumerate(branch.replies, start=1)
            if least < kept <= most
        ]
        kept, whole, number, shared = max(fitting, default=(0, False, -1, 0))
        new = list(messages[kept:])
        if whole:
            branch = self._all[number]
            branch.messages += sent[kept:]
            return Placed(branch, new)
        replies = self._all[number].replies[:shared] if fitting else []
        made = Branch(len(self._all), plain_tools, sent, replies)
        self._all.append(made)
        return Placed(made, new, fresh=True, fork=(number, shared) if fitting else None)

    def replied(self, branch: Branch, message: Json) -> None:
        """Add the model's reply to a branch, as the program received it."""
        branch.messages.append(_normal(message))
        branch.replies.append(len(branch.messages))
        self._replies.add(branch.messages[-1])

    def written(self, messages: Sequence[Json]) -> list[Json]:
        """Return messages as a chat template is to write them.

        The text of a reply of the model has its calls as the model wrote them: a template would
        write them a second time.
        """
        return [
            {name: value for name, value in message.items() if name != "tool_calls"}
            if _normal(message) in self._replies
            else message
            for message in messages
        ]


def _common(some: Sequence[str], others: Sequence[str]) -> int:
    """Return how many messages two histories begin with alike."""
    pairs = enumerate(zip(some, others, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(some), len(others)))


def text_of(message: Json) -> str:
    """Return the text of a message, whose content may be parts.

    Raises:
        ValueError: If a part is not text.
    """
    content = message.get("content")
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    kinds = {part.get("type") for part in content}
    if kinds - {"text"}:
        raise ValueError(f"messages are text here, not {', '.join(sorted(map(str, kinds)))}")
    return "".join(part["text"] for part in content)


def _normal(message: Json) -> str:
    """Return the parts of a message that are compared: clients add and drop empty fields."""
    calls = [
        {"name": call["function"]["name"], "arguments": call["function"]["arguments"]}
        for call in message.get("tool_calls") or ()
    ]
    return _plain([message["role"], text_of(message), calls])


def _plain(value: Json) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
