"""What there is to solve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Json = Any
"""A value that ``json.dumps`` writes and ``json.loads`` reads back equal."""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a chat prompt."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to solve.

    Attributes:
        id: Stable and unique (``gsm8k_train_17``): curricula, resume and de-duplication key on it.
        prompt: Raw text, or the turns of a chat.
        verifier: Name of the verifier that ``rewards: [{use: auto}]`` picks for it.
        spec: What the verifier needs, under the field names of the source data set.
        dataset: Name of the data set it came from; shown in per-dataset metrics.
        stop: Strings that end a completion of it, beside the run's own.
        max_tokens: Its own cap on completion length, in tokens; None leaves the run's.
        tags: Level, subject and the like, to stratify by.
        environment: Name of the environment that plays it; None for a single answer.
        where: File and line, or row, it was read from, for messages; no part of the problem, so
            equality and fingerprints leave it out.
        tools: JSON schemas of functions, given to the model's chat template; none where the
            prompt itself tells of them.
    """

    id: str
    prompt: str | tuple[Message, ...]
    verifier: str
    spec: Mapping[str, Json]
    dataset: str
    stop: tuple[str, ...] = ()
    max_tokens: int | None = None
    tags: Mapping[str, Json] = field(default_factory=dict)
    environment: str | None = None
    where: str = field(default="", compare=False)
    tools: tuple[Mapping[str, Json], ...] = ()
