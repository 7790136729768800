"""How one turn of the model ended, and whether its finish reason follows from its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rlvr_core.api import Completion
from rlvr_core.builtin.invariants.model_files import ModelFiles

Kind = Literal[
    "goes on", "behind the stop string", "no end", "cut off", "over the cap", "no room", "ended"
]
"""What can be wrong with an ending; ``_REMEDIES`` says what each is."""

Ended = Literal["stop", "length", "either"] | None

_REPLACEMENT = "\ufffd"
"""What an incomplete character decodes to: what follows may still change the text before it."""
_MARGIN = 16
"""Tokens that are decoded with a stop string: those at the edge may decode otherwise alone."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn that the model wrote.

    Attributes:
        ids: Its tokens.
        text: Its text, as it was judged or passed to an environment.
        before: Tokens of the conversation before it, prompt included.
        ended: ``stop`` or ``length`` by its finish reason; None where either may be, and
            ``either`` where it has filled its cap unless it stopped.
        cap: The most tokens it may have.
    """

    ids: tuple[int, ...]
    text: str
    before: int
    ended: Ended
    cap: int


@dataclass(frozen=True, slots=True)
class Wrong:
    """A contradiction between a turn's tokens and how it is said to have ended.

    Attributes:
        kind: Which.
        what: What was seen.
        turn: The turn.
    """

    kind: Kind
    what: str
    turn: Turn


def turns_of(completion: Completion, cap: int, turn_cap: int | None) -> list[Turn]:
    """Return the turns that the model wrote in a completion, those of its branches first.

    Args:
        completion: The completion; one without tokens, of an engine that gives text, has none.
        cap: The most tokens of the completion.
        turn_cap: The most tokens of one turn of a conversation.
    """
    ids, start = completion.token_ids, len(completion.prompt_ids)
    if completion.usage is not None and not ids:
        return []
    script = completion.transcript
    if script is None:
        ended = completion.finish_reason
        known = ended if ended in ("stop", "length") else None
        return [Turn(ids, completion.text, start, known, cap)]
    turns: list[Turn] = []
    for branch in completion.branches:
        # it has as much room as one behind the problem's prompt, its own prompt included
        longer = max(0, len(branch.prompt_ids) - start)
        turns += turns_of(branch, cap - longer, turn_cap)
    at = written = 0
    for turn in script.turns:
        if turn.role == "assistant":
            written += 1
            whole = written < script.n_turns or script.ended in ("done", "max_turns")
            whole |= any(_ended(branch) == script.ended for branch in completion.branches)
            how: Ended = "stop" if whole else None
            if script.ended in ("turn_length", "budget") and not whole:
                how = "length" if script.ended == "turn_length" else "either"
            most = min(turn_cap or cap, cap - at)
            turns.append(Turn(ids[at : at + turn.n_tokens], turn.text, start + at, how, most))
        at += turn.n_tokens
    return turns


def _ended(branch: Completion) -> str:
    """Return how a branch ended: as its conversation, if that ended in it."""
    return "" if branch.transcript is None else branch.transcript.ended


class Endings:
    """Judges turns by the model's end-of-sequence tokens, the stop strings and the cap.

    Args:
        files: The model's files.
        room: Prompt and completion together, in tokens, that the engine was told to make room for.
    """

    def __init__(self, files: ModelFiles, room: int) -> None:
        self._files, self._room = files, room

    def end_ids(self, stops: Sequence[str]) -> frozenset[int]:
        """Return the tokens that end a turn: a stop string may be one, too."""
        tokenizer = self._files.tokenizer
        special = zip(tokenizer.all_special_tokens, tokenizer.all_special_ids, strict=True)
        return self._files.end_ids | {id_ for text, id_ in special if text in stops}

    def wrong(
        self, turn: Turn, ends: frozenset[int], stops: Sequence[str], *, decode: bool
    ) -> Wrong | None:
        """Return what contradicts the turn's finish reason.

        Args:
            turn: The turn.
            ends: Tokens that end it, by ``end_ids``.
            stops: Its stop strings.
            decode: Whether to look for stop strings in all of it; else only at an end that needs
                one.
        """
        ids, n = turn.ids, len(turn.ids)
        early = min((ids.index(one) for one in ends if one in ids), default=n)
        if early < n - 1:
            return Wrong(
                "goes on",
                f"goes on for {n - 1 - early} tokens behind the end-of-sequence token "
                f"{self._files.named(ids[early])}",
                turn,
            )
        if n > turn.cap:
            return Wrong("over the cap", f"has {n} tokens, and the cap is {turn.cap}", turn)
        if decode and stops and self._went_on(ids, stops):
            return Wrong(
                "behind the stop string", f"goes on behind the stop strings {list(stops)}", turn
            )
        short = n < turn.cap and turn.before + n < self._room
        ended = n > 0 and early == n - 1
        if not ended and (turn.ended == "stop" or short):
            ended = self._has_stop(ids, stops)
        if turn.ended == "stop" and not ended:
            return self._no_end(turn)
        if turn.ended in ("length", "either") and short and not (ended and turn.ended == "either"):
            if ended:
                return Wrong(
                    "ended", "says that it was cut off (length), and ends as one that stopped", turn
                )
            told = "has a turn of a conversation that " if turn.ended == "either" else ""
            return Wrong(
                "cut off",
                f"{told}is cut off (length) after {n} tokens, and the cap is {turn.cap}",
                turn,
            )
        return None

    def _no_end(self, turn: Turn) -> Wrong:
        last = f"its last token is {self._files.named(turn.ids[-1])}" if turn.ids else "it is empty"
        ends = ", ".join(map(self._files.named, sorted(self._files.end_ids))) or "none"
        if len(turn.ids) == turn.cap:
            return Wrong(
                "no room", f"has all {turn.cap} tokens of its cap and says that it stopped", turn
            )
        return Wrong(
            "no end",
            f"says that it stopped, and {last}: no end-of-sequence token of the model ({ends}), "
            "and no stop string completes it",
            turn,
        )

    def _has_stop(self, ids: tuple[int, ...], stops: Sequence[str]) -> bool:
        """Whether a stop string, or a special token that is one, is at the end."""
        if not (stops and ids):
            return False
        last = str(self._files.tokenizer.decode([ids[-1]]))
        if last in stops and ids[-1] in self._files.special_ids:
            return True
        window = self._files.decode(ids[-max(map(len, stops)) - _MARGIN :])
        if any(stop in window for stop in stops):
            return True
        whole = self._files.decode(ids)
        return any(stop in whole for stop in stops)

    def _went_on(self, ids: tuple[int, ...], stops: Sequence[str]) -> bool:
        """Whether a stop string was complete before the last token."""
        before = self._files.decode(ids[:-1])
        if _REPLACEMENT in before[-8:]:  # it may not have been seen before the character was whole
            before = self._files.decode(ids[:-4])
        return any(stop in before for stop in stops)


def remedy(wrong: Sequence[Wrong], room: int) -> str:
    """Return what to do about contradictions of one kind, by what they have in common.

    Args:
        wrong: The contradictions.
        room: As for ``Endings``.
    """
    first = wrong[0]
    turns = [one.turn for one in wrong]
    if first.kind == "cut off":
        if all(turn.before + len(turn.ids) == turn.cap for turn in turns):
            return (
                "the cap counts the prompt's tokens: sampling.max_tokens is of the completion alone"
            )
        totals = {turn.before + len(turn.ids) for turn in turns}
        lengths = {len(turn.ids) for turn in turns}
        if len(totals) == 1 and len(turns) > 1:
            total = totals.pop()
            return (
                f"with their prompts they all have {total} tokens, and the engine has room for "
                f"{room}: it was given prompts that are {room - total} tokens longer than the "
                "trainer's (then trainer and engine disagree on what the prompt is), a shorter "
                "context, or another cap"
            )
        if len(lengths) == 1:
            return (
                f"the engine was given a cap of {lengths.pop()} (max_tokens), not that of "
                "sampling.max_tokens or the problem"
            )
        return (
            "the engine's context is shorter than prompt and max_tokens, or it gave up: an answer "
            "that it aborts must be sampled again"
        )
    if first.kind == "no end":
        lasts = {turn.ids[-1] for turn in turns if turn.ids}
        if len(lasts) == 1 and len(turns) > 1:
            return (
                "the engine stops at a token that the model does not end with: look at its list of "
                "stop tokens, and at eos_token_id of config.json, generation_config.json and the "
                "tokenizer"
            )
        return (
            "the end-of-sequence token was taken off (it must be trained), the completion was cut "
            "off and says 'stop', or the engine has a stop string of its own: look at what makes "
            "finish_reason, and at stop of the request"
        )
    return _REMEDIES[first.kind]


_REMEDIES: dict[Kind, str] = {
    "goes on": (
        "the engine does not stop at an end-of-sequence token of the model: compare what it stops "
        "at with eos_token_id of config.json, generation_config.json and the tokenizer"
    ),
    "behind the stop string": "the engine does not stop at sampling.stop or the problem's stop",
    "over the cap": "the engine was given another cap than sampling.max_tokens or the problem's",
    "no room": (
        "what was cut off at max_tokens must say 'length': train.mask_truncated and the ledger go "
        "by it"
    ),
    "ended": (
        "finish_reason 'length' is for completions that reach max_tokens: train.mask_truncated and "
        "the ledger go by it"
    ),
}
