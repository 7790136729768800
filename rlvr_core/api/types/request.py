"""What an engine is asked for."""

from __future__ import annotations

from dataclasses import dataclass

from rlvr_core.api.types.problem import Message, Problem

REMOTE = "openai:"
"""What the name of a model on another machine begins with, where a model is named."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to draw tokens.

    Attributes:
        temperature: 0 is greedy.
        top_p: 1.0 is off.
        top_k: 0 is off.
        max_tokens: Cap on the completion, in tokens.
        stop: Strings that end the completion; their tokens are kept, as is their text.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int = 512
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Prompt:
    """A problem as it is given to an engine.

    Attributes:
        ids: Token ids; none for an engine that takes text.
        text: What the model is given, for the record.
        turns: For an engine that takes text: the chat, or one turn that holds the whole raw text.
    """

    ids: tuple[int, ...]
    text: str
    turns: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One prompt and one seed per completion wanted; ``turns`` as in ``Prompt``.

    ``problem`` is what is answered and ``world_seed`` is that of its environment, the same for all
    completions of one draw: whoever plays environments reads them, engines need not.
    """

    id: str
    prompt_ids: tuple[int, ...]
    params: SamplingParams
    seeds: tuple[int, ...]
    turns: tuple[Message, ...] = ()
    problem: Problem | None = None
    world_seed: int = 0
