"""Invariant ``calibration``: sampled tokens are those that their distribution says.

At each sampled token the expectation of -log p is the entropy, so the sum of their differences is
a martingale over all tokens that were sampled, in whatever order and however each completion ended.
An engine that samples colder, hotter or from a truncated distribution, and reports log-probs of
the distribution that it should have used, agrees with the trainer on every token; only here does
it show. Likewise for classes of tokens: how often one of a class came, less the sum of its
probabilities, is a martingale. The classes are the end of sequence, tokens that the completion has
already, those of its last few, and the single tokens that are likeliest in the first step.

The tokens must not be chosen by what became of them: groups that the sampler drops are counted as
the others are. They are counted in a forward pass without gradient, over all groups until
``WARM_TOKENS`` tokens are counted, then over one of ``SHARE`` groups, chosen by their names; in
any step over no more groups than have ``WARM_TOKENS`` tokens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.api import Metric
from rlvr_core.builtin.invariants.check import Invariant, StepView
from rlvr_core.builtin.invariants.moments import (
    AHEAD,
    COLUMN,
    FREQUENT,
    KINDS,
    LOGP,
    RECENT,
    WARM_TOKENS,
    TokenScores,
    chosen,
    fresh_groups,
)
from rlvr_core.builtin.invariants.uniform import Depths

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr_core.api import Group, GroupsScored, Json
    from rlvr_core.builtin.invariants.truncation import Truncation

ODDS = 5e-5
"""Odds of a false alarm in a run, however long, by the mean surprise."""

CLASS_ODDS = DEPTH_ODDS = 2.5e-5
"""Odds by all classes of tokens together, and by all depths at all positions in 1,000 steps."""

LEAST_MEAN = 5e-3
"""Smallest mean difference, in nats a token, that is no rounding."""

LEAST_SHIFT = 0.1
"""Smallest shift of a class's logit, in nats, that is no rounding."""

PRIOR = 30.0
"""Variance at which the test is most sensitive; it hardly matters above."""

BETS = (0.125, 0.25, 0.5, 1.0, 2.0)
"""Shifts of a class's logit, either way, that are bet on."""


@dataclass(slots=True)
class Count:
    """How often tokens of a class came, and how often they should have.

    Attributes:
        came: Times.
        expected: Sum of its probabilities p.
        variance: Sum of p (1 - p).
    """

    came: float = 0.0
    expected: float = 0.0
    variance: float = 0.0

    @property
    def shift(self) -> float:
        """By how much the class's logit is shifted, about, in nats."""
        return (self.came - self.expected) / self.variance if self.variance > 0 else 0.0

    def wealth(self) -> float:
        """Return the log of the wealth of a mixture of bets on both sides.

        A bet of size b has won exp(b x - c) after an excess of x, where c is at least the log of
        what was to be expected of exp(b x): for more than expected, by Bennett's inequality, and
        for less the smaller of that and the one of a Poisson count, as long as they are sums.
        """
        over = self.came - self.expected
        logs = []
        for bet in BETS:
            bennett = (math.expm1(bet) - bet) * self.variance
            poisson = (math.expm1(-bet) + bet) * self.expected
            logs += [bet * over - bennett, -bet * over - min(bennett, poisson)]
        most = max(logs)
        return most + math.log(math.fsum(math.exp(one - most) for one in logs) / len(logs))


class Calibration(Invariant):
    """Mean surprise equals mean entropy, and counts of classes their expectations.

    The test of the mean is the mixture over bets on either side (de la Pena et al. 2009, with the
    variance process of Delyon 2009, a third of the squares plus two thirds of the predicted
    variance), whose wealth exceeds 1 / ``ODDS`` with at most those odds, however often one looks.
    That of a class is ``Count.wealth``; each kind has a quarter of the odds, all single tokens
    together one.

    Args:
        scores: Scores of groups under the trainer.
        truncation: Looks at the edges of top-k and top-p; None without them.
    """

    id, phase = "calibration", "before training"
    reports = (
        Metric("calibration/z", "Surprise less entropy over the run, in standard deviations.", ""),
        Metric("calibration/mean", "Mean of surprise less entropy over the run.", "nats"),
        Metric(
            "calibration/evidence", "Evidence against the sampler; the run stops at 1.", "share"
        ),
    )

    def __init__(self, scores: TokenScores, truncation: Truncation | None = None) -> None:
        self._scores, self._truncation = scores, truncation
        self._tokens, self._sum, self._variance = 0, 0.0, 0.0
        self._counts: dict[str, Count] = {}
        self._depths = Depths()
        self._ends_differ = False
        self._found: dict[str, float] = {}

    def on_groups(self, event: GroupsScored) -> None:
        """Count the tokens of a step; raises ``RunError`` if they are no sample."""
        self._found = {}
        groups = chosen(fresh_groups(event), event.step, warm=self._tokens < WARM_TOKENS)
        if not groups:
            return
        scores_NK = self._scores(groups).double()
        if self._truncation is not None and (what := self._truncation.wrong(scores_NK)):
            raise self.fault(event.step, what, _EDGE)
        logp_N, entropy_N, variance_N = scores_NK[:, :3].unbind(1)
        excess_N = -logp_N - entropy_N
        self._tokens += len(excess_N)
        self._sum += float(excess_N.sum())
        self._variance += float((excess_N.square() + 2 * variance_N).sum()) / 3
        if not self._tokens or self._variance <= 0:
            return
        classes, columns_NK = self._scores.classes, scores_NK[:, AHEAD + 1 : -1]
        if classes is not None and columns_NK.shape[1]:
            # the pass that the single tokens are chosen by does not count them
            single = columns_NK.shape[1] > 1 + 2 * len(KINDS)
            self._count(columns_NK, classes.ids if single else ())
            self._ends_differ |= _ends_differ(groups, classes.ends)
        if classes is not None and (slack := self._scores.slack) is not None:
            self._depths.add(*depths_of(scores_NK, event.step), slack)
        z, mean = self._sum / math.sqrt(self._variance), self._sum / self._tokens
        evidence = evidence_of(self._sum, self._variance) / -math.log(ODDS)
        worst, evidence_of_it = self._worst()
        of_depths = self._depths.evidence() / -math.log(DEPTH_ODDS)
        self._found = {
            "calibration/z": z,
            "calibration/mean": mean,
            "calibration/evidence": max(0.0, evidence, evidence_of_it, of_depths),
        }
        if evidence >= 1 and abs(mean) >= LEAST_MEAN:
            raise self.fault(
                event.step,
                f"sampled tokens are {'less' if mean < 0 else 'more'} surprising than their "
                f"distribution says, by {abs(mean):.3g} nats a token ({self._tokens} tokens, z = "
                f"{z:+.1f}; a healthy run exceeds this with odds of {ODDS:g})",
                COLD if mean < 0 else HOT,
            )
        if evidence_of_it >= 1 and abs(self._counts[worst].shift) >= LEAST_SHIFT:
            count = self._counts[worst]
            what, cause = _CAUSES.get(worst, (f"the token {worst}", _SINGLE))
            raise self.fault(
                event.step,
                f"{what} came {count.came:.0f} times in {self._tokens} tokens, and the "
                f"probabilities make {count.expected:.1f} +- {math.sqrt(count.variance):.1f} "
                f"(a healthy run is as far off with odds of {CLASS_ODDS:g})",
                f"the engine's log-probs leave something out: {cause}",
            )
        if of_depths >= 1:
            where, few, counts = self._depths.worst()
            raise self.fault(
                event.step,
                f"of {where} of completions {'fewer' if few else 'more'} are unlikely ones than "
                f"their distributions say: {counts} (a healthy run is as far off with odds of "
                f"{DEPTH_ODDS:g})",
                COLD if few else HOT,
            )

    def _count(self, columns_NK: Tensor, ids: Sequence[int]) -> None:
        """Add what ``Classes.columns`` found; ``ids`` are the single tokens that it looked at."""
        target_N, kinds_NK = columns_NK[:, 0], columns_NK[:, 1 : 1 + 2 * len(KINDS)]
        p_NK = torch.cat([kinds_NK[:, 0::2], columns_NK[:, 1 + 2 * len(KINDS) :]], dim=1)
        is_NK = target_N[:, None] == target_N.new_tensor(list(ids))
        came_NK = torch.cat([kinds_NK[:, 1::2], is_NK], dim=1)
        sums_3K = torch.stack(
            [came_NK.sum(0), p_NK.sum(0), (p_NK * (1 - p_NK).clamp(min=0)).sum(0)]
        )
        names = [*KINDS, *map(str, ids)]
        for name, came, expected, variance in zip(names, *sums_3K.tolist(), strict=True):
            count = self._counts.setdefault(name, Count())
            count.came += came
            count.expected += expected
            count.variance += variance

    def _worst(self) -> tuple[str, float]:
        """Return the class that there is most evidence against, and how much; 1 stops the run."""
        worst = "", 0.0
        for name, count in self._counts.items():
            if name == KINDS[0] and self._ends_differ:
                continue
            odds = CLASS_ODDS / (len(KINDS) + 1) / (1 if name in KINDS else FREQUENT)
            worst = max(worst, (name, count.wealth() / -math.log(odds)), key=lambda one: one[1])
        return worst

    def end(self, view: StepView) -> Mapping[str, float]:
        """Return the measurements up to this step."""
        return self._found

    def state_dict(self) -> dict[str, Json]:
        """Return the sums."""
        classes = self._scores.classes
        return {
            "tokens": self._tokens,
            "sum": self._sum,
            "variance": self._variance,
            "counts": {name: list(astuple(one)) for name, one in self._counts.items()},
            "ids": [] if classes is None else list(classes.ids),
            "ends_differ": self._ends_differ,
            "depths": self._depths.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore them."""
        self._tokens, self._sum = state["tokens"], state["sum"]
        self._variance = state["variance"]
        # a checkpoint of before classes were counted has none
        self._counts = {name: Count(*sums) for name, sums in state.get("counts", {}).items()}
        self._ends_differ = state.get("ends_differ", False)
        if "depths" in state:
            self._depths.load_state_dict(state["depths"])
        if self._scores.classes is not None:
            self._scores.classes.ids = tuple(state.get("ids", ()))


COLD = (
    "the engine samples from a sharper distribution than the one whose log-probs it reports: "
    "another temperature, top_k, top_p or min_p, or greedy tokens, that its log-probs leave out"
)
HOT = (
    "the engine samples from a flatter distribution than the one whose log-probs it reports: "
    "another temperature, or a penalty or bias on logits that its log-probs leave out"
)
_EDGE = (
    "the engine keeps more or fewer tokens than sampling.top_k and top_p say, or none of the two "
    "reaches it"
)
_REPEATS = "a repetition, presence or frequency penalty, or n-grams that may not come again"
_CAUSES = {
    "end": (
        "the end of sequence (EOS)",
        "a penalty on length, min_tokens, ignore_eos, or a bias on the end-of-sequence token",
    ),
    "seen": ("a token that its completion had before", _REPEATS),
    "recent": (f"a token that was among the last {RECENT}", _REPEATS),
}
_SINGLE = "a bias on single tokens, or a list of suppressed or allowed ones (bad words)"


def evidence_of(total: float, variance: float) -> float:
    """Return the log of the wealth of a normal mixture of bets."""
    whole = variance + PRIOR
    return total**2 / (2 * whole) - 0.5 * math.log(whole / PRIOR)


def _ends_differ(groups: Sequence[Group], ends: Sequence[int]) -> bool:
    """Whether a completion ended otherwise than by a known token, or that token is not recorded."""
    last = [
        member.completion.token_ids[-1:]
        for group in groups
        for member in group.members
        if member.completion.finish_reason == "stop"
    ]
    return any(not set(one) & set(ends) for one in last)


def depths_of(scores_NK: Tensor, step: int) -> tuple[Tensor, Tensor]:
    """Return position and depth of each token, (N,) each; ``Depths.add`` says of what.

    The random share of the token's own mass comes from a generator that nothing else uses.
    """
    generator = torch.Generator().manual_seed(0xD1CE + step)
    share_N = torch.rand(len(scores_NK), generator=generator, dtype=torch.float64)
    return scores_NK[:, COLUMN], scores_NK[:, AHEAD] + share_N * scores_NK[:, LOGP].exp()
