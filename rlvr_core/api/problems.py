"""Problems, requests to engines, and the decisions of samplers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Json = Any
"""A value that ``json.dumps`` writes and ``json.loads`` reads back equal."""

NO_VERIFIER = "none"
"""Verifier of a problem that names none: the config's ``rewards`` have to."""


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


REMOTE = "openai:"
"""Prefix of ``model.path`` for a model behind a server."""
TINY = "tiny:"
"""Prefix of ``model.path`` for a tiny model, made on first use."""


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


Fate = Literal[
    "trained",
    "zero_variance",
    "stale",
    "too_long",
    "truncated",
    "unscorable",
    "error",
    "in_flight",
]
"""Fates of a drawn completion; the ledger's columns."""


@dataclass(frozen=True, slots=True)
class Draw:
    """A sampler's order for ``n`` completions of one problem.

    Attributes:
        problem: The problem.
        n: How many completions.
        index: Position of this draw in the run, counted from 0; part of the sampling seed, so
            that a problem met twice under one version gets fresh randomness.
        first: Number of its first completion within the group; not 0 when a group is extended.
    """

    problem: Problem
    n: int
    index: int
    first: int = 0


@dataclass(frozen=True, slots=True)
class Keep:
    """The group is trained on.

    Attributes:
        reads: In how many steps; from the second on it is off-policy.
    """

    reads: int = 1


@dataclass(frozen=True, slots=True)
class Drop:
    """The group is not trained on.

    Attributes:
        fate: The ledger column its completions go to.
        detail: What distinguishes drops of one fate, e.g. ``all_passed`` or ``all_failed``.
    """

    fate: Fate
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Extend:
    """The group needs more completions before it is decided on.

    Attributes:
        n: How many; at least one.
    """

    n: int

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ValueError(f"a group cannot be extended by {self.n} completions")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a group that a sampler has decided on.

    Small on purpose: where several processes collect groups, each of them gets all outcomes.

    Attributes:
        index: ``Draw.index``.
        problem_id: The problem.
        successes: Completions that passed.
        failures: Completions that did not; those that could not be judged are neither.
        kept: Whether the group is trained on.
    """

    index: int
    problem_id: str
    successes: int
    failures: int
    kept: bool


def content_id(dataset: str, row: Mapping[str, Json]) -> str:
    """Return a stable id for a row without one: ``<dataset>_<12 hex digits of its hash>``."""
    canonical = json.dumps(row, sort_keys=True, separators=(",", ":"))
    return f"{dataset}_{hashlib.sha256(canonical.encode()).hexdigest()[:12]}"
