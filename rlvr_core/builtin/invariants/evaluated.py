"""Whether the completions of an evaluation are those that its seeds and its temperature draw.

An evaluation is sampled by the run's engine under the newest weights, at the task's own
temperature, with seeds of the problem, the version and its place in the task. So its tokens must be
those that the trainer's distribution at that temperature and these seeds give, as in training: what
is sampled otherwise, asked again, or chosen among several answers is none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from rlvr_core.builtin.invariants.by_depth import DECIDING, FEWEST, SHARE
from rlvr_core.builtin.invariants.differences import Sums, fit
from rlvr_core.builtin.invariants.moments import AHEAD, LOGP, chosen, token_moments
from rlvr_core.builtin.invariants.rounding import BANDS, ON_GPU, measure_parity, on_gpu
from rlvr_core.builtin.invariants.seeds import seed_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from torch import Tensor

    from rlvr_core.api import EvalFinished, Group, SamplingParams
    from rlvr_core.api.services import Evaluation, ParitySection
    from rlvr_core.builtin.invariants.check import Trainer

LEAST = 64
"""Greedy tokens that are judged, at least."""

NOT_LIKELIEST = {True: 0.02, False: 0.25}
"""Share of greedy tokens that may not be the likeliest, in float32 and below: ties by rounding."""


class Evaluations(Protocol):
    """What evaluates the policy.

    Attributes:
        latest: The last evaluation, and how its task samples; None before the first.
    """

    latest: tuple[Evaluation, SamplingParams] | None


class Evaluated:
    """Looks at the completions of evaluations.

    Args:
        trainer: The policy's trainer.
        evaluations: What evaluates the policy.
        run_seed: The run's seed.
    """

    def __init__(self, trainer: Trainer, evaluations: Any, run_seed: int) -> None:
        self._trainer, self._evaluations, self._seed = trainer, evaluations, run_seed
        self._places: dict[int, int] = {}
        self._sums: dict[float, Sums] = {}

    def sampled(self, event: EvalFinished) -> tuple[tuple[Group, ...], SamplingParams] | None:
        """Return the groups of an evaluation that are looked at, and how they were to be sampled.

        None in a run of several processes, of which one alone is told of evaluations.
        """
        latest = None if self._evaluations is None else self._evaluations.latest
        if latest is None or self._trainer.ranks.world > 1 or latest[0].name != event.task:
            return None
        groups = tuple(one.group for one in latest[0].sampled)
        self._places = {id(group): place for place, group in enumerate(groups)}
        return chosen(groups, event.step, warm=True), latest[1]

    def scores(self, groups: Sequence[Group], params: SamplingParams) -> Tensor:
        """Return ``token_moments`` of the groups at the task's temperature, and log-probs, (N, 8).

        The last column has the engine's.
        """

        def compute(*args: Any, **options: Any) -> tuple[Tensor, ...]:
            return token_moments(
                *args,
                **options | {"temperature": params.temperature or 1.0},
                top_k=params.top_k if params.temperature else 0,
                top_p=params.top_p if params.temperature else 1.0,
            )

        return self._trainer.token_scores(groups, compute)

    def seed(self, group: Group, sample: int) -> int:
        """Return the seed of a sample of a group: its draw is the place of the problem."""
        draw = self._places[id(group)]
        return seed_of(self._seed, group.problem.id, group.version, draw, sample)

    def apart(
        self, scores_NK: Tensor, params: SamplingParams, dtype: torch.dtype, section: ParitySection
    ) -> str:
        """Return how log-probs of trainer and engine differ beyond rounding; empty if they do not.

        Where the engine truncates they may, as rounding decides which tokens it keeps.
        """
        found = measure_parity(scores_NK[:, LOGP], scores_NK[:, -1])
        if found is None or (params.temperature and (params.top_k > 0 or params.top_p < 1)):
            return ""
        band, cool = BANDS[dtype], min(1.0, params.temperature or 1.0)
        mean = (band.mean if section.mean is None else section.mean) / cool
        largest = (band.max if section.max is None else section.max) / cool
        far = int((~((scores_NK[:, LOGP] - scores_NK[:, -1]).abs() <= largest)).sum())
        # of thousands of evaluations one may have a token that rounds as never before
        if found.mean <= mean and not (far >= FEWEST and far > SHARE * found.tokens):
            return self._tilted(scores_NK, params, dtype, section)
        return (
            f"trainer and engine disagree on tokens at temperature {params.temperature:g}: mean "
            f"{found.mean:.3g} nats (band {mean:g}), max {found.max:.3g}, {far} above {largest:g}, "
            f"over {found.tokens} tokens"
        )

    def _tilted(
        self, scores_NK: Tensor, params: SamplingParams, dtype: torch.dtype, section: ParitySection
    ) -> str:
        """Return the same by slope and k3 of all evaluations at this temperature so far."""
        known = self._sums.get(params.temperature, Sums())
        sums = known.add(Sums.of(scores_NK[:, LOGP], scores_NK[:, -1]))
        self._sums[params.temperature] = sums
        if sums.n < LEAST:
            return ""
        band = (ON_GPU if on_gpu(self._trainer) else BANDS)[dtype]
        cool = min(1.0, params.temperature or 1.0)
        slope = section.slope or section.mean or band.slope
        k3 = section.k3 or section.mean or band.k3 / cool**2
        found = fit(sums)
        tilted = abs(found.slope - 1) > slope + 5 * found.slope_error
        if not (tilted and found.deciding >= DECIDING) and found.k3 - 5 * found.k3_error <= k3:
            return ""
        return (
            f"trainer and engine disagree on tokens at temperature {params.temperature:g}: slope "
            f"{found.slope:.4f} (band 1 +- {slope:g}), mean k3 {found.k3:.3g} (band {k3:g}), over "
            f"{found.tokens} tokens of all evaluations"
        )


def not_greedy(scores_NK: Tensor, *, exact: bool) -> str:
    """Return how tokens at temperature 0 are not the likeliest; empty if they are, or are few."""
    n, others = len(scores_NK), int((scores_NK[:, AHEAD] > 0).sum())
    if n < LEAST or others <= NOT_LIKELIEST[exact] * n:
        return ""
    return (
        f"{others} of {n} tokens are not the likeliest, which are those of temperature 0 (band: a "
        f"share of {NOT_LIKELIEST[exact]:g})"
    )
