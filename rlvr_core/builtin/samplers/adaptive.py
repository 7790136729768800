"""Adaptive group sizes: sample a problem until it has shown enough successes and failures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, model_validator

from rlvr_core.api import ComponentConfig, ConfigError, Judged

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
