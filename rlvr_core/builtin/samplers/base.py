"""What all samplers share: group sizes, which groups are kept, refills, state.

A new sampler says which problems come next (``begin``, ``choose``) and what it must remember
(``position``, ``seek``).
"""

from __future__ import annotations

import hashlib
import inspect
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
    PluginError,
    Problem,
    SamplerTraits,
    Source,
)
from rlvr_core.api.services import REWARD_TOLERANCE, replacements

Natural = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(gt=0)]


class AdaptiveConfig(ComponentConfig):
    """When a group has completions enough."""

    k_success: Natural = 0
    """Completions that must have passed."""
    k_failure: Natural = 0
    """Completions that must have failed."""
    max_completions: Positive | None = None
    """The most a group may have; null for ``sampling.n``."""
    chunk_size: Positive = 1
    """Completions drawn at a time."""
    max_total_tokens: Positive | None = None
    """Completion tokens from which on a group gets no further chunk; null is off."""

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
    """How many completions groups get.

    Attributes:
        first: In the first chunk.
        most: In all.
        adaptive: When to stop before that; None if ``first`` is all.
    """

    first: int
    most: int
    adaptive: AdaptiveConfig | None = None

    @classmethod
    def of(cls, n: int, adaptive: AdaptiveConfig | None) -> GroupSize:
        """The sizes that ``sampling.n`` and the options give.

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
        """Completions to draw now that these are judged; 0 when the group is complete.

        In this order: ``max_completions`` is a cap; a group with ``max_total_tokens`` gets no more;
        one with ``k_success`` that passed and ``k_failure`` that failed is complete; else a chunk
        is drawn. What could not be judged neither passed nor failed.
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
    """Drop groups whose rewards, the weighted sums of their scores, are all equal: their advantages
    are zero, but for ``combine: normalise_then_sum``."""
    refill: Annotated[float, Field(ge=0)] = 1.0
    """Problems drawn in one step to replace dropped groups, at most, as a share of
    ``train.prompts_per_step``."""
    adaptive: AdaptiveConfig | None = None
    """Let the number of completions depend on how the first ones did, by ``k_success``,
    ``k_failure``, ``max_completions``, ``chunk_size`` and ``max_total_tokens``; null for
    ``sampling.n`` of each problem."""
    max_reads: Positive = 1
    """Steps that a kept group is trained on. Above 1, what a step can take from earlier groups it
    does not generate."""


class SamplerBase(ABC):
    """A sampler but for the choice of problems."""

    source_keys: ClassVar[frozenset[str]] = frozenset()
    """Which of ``weight``, ``order`` and ``count`` of a source it heeds; others are refused."""

    def __init__(self, config: SamplerConfig) -> None:
        self._options = config
        self.prompts_per_step = 0
        self.traits = SamplerTraits(max_reads=config.max_reads, refill=config.refill)
        self._size = GroupSize(0, 0)
        self._seed = 0
        self._drawn = 0

    # -- what a sampler is -----------------------------------------------------------------------

    @abstractmethod
    def begin(self, sources: Sequence[Source]) -> None:
        """Take the data, none of it empty, and stand before the first problem."""

    @abstractmethod
    def choose(self, n_problems: int, step: int) -> Iterable[Problem]:
        """The next problems. ``drawn`` is the number of problems before them."""

    @abstractmethod
    def identity(self) -> Json:
        """What a run must not change to be resumed, such as ``digest`` of its ids."""

    @abstractmethod
    def position(self) -> Json:
        """Everything ``seek`` needs to go on exactly."""

    @abstractmethod
    def seek(self, position: Json) -> None:
        """Go where ``position`` was taken."""

    def update(self, outcomes: Sequence[Outcome]) -> None:
        """Learn what became of the groups of one ``draw``; nothing unless overridden."""
        del outcomes

    def metrics(self) -> dict[str, float]:
        """Numbers for the step's line; none unless overridden."""
        return {}

    # -- what all have ---------------------------------------------------------------------------

    @property
    def seed(self) -> int:
        """The run's seed."""
        return self._seed

    @property
    def drawn(self) -> int:
        """Problems drawn so far in the run."""
        return self._drawn

    def start(self, sources: Sequence[Source], *, n: int, prompts_per_step: int, seed: int) -> None:
        """Begin a run over these sources.

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
        self._seed = seed
        self._drawn = 0
        self.begin(sources)

    def draw(self, n_problems: int, *, step: int) -> list[Draw]:
        """The next problems.

        Raises:
            PluginError: If ``choose`` gives no problems, more than were asked for, or something
                else.
        """
        chosen = list(islice(self.choose(n_problems, step), n_problems + 1))
        odd = [type(one).__name__ for one in chosen if not isinstance(one, Problem)]
        if odd or len(chosen) > n_problems or (n_problems and not chosen):
            what = f"{'more than' if chosen else 'none of'} {n_problems} problems"
            if odd:
                what = f"a {odd[0]}, not a Problem"
            raise self._fault(f"chose {what}", "choose")
        draws = [
            Draw(problem, self._size.first, self._drawn + position)
            for position, problem in enumerate(chosen)
        ]
        self._drawn += len(draws)
        return draws

    def observe(self, group: Group) -> Keep | Drop | Extend:
        """Extend what is too small; drop what cannot teach.

        Groups without any score are dropped, and on request those whose rewards are all equal.
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
        """Replace what was dropped, up to the cap."""
        most = self.prompts_per_step + replacements(self._options.refill, self.prompts_per_step)
        return max(0, min(self.prompts_per_step - kept, most - drawn))

    def state_dict(self) -> dict[str, Json]:
        """How far it is, and what data it counts over."""
        state = {
            "seed": self._seed,
            "drawn": self._drawn,
            "identity": self.identity(),
            "position": self.position(),
        }
        try:
            json.dumps(state)
        except (TypeError, ValueError) as error:
            raise self._fault(f"has a state that is no JSON: {error}", "position") from error
        return state

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Continue exactly.

        Raises:
            ConfigError: If the state was taken with another seed or over other problems.
        """
        if state["seed"] != self._seed or state["identity"] != self.identity():
            changed = "seed" if state["seed"] != self._seed else "problems or their order"
            raise ConfigError(
                f"the sampler cannot continue: its {changed} changed since the checkpoint",
                remedy="restore data and run.seed, or start a new run",
            )
        self._drawn = state["drawn"]
        self.seek(state["position"])

    def _fault(self, what: str, method: str) -> PluginError:
        made = type(self)
        return PluginError(
            f"the sampler {made.__qualname__} {what}",
            where=f"{inspect.getfile(made)} ({made.__qualname__}.{method})",
            remedy="what a sampler gives is in docs/samplers.md",
        )

    def _refuse_idle_keys(self, sources: Sequence[Source]) -> None:
        idle = [
            Complaint(
                f"{key} has no effect: the run's sampler does not heed it",
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
    """SHA-256 of ids in the order given."""
    return hashlib.sha256("\n".join(ids).encode("utf-8", "backslashreplace")).hexdigest()


def seeded_hash(*parts: object) -> int:
    """A 64-bit number that the parts decide: what samplers have in place of a generator.

    Nothing is drawn, so there is no generator state to save, and choices do not depend on how many
    were made before.
    """
    key = repr(parts).encode("utf-8", "backslashreplace")
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big")
