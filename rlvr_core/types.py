"""The nouns of the framework: problems, completions, verdicts, groups.

All are frozen. Lengths are explicit everywhere: nothing is ever inferred from a token id (T3, T6).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Json = Any
"""A value that ``json.dumps`` writes and ``json.loads`` reads back equal."""

REMOTE = "openai:"
"""What the name of a model on another machine begins with, where a model is named."""

FinishReason = Literal["stop", "length", "abort", "error"]
VerdictStatus = Literal["ok", "unscorable", "timeout", "error"]
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
"""Where a drawn completion ended; the ledger's columns."""


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


@dataclass(frozen=True, slots=True)
class Usage:
    """What it took to ask a remote model; None is what is not known.

    Attributes:
        requests: Requests made, failed tries included.
        prompt_tokens: Tokens sent, as the server counted them.
        completion_tokens: Tokens received, reasoning that is not shown included.
        seconds: From the first try to the answer, waits between tries included.
        cost: In the currency of the configured price.
    """

    requests: int
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    seconds: float = 0.0
    cost: float | None = None

    def __add__(self, other: Usage) -> Usage:
        """Both together; a count that one of them does not know keeps what the other knows."""
        return Usage(
            self.requests + other.requests,
            _sum(self.prompt_tokens, other.prompt_tokens),
            _sum(self.completion_tokens, other.completion_tokens),
            self.seconds + other.seconds,
            _sum(self.cost, other.cost),
        )


def _sum(one: Any, other: Any) -> Any:
    return other if one is None else one if other is None else one + other


@dataclass(frozen=True, slots=True)
class Completion:
    """One sampled answer.

    Attributes:
        prompt_ids: Token ids the model was given.
        token_ids: Token ids it produced, the end-of-sequence token included when it produced one.
        logprobs: Log-probability of each token under the distribution really sampled from.
        loss_mask: Which tokens the loss may train; tool output and the like is False.
        text: ``token_ids`` decoded, without special tokens; of a conversation the last turn that
            the model wrote. What a verifier reads.
        finish_reason: ``stop``, ``length``, ``abort`` (not an answer, T20) or ``error``.
        version: Policy version read before generation began.
        usage: What it took to ask, of a remote engine; its completions have no tokens here.
        transcript: The turns of a conversation; None of a single answer.
        token_versions: Policy version of each token, where weights changed on the way and the
            engine knows; else empty, and ``version`` stands for all.

    Raises:
        ValueError: If the per-token sequences differ in length.
    """

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    loss_mask: tuple[bool, ...]
    text: str
    finish_reason: FinishReason
    version: int = 0
    usage: Usage | None = None
    transcript: Transcript | None = None
    token_versions: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        lengths = (len(self.token_ids), len(self.logprobs), len(self.loss_mask))
        if len(set(lengths)) != 1:
            raise ValueError(f"token_ids, logprobs and loss_mask differ in length: {lengths}")
        if self.token_versions and len(self.token_versions) != len(self.token_ids):
            raise ValueError(
                f"token_versions and token_ids differ in length: {len(self.token_versions)} and "
                f"{len(self.token_ids)}"
            )

    @property
    def n_tokens(self) -> int | None:
        """Length in tokens; of a remote engine's answer as its server counted them, if it did."""
        return len(self.token_ids) if self.usage is None else self.usage.completion_tokens

    @property
    def n_sampled(self) -> int:
        """Tokens that the model wrote: all but those of an environment."""
        return sum(self.loss_mask)

    @classmethod
    def from_text(cls, text: str) -> Completion:
        """A completion known only by its text, for verifying stored answers."""
        return cls((), (), (), (), text, "stop")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a verifier says of one completion.

    An exception or a timeout is never a score of 0: ``score`` is None unless status is ``ok``.

    Attributes:
        score: Usually in [0, 1]; None when the completion could not be judged.
        status: ``ok``, ``unscorable`` (the problem or answer cannot be judged), ``timeout``,
            ``error``.
        passed: Whether the answer counts as right; None when the verifier has no such notion.
        parts: Named partial scores, in a fixed order.
        extracted: The text taken as the answer, or None.
        detail: One line for a person: which rule decided, or what went wrong.
        usage: What it took to ask a remote model for it, whatever the status.
    """

    score: float | None
    status: VerdictStatus = "ok"
    passed: bool | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    extracted: str | None = None
    detail: str = ""
    usage: Usage | None = None

    def __post_init__(self) -> None:
        if (self.score is None) == (self.status == "ok"):
            raise ValueError(f"score {self.score!r} does not go with status {self.status!r}")

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Verdict:
        """The verdict that ``dataclasses.asdict`` made this of."""
        usage = data.get("usage")
        return cls(**{**data, "usage": None if usage is None else Usage(**usage)})


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


@dataclass(frozen=True, slots=True)
class Judged:
    """A completion with every verdict on it and the reward made of them.

    Attributes:
        completion: The completion.
        verdicts: One per reward of the config, by reward name, in config order.
        reward: The shaped number training uses; None when it cannot be scored.
        passed: The outcome, apart from shaping; None when unknown.
    """

    completion: Completion
    verdicts: Mapping[str, Verdict]
    reward: float | None
    passed: bool | None


@dataclass(frozen=True, slots=True)
class Group:
    """The judged completions of one problem drawn under one policy version."""

    problem: Problem
    members: tuple[Judged, ...]
    version: int


@dataclass(frozen=True, slots=True)
class Draw:
    """A sampler's order: so many completions of this problem.

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
    """What a sampler is told of a group that it has decided on.

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


@dataclass(frozen=True, slots=True)
class EvalReport:
    """What an evaluation found.

    Attributes:
        metrics: Numbers by name; ``accuracy`` is the headline where there is one.
        n: Problems evaluated.
        basis: What the numbers rest on and the specification does not say, as a benchmark's hash
            and the versions of libraries; kept with the result.
    """

    metrics: Mapping[str, float]
    n: int
    basis: Mapping[str, Json] = field(default_factory=dict)
