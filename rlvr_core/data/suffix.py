"""The tokens between two turns of a model: what a chat template puts there, or raw text.

A conversation is never rendered anew. What the model wrote stays as the tokens it sampled, and
behind them go the tokens of what comes next alone: so training sees exactly what the model saw,
also where a template would rewrite earlier turns (by taking their thoughts out, say).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlvr_core.api import DataError, Message, Problem

if TYPE_CHECKING:
    from rlvr_core.data.prompts import Renderer

_MARK = "\u2713reply\u2713"


def suffix_ids(
    renderer: Renderer, problem: Problem, reply_ids: Sequence[int], messages: Sequence[Message]
) -> tuple[int, ...]:
    """What follows the tokens of a reply: its end, the messages, the beginning of the next reply.

    A template's own end of a turn is left out if the model has written an end itself.

    Args:
        renderer: Of the prompt.
        problem: What the conversation is about.
        reply_ids: Tokens of the model's last turn.
        messages: What is said to it now.

    Raises:
        DataError: If the chat template refuses such a conversation, or these messages do not come
            out of it.
    """
    problem = renderer.present(problem)
    if not renderer.as_chat(problem):
        return renderer.encode("".join(message.content for message in messages))
    mark = _MARK
    while any(mark in message.content for message in messages):
        mark += "\u2713"
    said = [
        {"role": "user", "content": "-"},
        {"role": "assistant", "content": mark},
        *({"role": message.role, "content": message.content} for message in messages),
    ]
    whole = renderer.apply_template(problem, said)
    _, found, rest = whole.rpartition(mark)
    if not found:
        raise DataError(
            f"the chat template leaves out what the model said before a message of role "
            f"'{messages[0].role}'",
            where=problem.id,
            remedy="let the environment speak as 'user'",
        )
    ids = renderer.encode(rest)
    ended = bool(reply_ids) and renderer.is_end(reply_ids[-1])
    return ids[1:] if ended and ids and renderer.is_end(ids[0]) else ids
