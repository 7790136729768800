"""Turns verdicts into the reward used in training, and the outcome.

The reward is the weighted sum of the scores, with weights that may change over the run. The outcome
(``passed``) is that of the first entry of ``rewards``, whatever shaping the others add.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any

from rlvr_core.api import (
    ChecksProblems,
    Completion,
    ConfigError,
    Problem,
    Span,
    Verdict,
    Verifier,
    VerifierTraits,
    traits_of,
)
from rlvr_core.config.model import ComponentRef, RewardRef, RewardSchedule, VerifySection
from rlvr_core.config.resolve import build
from rlvr_core.plugins.host import Host, load_host
from rlvr_core.verify.pool import VerifierPool
from rlvr_core.verify.verdicts import VerifierSpec

AUTO = "auto"
"""Name in ``rewards`` for each problem's own verifier."""
FULL_MARKS = 1.0


@dataclass(frozen=True, slots=True)
class Term:
    """One entry of ``rewards``.

    Attributes:
        verifier: Name of its verifier in the plan; None for each problem's own.
        weight: Factor at step 0.
        schedule: Schedule of the factor; None if it is constant.
    """

    verifier: str | None
    weight: float
    schedule: RewardSchedule | None = None

    def weight_at(self, step: int) -> float:
        """Return the factor after ``step`` steps: linear, then constant."""
        if self.schedule is None:
            return self.weight
        share = min(step / self.schedule.steps, 1.0)
        return self.weight + share * (self.schedule.to - self.weight)


@dataclass(frozen=True, slots=True)
class RewardPlan:
    """The verifiers that judge a problem, and how their verdicts become its reward.

    Attributes:
        terms: The entries of ``rewards``, in order.
        specs: How to construct each verifier, by the name of its verdicts: its full name, with
            ``#2`` and so on if one verifier is used with different options.
        own: Full name of each verifier that problems name, by the name they use.
        verifiers: An instance of each, for ``check`` and ``gold``.
    """

    terms: tuple[Term, ...]
    specs: Mapping[str, VerifierSpec]
    own: Mapping[str, str]
    verifiers: Mapping[str, Any]

    @classmethod
    def build(
        cls, rewards: Sequence[RewardRef], requested: Iterable[str], host: Host
    ) -> RewardPlan:
        """Look up all verifiers and build the plan.

        Args:
            rewards: The config's entries.
            requested: The ``verifier`` field of every problem of the run; may contain repeats.
            host: The host that resolves verifiers.

        Raises:
            ConfigError: If a verifier is unknown, or ``auto`` is misused.
            PluginError: If a verifier's plugin is missing or broken.
        """
        specs: dict[str, VerifierSpec] = {}
        verifiers: dict[str, Any] = {}
        own: dict[str, str] = {}
        automatic = [index for index, ref in enumerate(rewards) if ref.use == AUTO]
        if automatic:
            _check_auto(rewards, automatic)
            for name in sorted(set(requested)):
                where = "data: problems ask for it"
                entry = host.entry("verifier", name, where)
                own[name] = entry.name
                specs[entry.name] = VerifierSpec(entry.target, {})
                verifiers[entry.name] = build(host, "verifier", ComponentRef(use=name), where)
        terms = []
        for index, ref in enumerate(rewards):
            key = None
            if ref.use != AUTO:
                where = f"rewards[{index}]"
                entry = host.entry("verifier", ref.use, where)
                key = _free(entry.name, specs)
                specs[key] = VerifierSpec(entry.target, ref.with_)
                verifiers[key] = build(host, "verifier", ref, where)
            terms.append(Term(key, ref.weight, ref.schedule))
        for verifier in verifiers.values():
            traits_of(verifier, VerifierTraits)  # raises if its traits are malformed
        return cls(tuple(terms), specs, own, verifiers)

    @property
    def comparing(self) -> list[str]:
        """Return the verifiers that can only compare the completions of a group."""
        return [
            name for name, verifier in self.verifiers.items() if not isinstance(verifier, Verifier)
        ]

    def pool(self, section: VerifySection) -> VerifierPool:
        """Start a pool of these verifiers with the settings of the config's ``verify``.

        Raises:
            ConfigError: If ``verify.pool`` names none, or one of its options is wrong.
        """
        make: Callable[..., VerifierPool] = VerifierPool
        if section.pool is not None:
            entry = load_host().entry("verifier_pool", section.pool.use, "verify.pool")
            make = partial(entry.load(), section.pool.with_)
        return make(
            self.specs,
            workers=section.workers,
            timeout=section.timeout,
            memory_mb=section.memory_mb,
        )

    def names(self, problem: Problem) -> tuple[str, ...]:
        """Return the verifiers that judge this problem, one per term, in order.

        Raises:
            ConfigError: If the problem names a verifier that the plan was not built with.
        """
        if problem.verifier not in self.own and any(term.verifier is None for term in self.terms):
            raise ConfigError(
                f"problem {problem.id} asks for verifier '{problem.verifier}', which no problem "
                f"had at the start of the run"
            )
        return tuple(term.verifier or self.own[problem.verifier] for term in self.terms)

    def main_name(self, problem: Problem) -> str:
        """Return the verifier that decides this problem's outcome."""
        return self.names(problem)[0]

    def check(self, problem: Problem) -> None:
        """Have every verifier of this problem check its spec.

        Raises:
            DataError: If one of them cannot judge it.
        """
        for name in self.names(problem):
            verifier = self.verifiers[name]
            if isinstance(verifier, ChecksProblems):
                verifier.check(problem)

    def weights(self, step: int) -> tuple[float, ...]:
        """Return the weight of each term after ``step`` steps."""
        return tuple(term.weight_at(step) for term in self.terms)

    def moving_weights(self, step: int) -> dict[str, float]:
        """Return, as metrics, the weights of scheduled terms after ``step`` steps."""
        return {
            f"reward_weight/{term.verifier or AUTO}": term.weight_at(step)
            for term in self.terms
            if term.schedule is not None
        }

    def combine(
        self, verdicts: Mapping[str, Verdict], step: int
    ) -> tuple[float | None, bool | None]:
        """Compute reward and outcome of one completion.

        Args:
            verdicts: One per term, in order, as the pool gives them for ``names``.
            step: Steps done, for the schedules.

        Returns:
            The weighted sum of the scores, or None if a verdict with nonzero weight has no score
            (what could not be judged is never treated as wrong); and whether the first term's
            verdict passed. A verdict with a score but no ``passed`` counts as passed if the score
            is 1.0.
        """
        reward: float | None = 0.0
        for term, verdict in zip(self.terms, verdicts.values(), strict=True):
            weight = term.weight_at(step)
            if weight == 0.0 or reward is None:
                continue
            reward = None if verdict.score is None else reward + weight * verdict.score
        return reward, outcome(next(iter(verdicts.values())))

    def spans(
        self, completion: Completion, verdicts: Mapping[str, Verdict], step: int
    ) -> tuple[Span, ...]:
        """Compute the scores of stretches of a completion, as in ``Judged.spans``.

        Args:
            completion: The completion.
            verdicts: As for ``combine``.
            step: Steps done, for the schedules.
        """
        spans: list[Span] = []
        for term, verdict in zip(self.terms, verdicts.values(), strict=True):
            weight = term.weight_at(step)
            if weight != 0.0:
                spans += [
                    replace(span, score=weight * span.score)
                    for span in completion.spans_in_tokens(verdict.spans)
                ]
        return tuple(spans)


def outcome(verdict: Verdict) -> bool | None:
    """Whether a verdict is a pass; None if it has no score."""
    if verdict.score is None:
        return None
    return verdict.score >= FULL_MARKS if verdict.passed is None else verdict.passed


def _check_auto(rewards: Sequence[RewardRef], automatic: Sequence[int]) -> None:
    if len(automatic) > 1:
        raise ConfigError("'auto' is used twice", where=f"rewards[{automatic[1]}]")
    if rewards[automatic[0]].with_:
        raise ConfigError(
            "'auto' takes no options: each problem may have another verifier",
            where=f"rewards[{automatic[0]}].with",
            remedy="name the verifier to give it options",
        )


def _free(name: str, taken: Mapping[str, VerifierSpec]) -> str:
    if name not in taken:
        return name
    return next(key for n in count(2) if (key := f"{name}#{n}") not in taken)
