"""Base class of the samplers: group sizes, which groups are kept, refills, state.

A new sampler defines which problems come next (``begin``, ``choose``) and its resumable state
(``position``, ``seek``).
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from rlvr_core.api import (
    Complaint,
    ComponentConfig,
    ConfigError,
    DataError,
    Draw,
    Drop,
    Extend,
    Group,
    Json,
    Judged,
    Keep,
    Outcome,
    Problem,
    SamplerTraits,
    Source,
)
from rlvr_core.api.judging import replacements
from rlvr_core.api.rollouts import REWARD_TOLERANCE
from rlvr_core.record.metrics import misuse

Natural = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(gt=0)]

_REMEDY = "what a sampler gives is in rlvr docs samplers"


class AdaptiveConfig(ComponentConfig):
    """Options that decide when a group is complete."""

    k_success: Natural = 0
    """Number of completions that must have passed."""
    k_failure: Natural = 0
    """Number of completions that must have failed."""
    max_completions: Positive | None = None
    """Maximum completions of a group; null for ``sampling.n``."""
    chunk_size: Positive = 1
    """Completions drawn at a time."""
    max_total_tokens: Positive | None = None
    """Completion tokens at which a group gets no further chunk; null is off."""

    @model_validator(mode="after")
    def _stops(self) -> AdaptiveConfig:
        if self.k_success == self.k_failure == 0 and self.max_total_tokens is None:
            raise ValueError(
                "every group would get max_completions: set k_success and k_failure (2 and 2 are "
                "usual), or max_total_tokens"
            )
        return self


@dataclass(frozen=True, slots=True)
class GroupSize:
    """Number of completions of a group.

    Attributes:
        first: Size of the first chunk.
        most: Most completions in total.
        adaptive: When to stop before that; None if there is only the first chunk.
    """

    first: int
    most: int
    adaptive: AdaptiveConfig | None = None

    @classmethod
    def of(cls, n: int, adaptive: AdaptiveConfig | None) -> GroupSize:
        """Return the sizes given by ``sampling.n`` and the options.

        Raises:
            ConfigError: If a group could never meet the rule.
        """
        if adaptive is None:
            return cls(n, n)
        most = adaptive.max_completions or n
        needed = adaptive.k_success + adaptive.k_failure
        if needed > most:
            raise ConfigError(
                f"a group of at most {most} completions never has {adaptive.k_success} that passed "
                f"and {adaptive.k_failure} that failed",
                where="sampler.with.adaptive",
                remedy=f"raise max_completions to {needed} or more (64 is usual)",
            )
        return cls(min(adaptive.chunk_size, most), most, adaptive)

    def next(self, members: Sequence[Judged]) -> int:
        """Return the completions to draw after these were judged; 0 if the group is complete.

        Rules in order: ``max_completions`` is a cap; a group that has reached ``max_total_tokens``
        gets no more; a group with ``k_success`` passed and ``k_failure`` failed completions is
        complete; otherwise a chunk is drawn. A completion that could not be judged counts as
        neither.
        """
        rule, total = self.adaptive, len(members)
        if rule is None or total >= self.most:
            return 0
        tokens = sum(len(member.completion.token_ids) for member in members)
        if rule.max_total_tokens is not None and tokens >= rule.max_total_tokens:
            return 0
        passed = [member.passed for member in members]
        enough = passed.count(True) >= rule.k_success and passed.count(False) >= rule.k_failure
        if enough and (rule.k_success > 0 or rule.k_failure > 0):
            return 0
        return min(rule.chunk_size, self.most - total)


class SamplerConfig(ComponentConfig):
    """Options of every sampler."""

    drop_zero_variance: bool = True
    """Drop groups whose rewards (the weighted sums of scores) are all equal: their advantages are
    zero, except with ``combine: normalise_then_sum``."""
    refill: Annotated[float, Field(ge=0)] = 1.0
    """Cap on the problems drawn in one step to replace dropped groups, as a share of
    ``train.prompts_per_step``."""
    adaptive: AdaptiveConfig | None = None
    """Make the number of completions depend on the results of the first ones, by ``k_success``,
    ``k_failure``, ``max_completions``, ``chunk_size`` and ``max_total_tokens``; null draws
    ``sampling.n`` for each problem."""
    max_reads: Positive = 1
    """Number of steps in which a kept group is trained on. Above 1, a step generates fewer groups,
    by the number of earlier groups that it reads again."""


class SamplerBase(ABC):
    """Everything of a sampler except the choice of problems.

    Attributes:
        seed: The run's seed.
        drawn: Number of problems drawn so far in the run.
    """

    source_keys: ClassVar[frozenset[str]] = frozenset()
    """The source keys it uses, of ``weight``, ``order`` and ``count``; others are refused."""

    def __init__(self, config: SamplerConfig) -> None:
        self._options = config
        self.prompts_per_step = 0
        self.traits = SamplerTraits(max_reads=config.max_reads, refill=config.refill)
        self._size = GroupSize(0, 0)
        self.seed = 0
        self.drawn = 0

    # -- to be implemented by a sampler ------------------------------------------------------------

    @abstractmethod
    def begin(self, sources: Sequence[Source]) -> None:
        """Take the sources, none of them empty, and position before the first problem."""

    @abstractmethod
    def choose(self, n_problems: int, step: int) -> Iterable[Problem]:
        """Yield the next problems. ``drawn`` is the number of problems before them."""

    @abstractmethod
    def identity(self) -> Json:
        """Return what must not change for a run to be resumed, such as ``digest`` of its ids."""

    @abstractmethod
    def position(self) -> Json:
        """Return the state that ``seek`` needs to continue exactly."""

    @abstractmethod
    def seek(self, position: Json) -> None:
        """Restore a state from ``position``."""

    def update(self, outcomes: Sequence[Outcome]) -> None:
        """Observe the outcomes of the groups of one ``draw``; does nothing unless overridden."""
        del outcomes

    def metrics(self) -> dict[str, float]:
        """Return metrics for the step's line; empty unless overridden."""
        return {}

    # -- common to all samplers --------------------------------------------------------------------

    def start(self, sources: Sequence[Source], *, n: int, prompts_per_step: int, seed: int) -> None:
        """Start a run over these sources.

        Raises:
            DataError: If a source has no problems.
            ConfigError: If groups could never be kept, or a source has keys without effect.
        """
        self._size = GroupSize.of(n, self._options.adaptive)
        if self._options.adaptive is not None:
            self.traits = replace(self.traits, max_completions=self._size.most)
        if self._size.most < 2 and self._options.drop_zero_variance:
            raise ConfigError(
                f"sampling.n is {n}: a group of one has no variance, and every group would be "
                f"dropped",
                remedy="raise sampling.n, or set drop_zero_variance: false in the sampler",
            )
        empty = [source.name for source in sources if not source.problems]
        if empty or not sources:
            raise DataError(f"no problems in {', '.join(empty) or 'the data'}")
        self._refuse_idle_keys(sources)
        self.prompts_per_step = prompts_per_step
        self.seed = seed
        self.drawn = 0
        self.begin(sources)

    def draw(self, n_problems: int, *, step: int) -> list[Draw]:
        """Draw the next problems.

        Raises:
            PluginError: If ``choose`` yields no problems, more than requested, or anything else.
        """
        chosen = list(islice(self.choose(n_problems, step), n_problems + 1))
        odd = [type(item).__name__ for item in chosen if not isinstance(item, Problem)]
        if odd or len(chosen) > n_problems or (n_problems and not chosen):
            what = f"{'more than' if chosen else 'none of'} {n_problems} problems"
            if odd:
                what = f"a {odd[0]}, not a Problem"
            raise misuse(self, f"chose {what}", _REMEDY)
        draws = [
            Draw(problem, self._size.first, self.drawn + position)
            for position, problem in enumerate(chosen)
        ]
        self.drawn += len(draws)
        return draws

    def observe(self, group: Group) -> Keep | Drop | Extend:
        """Extend a group that is too small; drop one without a learning signal; keep the others.

        Groups without any score are dropped, and, if configured, those whose rewards are all equal.
        """
        more = self._size.next(group.members)
        if more:
            return Extend(more)
        scored = [member for member in group.members if member.reward is not None]
        if not scored:
            return Drop("unscorable")
        keep = Keep(self.traits.max_reads)
        if not self._options.drop_zero_variance:
            return keep
        rewards = [member.reward for member in scored if member.reward is not None]
        if len(rewards) >= 2 and max(rewards) - min(rewards) > REWARD_TOLERANCE:
            return keep
        outcomes = {member.passed for member in scored}
        if len(rewards) < 2:
            return Drop("zero_variance", "one_scored")
        if outcomes == {True}:
            return Drop("zero_variance", "all_passed")
        return Drop("zero_variance", "all_failed" if outcomes == {False} else "equal")

    def refill(self, kept: int, drawn: int) -> int:
        """Return how many problems to draw in place of dropped ones, up to the cap."""
        most = self.prompts_per_step + replacements(self._options.refill, self.prompts_per_step)
        return max(0, min(self.prompts_per_step - kept, most - drawn))

    def state_dict(self) -> dict[str, Json]:
        """Return the position, and the identity of the data it refers to."""
        state = {
            "seed": self.seed,
            "drawn": self.drawn,
            "identity": self.identity(),
            "position": self.position(),
        }
        try:
            json.dumps(state)
        except (TypeError, ValueError) as error:
            raise misuse(self, f"has a state that is no JSON: {error}", _REMEDY) from error
        return state

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Restore a state to continue exactly.

        Raises:
            ConfigError: If the state was taken with another seed or over other problems.
        """
        if state["seed"] != self.seed or state["identity"] != self.identity():
            changed = "seed" if state["seed"] != self.seed else "problems or their order"
            raise ConfigError(
                f"the sampler cannot continue: its {changed} changed since the checkpoint",
                remedy="restore data and run.seed, or start a new run",
            )
        self.drawn = state["drawn"]
        self.seek(state["position"])

    def _refuse_idle_keys(self, sources: Sequence[Source]) -> None:
        idle = [
            Complaint(
                f"{key} has no effect: the run's sampler does not use it",
                f"data.sources[{index}]",
                (f"take {key} out, or use the sampler core/mixture",),
            )
            for index, source in enumerate(sources)
            for key in ("weight", "order", "count")
            if getattr(source, key) is not None and key not in self.source_keys
        ]
        if idle:
            raise ConfigError.collect(idle)


def digest(ids: Iterable[str]) -> str:
    """Return the SHA-256 of ids in the given order."""
    return hashlib.sha256("\n".join(ids).encode("utf-8", "backslashreplace")).hexdigest()


def seeded_hash(*parts: object) -> int:
    """Return a 64-bit hash of the parts, which samplers use instead of a random generator.

    There is no generator state to save, and choices do not depend on the number of earlier ones.
    """
    key = repr(parts).encode("utf-8", "backslashreplace")
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big")
