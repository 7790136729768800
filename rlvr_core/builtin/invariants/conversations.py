"""Whether a conversation's tokens, turns and end are those of its transcript."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlvr_core.api import JudgesUnfinished
from rlvr_core.builtin.invariants.rows import sampled_by_model, sampled_turns

if TYPE_CHECKING:
    from rlvr_core.api import Completion

Wrong = tuple[str, str]
"""What is wrong, and what to do."""


def wrong_conversation(completion: Completion, environment: Any, max_turns: int) -> Wrong | None:
    """Return what of a completion contradicts its transcript; None if nothing does.

    Args:
        completion: The conversation with all its branches, or a single answer.
        environment: An instance of its problem's environment; None for a single answer.
        max_turns: Cap on the turns of the model.
    """
    if completion.transcript is not None:
        unfinished = isinstance(environment, JudgesUnfinished)
        return (
            _tokens(completion)
            or _end(completion, judged=not unfinished and environment is not None)
            or _turns(completion, max_turns)
        )
    if environment is None or completion.finish_reason not in ("stop", "length"):
        return None
    return (
        "is none: it has no transcript, and its problem has an environment",
        "requests of problems with an environment go to whatever plays their conversations: look "
        "at what tells the two kinds apart",
    )


def _tokens(completion: Completion) -> Wrong | None:
    """Compare loss masks and log-probs with who said what."""
    for row, mask in zip(completion.rows, sampled_by_model(completion), strict=True):
        if mask != row.loss_mask:
            return (
                f"has in its loss mask {sum(row.loss_mask)} of its {len(mask)} tokens, and the "
                f"model wrote {sum(mask)} of them",
                "a mask covers each token that the model wrote, the end-of-sequence token "
                "included, and no observation of a tool or an environment",
            )
        at = 0
        for turn in row.transcript.turns if row.transcript is not None else ():
            end = at + turn.n_tokens
            if turn.role != "assistant" and any(row.logprobs[at:end]):
                return (
                    "has log-probs of tokens that its environment said, none of which the model "
                    "sampled",
                    "what an environment says has a log-prob of 0 for each token: look at what "
                    "joins the turns of a conversation",
                )
            at = end
    return None


def _end(completion: Completion, *, judged: bool) -> Wrong | None:
    """Compare the finish reason, and the verdict if it was cut off, with how it ended.

    Args:
        completion: The conversation.
        judged: Whether a conversation that was cut off is worth 0, whatever was said.
    """
    script = completion.transcript
    assert script is not None
    due = "stop" if script.ended == "done" else "length"
    if script.failed or completion.finish_reason not in ("stop", "length"):
        return None
    if judged and due == "length" and script.verdict is None:
        return (
            f"was cut off ({script.ended}) and has no verdict",
            "what is not finished has the score 0 where its environment does not judge it: look at "
            "what ends a conversation",
        )
    if completion.finish_reason == due:
        return None
    return (
        f"has the finish reason {completion.finish_reason}, and ended by {script.ended}",
        "a conversation stops by its environment's word and is cut off by any limit: "
        "train.mask_truncated goes by this",
    )


def _turns(completion: Completion, most: int) -> Wrong | None:
    """Compare the turns of the model with the limit, and with those in the loss."""
    script = completion.transcript
    assert script is not None
    turns = int(script.counts.get("sampled_turns", script.n_turns))
    if turns > most or (script.ended == "max_turns" and turns != most):
        return (
            f"ended ({script.ended}) after {turns} turns of the model, and environment.max_turns "
            f"is {most}",
            "look at what counts the turns of a conversation, and ends it",
        )
    counted = completion.branches and completion.token_ids
    trained = sampled_turns(completion) if counted else turns
    if trained == turns:
        return None
    return (
        f"trains in its rows {trained} turns of the model, and it wrote {turns}",
        "each turn is in the loss of one of the branches that have it: look at what makes their "
        "loss masks",
    )
