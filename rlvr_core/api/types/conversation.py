"""A conversation between the model and an environment, and what each of them says in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from rlvr_core.api.types.problem import Json, Message
from rlvr_core.api.types.verdict import Verdict

Ended = Literal["done", "max_turns", "turn_length", "budget", "timeout", "error"]
"""How a conversation ended: by its environment's word; at a limit (turns, tokens of one turn, room
for another one); or by a failure of the environment, which is no fault of the model's."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a conversation after the prompt.

    Attributes:
        role: ``assistant`` for what the model wrote, else who the environment spoke as.
        text: What was said, without special tokens.
        n_tokens: Its tokens in the completion. Those of the template between two turns of the
            model are counted at the first message between them.
    """

    role: Literal["assistant", "tool", "user"]
    text: str
    n_tokens: int


@dataclass(frozen=True, slots=True)
class Transcript:
    """A conversation between the model and an environment.

    Attributes:
        environment: Full name of the environment.
        turns: What was said after the prompt, in order.
        ended: How it ended.
        detail: What went wrong, if something did.
        verdict: What the environment says of it all; None when it leaves that to verifiers.
        counts: What the environment counted, such as tool calls.
    """

    environment: str
    turns: tuple[Turn, ...]
    ended: Ended
    detail: str = ""
    verdict: Verdict | None = None
    counts: Mapping[str, float] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Whether the environment failed: such a conversation is judged by nobody."""
        return self.ended in ("timeout", "error")

    @property
    def n_turns(self) -> int:
        """Turns that the model wrote."""
        return sum(turn.role == "assistant" for turn in self.turns)

    def loss_mask(self, length: int) -> tuple[bool, ...]:
        """Which tokens of the completion the model wrote.

        Args:
            length: Tokens of the completion; 0 of a remote engine's, which has none.
        """
        if length == 0:
            return ()
        return tuple(turn.role == "assistant" for turn in self.turns for _ in range(turn.n_tokens))

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Transcript:
        """The transcript that ``dataclasses.asdict`` made this of."""
        verdict = None if data["verdict"] is None else Verdict.from_json(data["verdict"])
        turns = tuple(Turn(**turn) for turn in data["turns"])
        return cls(**{**data, "turns": turns, "verdict": verdict})


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model wrote in one turn, as an environment gets it; it is whole, never cut off.

    Attributes:
        text: Without special tokens.
        turn: Turns that the model wrote before it.
        turns_left: Turns it may write after it.
    """

    text: str
    turn: int
    turns_left: int


@dataclass(frozen=True, slots=True)
class Observation:
    """An environment's answer to a reply, after which the model goes on.

    Attributes:
        messages: At least one, each as ``tool`` or ``user``. A chat template frames them; where
            the prompt is raw text they are put behind the reply as they are.
        counts: What is to be counted, such as ``{"tool_calls": 1}``.
    """

    messages: tuple[Message, ...]
    counts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Done:
    """An environment's word that the conversation is over.

    Attributes:
        verdict: What it says of it; None leaves that to the verifiers of ``rewards``.
        counts: As in ``Observation``.
    """

    verdict: Verdict | None = None
    counts: Mapping[str, float] = field(default_factory=dict)
