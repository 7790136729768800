"""Whether the completions of an evaluation are those that its seeds and its temperature draw.

An evaluation is sampled at the task's own temperature, with seeds of the problem, the version and
its place in the task. So its tokens must be those that the policy's distribution at that
temperature and these seeds give: what is sampled otherwise, by older weights, asked again, or
chosen among several answers is none of them. Of an engine that draws in a way of its own, its
log-probs must be the policy's, its tokens as surprising as these say, and none repeat too often.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.api import GroupsScored, RunError
from rlvr_core.builtin.invariants.bets import Bets, Token
from rlvr_core.builtin.invariants.by_depth import FEWEST, SHARE
from rlvr_core.builtin.invariants.coherent import judged, slack_of
from rlvr_core.builtin.invariants.differences import Sums, fit
from rlvr_core.builtin.invariants.drawn_tokens import by_row, tokens_of
from rlvr_core.builtin.invariants.moments import AHEAD, LOGP, token_moments
from rlvr_core.builtin.invariants.rounding import BANDS, Band, measure_parity
from rlvr_core.builtin.invariants.surprise import Surprise
from rlvr_core.builtin.invariants.truncation import Truncation, apart, edges

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr_core.api import Group, Json, SamplingParams
    from rlvr_core.api.services import ParitySection

LEAST = 64
"""Greedy tokens that are judged, at least."""

NOT_LIKELIEST = {True: 0.02, False: 0.25}
"""Share of greedy tokens that may not be the likeliest, in float32 and below: ties by rounding."""

OTHERWISE = (
    "an evaluation samples from the newest weights at the temperature of its task: look at what "
    "hands weights and sampling parameters to the engine"
)


class Evaluated:
    """Looks at the completions of evaluations.

    Args:
        dtype: Compute precision.
        band: How far log-probs may differ by rounding.
        section: Limits from the config; False where log-probs are not compared.
        repeats: Compares how often completions repeat with their log-probs (the service
            ``core/seeds``), of an engine that draws in a way of its own; None for one that draws by
            the numbers of the seed's stream.
        on_gpu: Whether the policy is on a GPU.
    """

    def __init__(
        self,
        dtype: torch.dtype,
        band: Band,
        section: ParitySection | bool,
        repeats: Any = None,
        *,
        on_gpu: bool = False,
    ) -> None:
        self._dtype, self._band, self._on_gpu = dtype, band, on_gpu
        self._section, self._repeats = section, repeats
        self._sums: dict[float, Sums] = {}
        self._surprise: dict[tuple[float, float, int], Surprise] = {}
        self._edges: dict[tuple[float, float, int], Truncation] = {}
        self._bets = Bets()

    def wrong(
        self,
        groups: Sequence[Group],
        params: SamplingParams,
        scores_NK: Tensor,
        seed: Callable[[Group, int], int],
        step: int = 0,
    ) -> tuple[str, str] | None:
        """Return what is wrong with the tokens of an evaluation, and a remedy.

        Args:
            groups: The groups that are looked at.
            params: How they were to be sampled.
            scores_NK: What ``moments_at`` makes of them, and behind it the engine's log-probs.
            seed: Returns the seed of a sample of a group.
            step: Steps before the evaluation.
        """
        what = self._apart(scores_NK, params)
        if not params.temperature:
            what = what or not_greedy(scores_NK, exact=self._dtype == torch.float32)
        if what:
            return what, OTHERWISE
        if not params.temperature or not len(scores_NK):
            return None
        scores_NK = scores_NK.double()
        if truncates(params) and (what := self._truncation(params).wrong(scores_NK)):
            return what, OTHERWISE
        if self._repeats is None:
            return self._other_draws(groups, params, scores_NK, seed)
        return self._improbable(groups, params, scores_NK, step)

    def _other_draws(
        self,
        groups: Sequence[Group],
        params: SamplingParams,
        scores_NK: Tensor,
        seed: Callable[[Group, int], int],
    ) -> tuple[str, str] | None:
        """Return how tokens are not those that the numbers of their seeds draw."""
        slack = slack_of(
            self._dtype,
            on_gpu=self._on_gpu,
            temperature=params.temperature,
            truncated=truncates(params),
        )
        tokens, first = list[Token](), 0
        rows = by_row(groups, scores_NK)
        for place, group in enumerate(groups):
            own = rows[first : first + len(group.members)]
            seeds = [seed(group, n) for n in range(len(own))]
            tokens += tokens_of(group, own, seeds, (first, place), slack)
            first += len(group.members)
        return judged(tokens, slack, self._bets)[1] if tokens else None

    def _improbable(
        self, groups: Sequence[Group], params: SamplingParams, scores_NK: Tensor, step: int
    ) -> tuple[str, str] | None:
        """Return how tokens are no sample of their distributions, or repeat."""
        assert self._repeats is not None
        if wrong := self._counted(params.temperature, params.top_p, params.top_k).wrong(scores_NK):
            return wrong
        try:
            self._repeats.on_groups(GroupsScored(step, groups[0].version, tuple(groups)))
        except RunError as error:
            complaint = error.complaints[0]
            return complaint.what.removeprefix("guard seeds: "), complaint.remedy[0]
        return None

    def _truncation(self, params: SamplingParams) -> Truncation:
        """Return what counts the tokens on both sides of the edges of a truncation."""
        key = params.temperature, params.top_p, params.top_k
        if key not in self._edges:
            self._edges[key] = Truncation(
                params.top_k,
                params.top_p,
                params.temperature,
                parity=self._section,
                compute=self._dtype,
            )
        return self._edges[key]

    def _counted(self, temperature: float, top_p: float, top_k: int) -> Surprise:
        """Return what counts the tokens that are sampled by these."""
        key = temperature, top_p, top_k
        if key not in self._surprise:
            truncated = top_k > 0 or top_p < 1
            self._surprise[key] = Surprise(self._dtype, temperature, truncated=truncated)
        return self._surprise[key]

    def _apart(self, scores_NK: Tensor, params: SamplingParams) -> str:
        """Return how log-probs of trainer and engine differ beyond rounding; empty if they do not.

        Where the engine truncates they may, as rounding decides which tokens it keeps.
        """
        section = self._section
        if isinstance(section, bool) or truncates(params):
            return ""
        found = measure_parity(scores_NK[:, LOGP], scores_NK[:, -1])
        if found is None:
            return ""
        band, cool = BANDS[self._dtype], min(1.0, params.temperature or 1.0)
        mean = (band.mean if section.mean is None else section.mean) / cool
        largest = (band.max if section.max is None else section.max) / cool
        far = int((~((scores_NK[:, LOGP] - scores_NK[:, -1]).abs() <= largest)).sum())
        # of thousands of evaluations one may have a token that rounds as never before
        if found.mean <= mean and not (far >= FEWEST and far > SHARE * found.tokens):
            return self._tilted(scores_NK, params, section)
        return (
            f"trainer and engine disagree on tokens at temperature {params.temperature:g}: mean "
            f"{found.mean:.3g} nats (band {mean:g}), max {found.max:.3g}, {far} above {largest:g}, "
            f"over {found.tokens} tokens"
        )

    def _tilted(self, scores_NK: Tensor, params: SamplingParams, section: ParitySection) -> str:
        """Return the same by slope and k3 of all evaluations at this temperature so far."""
        known = self._sums.get(params.temperature, Sums())
        sums = known.add(Sums.of(scores_NK[:, LOGP], scores_NK[:, -1]))
        self._sums[params.temperature] = sums
        if sums.n < LEAST:
            return ""
        cool = min(1.0, params.temperature or 1.0)
        slope = section.slope or section.mean or self._band.slope
        k3 = section.k3 or section.mean or self._band.k3 / cool**2
        found = fit(sums)
        if not found.beyond(slope, k3):
            return ""
        return (
            f"trainer and engine disagree on tokens at temperature {params.temperature:g}: slope "
            f"{found.slope:.4f} (band 1 +- {slope:g}), mean k3 {found.k3:.3g} (band {k3:g}), over "
            f"{found.tokens} tokens of all evaluations"
        )

    def state_dict(self) -> dict[str, Json]:
        """Return the evidence so far."""
        found: dict[str, Json] = {"wealth": dict(self._bets.wealth)}
        if self._repeats is not None:
            found["repeats"] = self._repeats.state_dict()
            found["surprise"] = [
                [*key, one.state_dict()] for key, one in sorted(self._surprise.items())
            ]
        return found

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore it."""
        self._bets = Bets(state.get("wealth"))
        if self._repeats is not None and "repeats" in state:
            self._repeats.load_state_dict(state["repeats"])
            for *key, counted in state["surprise"]:
                self._counted(*key).load_state_dict(counted)


def truncates(params: SamplingParams) -> bool:
    """Whether tokens are drawn from a part of the distribution."""
    return bool(params.temperature) and (params.top_k > 0 or params.top_p < 1)


def moments_at(params: SamplingParams, dtype: torch.dtype) -> Callable[..., tuple[Tensor, ...]]:
    """Return what computes ``token_moments`` of a distribution that is sampled by these.

    Where it is truncated, the columns of ``edges`` are behind them.
    """
    options: dict[str, Any] = {}
    if truncates(params):
        options = {"top_k": params.top_k, "top_p": params.top_p}
        options["more"] = partial(edges, margin=apart(dtype, params.temperature), **options)

    def compute(*args: Any, **more: Any) -> tuple[Tensor, ...]:
        return token_moments(*args, **more | {"temperature": params.temperature or 1.0} | options)

    return compute


def not_greedy(scores_NK: Tensor, *, exact: bool) -> str:
    """Return how tokens at temperature 0 are not the likeliest; empty if they are, or are few."""
    n, others = len(scores_NK), int((scores_NK[:, AHEAD] > 0).sum())
    if n < LEAST or others <= NOT_LIKELIEST[exact] * n:
        return ""
    return (
        f"{others} of {n} tokens are not the likeliest, which are those of temperature 0 (band: a "
        f"share of {NOT_LIKELIEST[exact]:g})"
    )
