"""Which branch of a conversation a request continues, by what the program sends of its history.

Programs send the whole history with every request. A request whose history is that of a branch,
the model's own replies included, goes on with that branch: only the messages behind it are new,
and what was sampled stays the tokens that it was. Any other history, as of a program that edits,
shortens or begins anew, is a branch of its own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from rlvr_core.api import Json

_NEW = ("user", "tool")
"""Roles of messages that can go behind a reply; another one begins a branch."""


@dataclass(slots=True)
class Branch:
    """A branch: the messages it consists of, normalised, and the tools that it was begun with."""

    number: int
    tools: str
    messages: list[str] = field(default_factory=list)


class Branches:
    """The branches of one conversation."""

    def __init__(self) -> None:
        self._all: list[Branch] = []

    def __len__(self) -> int:
        return len(self._all)

    def place(self, messages: Sequence[Json], tools: Json) -> tuple[Branch, list[Json], bool]:
        """Return the branch that a request continues.

        Args:
            messages: All messages of the request.
            tools: Its tools.

        Returns:
            The branch, the messages that are new in it, and whether it is a new branch.
        """
        sent, told = [_normal(message) for message in messages], _plain(tools)
        fitting = [
            one
            for one in self._all
            if one.tools == told
            and one.messages == sent[: len(one.messages)]
            and len(one.messages) < len(sent)
            and all(one_of["role"] in _NEW for one_of in messages[len(one.messages) :])
        ]
        if fitting:
            longest = max(fitting, key=lambda one: (len(one.messages), one.number))
            new = list(messages[len(longest.messages) :])
            longest.messages += sent[len(longest.messages) :]
            return longest, new, False
        made = Branch(len(self._all), told, sent)
        self._all.append(made)
        return made, list(messages), True

    def replied(self, branch: Branch, message: Json) -> None:
        """Note what the model replied in a branch, as the program was given it."""
        branch.messages.append(_normal(message))


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
    """What counts of a message when histories are compared: clients add and drop empty fields."""
    calls = [
        {"name": call["function"]["name"], "arguments": call["function"]["arguments"]}
        for call in message.get("tool_calls") or ()
    ]
    return _plain([message["role"], text_of(message), calls])


def _plain(value: Json) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
