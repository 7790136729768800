"""Invariant ``calibration``: sampled tokens are as surprising as their distribution says.

At each sampled token the expectation of -log p is the entropy, so the sum of their differences is
a martingale over all tokens that were sampled, in whatever order and however each completion ended.
An engine that samples colder, hotter or from a truncated distribution, and reports log-probs of
the distribution that it should have used, agrees with the trainer on every token; only here does
it show.

The tokens must not be chosen by what became of them: groups that the sampler drops are counted as
the others are. They are counted in a forward pass without gradient, over all groups until
``WARM_TOKENS`` tokens are counted, then over one of ``SHARE`` groups, chosen by their names; in
any step over no more groups than have ``WARM_TOKENS`` tokens.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlvr_core.api import Metric
from rlvr_core.builtin.invariants.check import Invariant, StepView
from rlvr_core.builtin.invariants.moments import TokenScores, fresh_groups

if TYPE_CHECKING:
    from rlvr_core.api import Group, GroupsScored, Json

WARM_TOKENS = 4096
"""Tokens up to which every group is counted, and after which a step counts no further group."""

SHARE = 64
"""One of so many groups is counted later."""

ODDS = 5e-5
"""Odds of a false alarm in a run, however long."""

LEAST_MEAN = 5e-3
"""Smallest mean difference, in nats a token, that is no rounding."""

PRIOR = 30.0
"""Variance at which the test is most sensitive; it hardly matters above."""


class Calibration(Invariant):
    """Mean surprise equals mean entropy.

    The test is the mixture over bets on either side (de la Pena et al. 2009, with the variance
    process of Delyon 2009, a third of the squares plus two thirds of the predicted variance), whose
    wealth exceeds 1 / ``ODDS`` with at most those odds, however often one looks.

    Args:
        scores: Scores of groups under the trainer.
    """

    id, phase = "calibration", "before training"
    reports = (
        Metric("calibration/z", "Surprise less entropy over the run, in standard deviations.", ""),
        Metric("calibration/mean", "Mean of surprise less entropy over the run.", "nats"),
        Metric(
            "calibration/evidence", "Evidence against the sampler; the run stops at 1.", "share"
        ),
    )

    def __init__(self, scores: TokenScores) -> None:
        self._scores = scores
        self._tokens, self._sum, self._variance = 0, 0.0, 0.0
        self._found: dict[str, float] = {}

    def on_groups(self, event: GroupsScored) -> None:
        """Count the tokens of a step; raises ``RunError`` if they are no sample."""
        self._found = {}
        groups = chosen(fresh_groups(event), event.step, warm=self._tokens < WARM_TOKENS)
        if not groups:
            return
        logp_N, entropy_N, variance_N, _ = self._scores(groups).double().unbind(1)
        excess_N = -logp_N - entropy_N
        self._tokens += len(excess_N)
        self._sum += float(excess_N.sum())
        self._variance += float((excess_N.square() + 2 * variance_N).sum()) / 3
        if not self._tokens or self._variance <= 0:
            return
        z, mean = self._sum / math.sqrt(self._variance), self._sum / self._tokens
        evidence = _evidence(self._sum, self._variance) / -math.log(ODDS)
        self._found = {
            "calibration/z": z,
            "calibration/mean": mean,
            "calibration/evidence": max(0.0, evidence),
        }
        if evidence < 1 or abs(mean) < LEAST_MEAN:
            return
        raise self.fault(
            event.step,
            f"sampled tokens are {'less' if mean < 0 else 'more'} surprising than their "
            f"distribution says, by {abs(mean):.3g} nats a token ({self._tokens} tokens, z = "
            f"{z:+.1f}; a healthy run exceeds this with odds of {ODDS:g})",
            _COLD if mean < 0 else _HOT,
        )

    def end(self, view: StepView) -> Mapping[str, float]:
        """Return the measurements up to this step."""
        return self._found

    def state_dict(self) -> dict[str, Json]:
        """Return the sums."""
        return {"tokens": self._tokens, "sum": self._sum, "variance": self._variance}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore them."""
        self._tokens, self._sum = state["tokens"], state["sum"]
        self._variance = state["variance"]


_COLD = (
    "the engine samples from a sharper distribution than the one whose log-probs it reports: "
    "another temperature, or top_k, top_p or min_p that its log-probs leave out"
)
_HOT = (
    "the engine samples from a flatter distribution than the one whose log-probs it reports: "
    "another temperature, or a penalty or bias on logits that its log-probs leave out"
)


def _evidence(total: float, variance: float) -> float:
    """Return the log of the wealth of a normal mixture of bets."""
    whole = variance + PRIOR
    return total**2 / (2 * whole) - 0.5 * math.log(whole / PRIOR)


def chosen(groups: tuple[Group, ...], step: int, *, warm: bool) -> tuple[Group, ...]:
    """Return the groups of a step that are counted.

    Whether one is does not depend on its own completions: it is drawn by its name, and left out if
    those before it, in the order of the draw, have tokens enough.
    """
    draw = {id(one): zlib.crc32(f"{step}:{one.problem.id}".encode()) for one in groups}
    taken: set[int] = set()
    tokens = 0
    for group in sorted(groups, key=lambda one: draw[id(one)]):
        if tokens < WARM_TOKENS and (warm or draw[id(group)] % SHARE == 0):
            taken.add(id(group))
            tokens += sum(len(member.completion.token_ids) for member in group.members)
    return tuple(group for group in groups if id(group) in taken)
