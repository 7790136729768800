"""Invariant ``parity``: trainer and engine give a sampled token the same log-prob (T2, T19, T30).

Two measurements. Of the numbers that the loss used, in every step: the slope of the trainer's
log-probs on the engine's, and the mean of k3. Rounding errors are independent of the log-prob and
leave the slope at 1, so the slope finds another temperature or a truncated distribution in
bfloat16 as well; weights or rows that differ raise k3. Steps of few tokens leave the slope
uncertain: it is also that of as many steps as tell 1.5 times the band. Tokens at one
position of their rows that hardly count in a mean are counted by themselves. And of all completions
of the first steps, dropped groups included: mean and maximum of the difference.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.api import Metric, RunError
from rlvr_core.builtin.invariants.check import Invariant, StepView, Trainer, compute_dtype
from rlvr_core.builtin.invariants.differences import Fit, Positions, Sums, fit
from rlvr_core.builtin.invariants.dropout import Dropped, DroppedInputs
from rlvr_core.builtin.invariants.moments import (
    LOGP,
    WARM_TOKENS,
    TokenScores,
    chosen,
    fresh_groups,
)

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr_core.api import Group, GroupsScored, Json, LossComputed, RunStarted
    from rlvr_core.api.services import ParitySection, RunConfig

LEAST_TOKENS = 64
"""Tokens that are compared, at least; fewer wait for the next step."""

DECIDING = 24
"""Tokens that decide a slope, at least; a policy that is nearly sure has few in a step."""

FLOOR = 1e-4
"""Log-probs nearer to 0 may be rounding of logits of some tens, on a CPU; on a GPU ten times it."""


@dataclass(frozen=True, slots=True)
class Band:
    """Largest differences attributed to rounding.

    Attributes:
        mean: Mean of |trainer - engine|, in nats.
        max: Largest of them.
        slope: |slope - 1|.
        k3: Mean of k3.
    """

    mean: float
    max: float
    slope: float
    k3: float


# float32: two forward passes differ by about 1e-5. Half precision: bf16 logits alone move a
# log-prob by a few hundredths on average and some tenths at worst (docs/guards.md has the source).
BANDS = {
    torch.float32: Band(mean=1e-3, max=5e-2, slope=2e-3, k3=1e-7),
    torch.bfloat16: Band(mean=1e-1, max=2.0, slope=1e-2, k3=1e-4),
    torch.float16: Band(mean=2e-2, max=5e-1, slope=5e-3, k3=2e-5),
}
ON_GPU = {
    torch.float32: Band(mean=1e-3, max=5e-2, slope=5e-3, k3=2e-5),
    torch.bfloat16: Band(mean=1e-1, max=2.0, slope=2e-2, k3=5e-3),
    torch.float16: Band(mean=2e-2, max=5e-1, slope=1e-2, k3=5e-4),
}
"""TF32 and the kernels of two libraries on a GPU differ more."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Mean and maximum of |trainer log-prob - engine log-prob|, in nats, over ``tokens`` tokens."""

    mean: float
    max: float
    tokens: int


class Parity(Invariant):
    """Trainer and engine agree on sampled tokens.

    Args:
        config: The run's configuration.
        trainer: The policy's trainer.
        scores: Scores of groups under the trainer.
    """

    id, phase = "parity", "before each update"
    reports = (
        Metric("parity/slope", "Slope of the trainer's on the engine's log-probs.", ""),
        Metric("parity/bias", "Mean of trainer - engine log-prob, by what the loss used.", "nats"),
        Metric("parity/k3", "Mean k3 of those differences.", "nats"),
        Metric(
            "parity/astray",
            "Largest share of tokens at one position of their rows (first, last, other) whose "
            "log-probs differ by more than half.",
            "share",
        ),
    )

    def __init__(self, config: RunConfig, trainer: Trainer, scores: TokenScores) -> None:
        section = config.guards.parity
        assert section is not False, "the guard is switched off"
        self._section, self._trainer, self._scores = section, trainer, scores
        self._dtype = getattr(torch, config.model.dtype)
        self._updates_per_step = config.train.updates_per_step
        # the trainer does not truncate, and its pass with dropout is not the policy that samples
        truncated = config.sampling.top_p < 1.0 or config.sampling.top_k > 0
        lora = config.model.lora
        dropout = lora is not None and lora.dropout > 0
        self._on_loss = not truncated and not dropout
        self._on_scores = not truncated and dropout
        self._scored, self._n_scored = Sums(), 0
        self._dropout = DroppedInputs(lora.dropout) if lora is not None and lora.dropout else None
        self._due = False
        self._sums, self._for_slope, self._pooled = Sums(), Sums(), Sums()
        self._positions = Positions()
        self._found: dict[str, float] = {}

    def run_started(self, event: RunStarted) -> None:
        """Compare the first step after a resumption."""
        self._due = event.resumed
        if self._dropout is not None:
            self._dropout.watch(self._trainer.model)

    def on_groups(self, event: GroupsScored) -> None:
        """Compare all completions of the first step, and of the first after a sync."""
        computes = compute_dtype(self._trainer)
        if computes != self._dtype:
            names = [str(one).removeprefix("torch.") for one in (computes, self._dtype)]
            raise self.fault(
                event.step,
                f"the trainer computes in {names[0]}, and model.dtype is {names[1]} (band: none)",
                "mixed precision is on where it should not be, or off: look at the launcher's "
                "settings and at what makes the trainer's precision",
            )
        # samples of older weights say nothing about the current ones
        groups = fresh_groups(event)
        first = event.version <= self._updates_per_step
        self._found = {}
        if groups and self._on_scores:
            self._score(groups, event.step)
        if not groups or not (first or self._due):
            return
        scores_NK = self._scores(groups)
        found = measure_parity(scores_NK[:, 0], scores_NK[:, -1])
        if found is None:
            return
        resumed, self._due = self._due, False
        dtype = compute_dtype(self._trainer)
        check_parity(found, dtype, self._section, version=event.version, resumed=resumed)
        # a check made only because of a resumption is not recorded: the records stay the same as
        # those of an uninterrupted run
        if first:
            self._found = {"parity/mean": found.mean, "parity/max": found.max}

    def _score(self, groups: tuple[Group, ...], step: int) -> None:
        """Compare log-probs of a pass without dropout, which the loss does not have.

        They are those that other invariants look at: nothing is computed twice.
        """
        some = chosen(groups, step, warm=self._n_scored < WARM_TOKENS)
        if some:
            scores_NK = self._scores(some)
            self._scored = Sums.of(scores_NK[:, LOGP], scores_NK[:, -1])
            self._n_scored += len(scores_NK)

    def computed(self, view: StepView, event: LossComputed) -> None:
        """Note what the adapter dropped in a micro-batch."""
        if self._dropout is not None:
            self._dropout.computed()

    given = computed

    def _dropped(self) -> Dropped:
        return Dropped(0, 0) if self._dropout is None else self._dropout.take()

    def share(self, view: StepView) -> tuple[Sums, Positions, Dropped, Sums]:
        """Sums over the loss tokens of fresh completions, by the numbers the loss used; dropout.

        The last are those of the update's first micro-batch.
        """
        total, positions, first = Sums(), Positions(), Sums()
        floor = FLOOR * (10 if _on_gpu(view) else 1)
        if view.first_pass and self._on_loss:
            for seen in view.seen:
                batch = seen.batch
                fresh = [view.fresh(place) for place in seen.micro_batch.group_B.tolist()]
                chosen_BT = batch.mask_BT & batch.mask_BT.new_tensor(fresh)[:, None]
                pair = (batch.old_logp_BT[chosen_BT], batch.behaviour_logp_BT[chosen_BT])
                own = Sums.of(*pair)
                total, first = total.add(own), first if total.n else own
                both = (batch.old_logp_BT, batch.behaviour_logp_BT)
                positions = positions.add(Positions.of(*both, batch.mask_BT, chosen_BT, floor))
        if view.trainer.ranks.main:  # each process has the scores of all
            total = total.add(self._scored)
        self._scored = Sums()
        return total, positions, self._dropped(), first

    def judge(self, view: StepView, shares: Sequence[Any]) -> None:
        """See ``Invariant.judge``."""
        if self._dropout is not None and (
            what := self._dropout.wrong(view, [share[2] for share in shares])
        ):
            raise self.fault(
                view.step,
                what,
                "look at what makes the adapter of its options, and at what turns dropout on for "
                "the training pass",
            )
        first = Sums()
        for sums, positions, _, of_first in shares:
            first = first.add(of_first)
            self._sums, self._positions = self._sums.add(sums), self._positions.add(positions)
        if self._sums.n >= LEAST_TOKENS:
            self._for_slope = self._for_slope.add(self._sums)
            self._pooled = self._pooled.add(self._sums)
            found, tilted, self._sums = fit(self._sums), fit(self._for_slope), Sums()
            self._found |= {"parity/bias": found.bias, "parity/k3": found.k3}
            if tilted.deciding >= DECIDING:
                self._for_slope = Sums()
                self._found["parity/slope"] = tilted.slope
            self._check(view, found, tilted, fit(self._pooled), first)
        # whoever accepts larger differences accepts them most of all where tokens are nearly sure
        bands = (self._section.mean, self._section.slope, self._section.k3)
        # below half the temperature rounding of half precision is more than half of what is sure
        exact = compute_dtype(view.trainer) == torch.float32 or view.trainer.temperature >= 0.5
        strict = exact and all(one is None for one in bands)
        astray, wrong, self._positions = self._positions.judged(strict=strict)
        if not math.isnan(astray):
            self._found["parity/astray"] = astray
        if wrong:
            raise self.fault(view.step, *wrong)

    def _check(self, view: StepView, found: Fit, tilt: Fit, pooled: Fit, first: Sums) -> None:
        band = (ON_GPU if _on_gpu(view) else BANDS)[compute_dtype(view.trainer)]
        section = self._section
        # whoever accepts a mean difference accepts the k3 and the slope that come of it
        slope = section.slope or section.mean or band.slope
        # what rounds is the logits, which are divided by the temperature, and k3 is a square
        k3 = section.k3 or section.mean or band.k3 / min(1.0, view.trainer.temperature) ** 2
        if _is_tilted(pooled, slope):
            tilt = pooled
        tilted = _is_tilted(tilt, slope)
        if pooled.deciding >= DECIDING and 8 * pooled.slope_error <= slope:
            self._pooled = Sums()
        apart = found.k3 - 4 * found.k3_error > k3 or found.k3 > 100 * k3
        if not (tilted or apart):
            return
        found = tilt if tilted else found
        cause = self._cause(found, view.version, tilted=tilted)
        if first.n > 2 and fit(first).k3 < min(k3, found.k3 / 100):
            cause = (
                "the first micro-batch of the update agrees, and later ones do not: the optimizer "
                "steps between them, before the gradients of all are accumulated"
            )
        those = "of the trainer without dropout" if self._on_scores else "that the loss used"
        raise self.fault(
            view.step,
            f"the log-probs {those} differ from the engine's at version {view.version}: "
            f"slope {found.slope:.4f} (band 1 +- {slope:g}), mean k3 {found.k3:.3g} (band {k3:g}), "
            f"bias {found.bias:+.3g} nats, over {found.tokens} tokens",
            f"likely: {cause}",
            switch="guards.parity.slope and k3 widen the band, guards.parity: false turns it off",
        )

    def _cause(self, found: Fit, version: int, *, tilted: bool) -> str:
        if tilted and found.k3 < 0.05:
            return (
                f"trainer and engine use different temperatures (a ratio of {found.slope:.3f}), or "
                "the engine truncates its distribution (top_p, top_k, min_p)"
            )
        if version == 0:
            cause = (
                "the training pass does not compute the tokens that were sampled: rows, positions "
                "or the recorded log-probs are mixed up, or the engine has another model"
            )
            # log-probs that have nothing to do with one another are of other tokens
            masked = ", or the loss mask covers tokens that were not sampled, such as the prompt's"
            return cause + masked if abs(found.slope) < 0.2 else cause
        return (
            "the engine did not take the trainer's new weights, or kept an old cache; if it "
            "began with the first step, the training pass reads other rows or positions"
        )

    def end(self, view: StepView) -> Mapping[str, float]:
        """Return the step's measurements."""
        return self._found

    def state_dict(self) -> dict[str, Json]:
        """Return the sums that wait for more tokens."""
        return {
            "sums": list(astuple(self._sums)),
            "slope": list(astuple(self._for_slope)),
            "pooled": list(astuple(self._pooled)),
            "positions": list(self._positions.counts),
            "scored": self._n_scored,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore them."""
        if "slope" in state:  # not in checkpoints of 0.2.0, whose sums were fewer
            self._sums, self._for_slope = Sums(*state["sums"]), Sums(*state["slope"])
        self._pooled = Sums(*state["pooled"]) if "pooled" in state else Sums()
        self._n_scored = state.get("scored", 0)
        counts = state.get("positions", ())
        if len(counts) == len(self._positions.counts):  # those of 0.2.0 lack the engine's side
            self._positions = Positions(counts)


def _is_tilted(found: Fit, band: float) -> bool:
    # the error keeps a few tokens from being taken for a trend
    far = abs(found.slope - 1) > band + 4 * found.slope_error
    return found.deciding >= DECIDING and far


def _on_gpu(view: StepView) -> bool:
    kind: str = view.trainer.model.device.type
    return kind != "cpu"


def measure_parity(trainer_N: Tensor, engine_N: Tensor) -> Difference | None:
    """Compare two log-prob vectors of shape (N,); None if there are no tokens."""
    if trainer_N.numel() == 0:
        return None
    difference_N = (trainer_N.double() - engine_N.double()).abs()
    # a NaN must not pass a comparison: it counts as an infinite difference
    difference_N = torch.nan_to_num(difference_N, nan=math.inf, posinf=math.inf)
    return Difference(float(difference_N.mean()), float(difference_N.max()), difference_N.numel())


def check_parity(
    parity: Difference,
    dtype: torch.dtype,
    section: ParitySection,
    *,
    version: int,
    resumed: bool = False,
) -> None:
    """Stop the run if the differences are larger than rounding explains.

    Args:
        parity: The measured differences.
        dtype: The run's compute precision.
        section: Limits from the config.
        version: Policy version the tokens were sampled under; 0 before any sync.
        resumed: Whether they are the first ones after a resumption.

    Raises:
        RunError: If mean or maximum is above its limit.
    """
    band = BANDS[dtype]
    max_mean = section.mean if section.mean is not None else band.mean
    max_max = section.max if section.max is not None else band.max
    if parity.mean <= max_mean and parity.max <= max_max:
        return
    cause = (
        "the engine does not sample from the trainer's model: temperature, top_p or top_k, dtype "
        "or tokenizer"
        if version == 0
        else "the engine did not take the trainer's new weights, or kept an old cache"
    )
    if resumed:
        cause += "; it is the first step of a resumed run: what is not as it was before it?"
    raise RunError(
        f"guard parity: {'going on from the checkpoint, ' if resumed else ''}trainer and engine "
        f"disagree on sampled tokens at version {version}: mean "
        f"{parity.mean:.3g} nats (band {max_mean:g}), max {parity.max:.3g} (band {max_max:g}), "
        f"over {parity.tokens} tokens",
        remedy=(
            f"likely: {cause}",
            "see rlvr docs guards#parity; guards.parity.mean and max widen the band",
        ),
    )
