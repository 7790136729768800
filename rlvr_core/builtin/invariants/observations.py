"""What an environment said is what the model was given: its messages, encoded once more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rlvr_core.api import Message

if TYPE_CHECKING:
    from rlvr_core.api import Completion, Problem
    from rlvr_core.builtin.invariants.prompt_oracle import PromptOracle

Ids = tuple[int, ...]


def observed(completion: Completion) -> Iterator[tuple[tuple[Message, ...], Ids]]:
    """Yield the messages between two turns of the model, and the tokens that it was given there.

    What stands before the model's first turn is left out: an environment that opens conversations
    itself renders that as a whole.
    """
    script = completion.transcript
    if script is None or not completion.token_ids:
        return
    at, answered = 0, False
    said: list[Message] = []
    ids: Ids = ()
    for turn in script.turns:
        own = completion.token_ids[at : at + turn.n_tokens]
        at += turn.n_tokens
        if turn.role != "assistant":
            said.append(Message(turn.role, turn.text))
            ids += own
            continue
        if said and answered:
            yield tuple(said), ids
        said, ids, answered = [], (), True


def wrong_observation(oracle: PromptOracle, problem: Problem, completion: Completion) -> str:
    """Return in what a conversation's observations are not those of its transcript; or nothing."""
    for said, ids in observed(completion):
        due = oracle.suffixes(problem, said)
        if due and ids not in due:
            text = "".join(message.content for message in said)
            return f"is given {_shown(ids)} where the environment says {text[:60]!r}, which is " + (
                f"{_shown(min(due, key=len))}"
            )
    return ""


def _shown(ids: Ids, most: int = 6) -> str:
    more = "" if len(ids) <= most else f" and {len(ids) - most} more"
    return f"the tokens {list(ids[:most])}{more}"
