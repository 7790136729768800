"""Invariant ``parity``: trainer and engine give a sampled token the same log-prob (T2, T19, T30).

Two measurements. Of the numbers that the loss used, in every step: the slope of the trainer's
log-probs on the engine's, the mean of their difference, and the mean of k3. Rounding errors are
independent of the log-prob and leave the slope at 1 and the mean at 0. So the slope finds another
temperature or a truncated distribution in bfloat16 as well, and the mean another sum of
probabilities; weights or rows that differ raise k3. Steps of few tokens leave the slope uncertain:
it is also that of as many steps as tell 1.5 times the band. Tokens at one position of their rows
that hardly count in a mean are counted by themselves, and those from some token of their
completions on are compared by themselves (``ByDepth``). And of all completions of the first steps,
dropped groups included: mean and maximum of the difference.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.api import Metric
from rlvr_core.builtin.invariants.by_depth import ByDepth
from rlvr_core.builtin.invariants.check import Invariant, StepView, Trainer, compute_dtype
from rlvr_core.builtin.invariants.differences import DECIDING, Fit, Positions, Sums, fit
from rlvr_core.builtin.invariants.dropout import Dropped, DroppedInputs
from rlvr_core.builtin.invariants.moments import (
    WARM_TOKENS,
    TokenScores,
    chosen,
    fresh_groups,
    in_rows,
)
from rlvr_core.builtin.invariants.rounding import (
    BANDS,
    band_of,
    check_parity,
    measure_parity,
    on_gpu,
)

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr_core.api import Group, GroupsScored, Json, LossComputed, RunStarted
    from rlvr_core.api.services import RunConfig

LEAST_TOKENS = 64
"""Tokens that are compared, at least; fewer wait for the next step."""

EACH = 16
"""First steps in each of which log-probs are compared by depth; later it is one step of so many."""

FLOOR = 1e-4
"""Log-probs nearer to 0 may be rounding of logits of some tens, on a CPU; on a GPU ten times it."""


class Parity(Invariant):
    """Trainer and engine agree on sampled tokens.

    Args:
        config: The run's configuration.
        trainer: The policy's trainer.
        scores: Scores of groups under the trainer.
        earlier: Whether they are of the policy of a step ago, which the loss does not compute with.
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

    def __init__(
        self, config: RunConfig, trainer: Trainer, scores: TokenScores, *, earlier: bool = False
    ) -> None:
        section = config.guards.parity
        assert section is not False, "the guard is switched off"
        self._section, self._trainer, self._scores = section, trainer, scores
        self._dtype = getattr(torch, config.model.dtype)
        self._updates_per_step = config.train.updates_per_step
        # the trainer does not truncate, and its pass with dropout is not the policy that samples
        truncated = config.sampling.top_p < 1.0 or config.sampling.top_k > 0
        lora = config.model.lora
        dropout = lora is not None and lora.dropout > 0
        self._on_loss = not (truncated or dropout or earlier)
        self._on_scores = not truncated and (dropout or earlier)
        self._scored: tuple[Tensor, Tensor, Tensor] | None = None
        self._n_scored = self._version = 0
        self._earlier = earlier
        self._dropout = None
        if lora is not None and dropout and not earlier:
            self._dropout = DroppedInputs(lora.dropout)
        self._due = False
        self._sums, self._for_slope, self._pooled = Sums(), Sums(), Sums()
        self._positions, self._depths = Positions(), ByDepth()
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
        first = event.version <= self._updates_per_step and not self._earlier
        self._found, self._version = {}, event.version
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
        """Compare log-probs of a pass that the loss does not make: without dropout, or of before.

        They are those that other invariants look at: nothing is computed twice.
        """
        some = chosen(groups, step, warm=self._n_scored < WARM_TOKENS)
        if some:
            scores_NK = self._scores(some)
            self._scored = in_rows(scores_NK)
            self._n_scored += len(scores_NK)

    def computed(self, view: StepView, event: LossComputed) -> None:
        """Note what the adapter dropped in a micro-batch."""
        if self._dropout is not None:
            self._dropout.computed()

    given = computed

    def _dropped(self) -> Dropped:
        return Dropped(0, 0) if self._dropout is None else self._dropout.take()

    def share(self, view: StepView) -> tuple[Sums, Positions, Dropped, Sums, ByDepth]:
        """Sums over the loss tokens of fresh completions, by the numbers the loss used; dropout.

        The last but one are those of the update's first micro-batch, then come those by depth.
        """
        total, positions, first, depths = Sums(), Positions(), Sums(), ByDepth()
        largest = self._largest(view)
        floor = FLOOR * (10 if on_gpu(view.trainer.model) else 1)
        for trainer_BT, engine_BT, mask_BT, chosen_BT in self._compared(view):
            both = (trainer_BT, engine_BT)
            own = Sums.of(trainer_BT[chosen_BT], engine_BT[chosen_BT])
            total, first = total.add(own), first if total.n else own
            positions = positions.add(Positions.of(*both, mask_BT, chosen_BT, floor))
            if self._earlier or view.step < EACH or view.step % EACH == 0:
                depths = depths.add(ByDepth.of(*both, chosen_BT, largest))
        self._scored = None
        return total, positions, self._dropped(), first, depths

    def _compared(self, view: StepView) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """Yield log-probs of trainer and engine, the tokens of their rows, and those to compare."""
        for seen in view.seen if view.first_pass and self._on_loss else ():
            batch = seen.batch
            fresh = [view.fresh(place) for place in seen.micro_batch.group_B.tolist()]
            chosen_BT = batch.mask_BT & batch.mask_BT.new_tensor(fresh)[:, None]
            yield batch.old_logp_BT, batch.behaviour_logp_BT, batch.mask_BT, chosen_BT
        if self._scored is not None and view.trainer.ranks.main:  # each process has those of all
            logp_RT, engine_RT, mask_RT = self._scored
            yield logp_RT, engine_RT, mask_RT, mask_RT

    def _largest(self, view: StepView) -> float:
        """Return the largest difference of a token that may be rounding, in nats."""
        if on_gpu(view.trainer.model):
            return math.inf
        band = BANDS[compute_dtype(view.trainer)].max
        largest = band if self._section.max is None else self._section.max
        return largest / min(1.0, view.trainer.temperature)

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
        for sums, positions, _, of_first, depths in shares:
            first, self._depths = first.add(of_first), self._depths.add(depths)
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
        self._check_depths(view)

    def _check_depths(self, view: StepView) -> None:
        """Raise if log-probs differ from some token of completions on, or at a few of them."""
        slope, k3 = self._bands(view)
        worst, astray, far = self._depths.worst(slope, k3), self._depths.astray, self._depths.far
        n = sum(part.n for part in self._depths.parts)
        self._depths = self._depths.without_known(slope)
        if worst is not None:
            where, found = worst
            what = (
                f"slope {found.slope:.4f} (band 1 +- {slope:g}), mean k3 {found.k3:.3g}, over "
                f"{found.tokens} tokens"
            )
        elif astray:
            where = "a few tokens of completions"
            what = f"{far:.0f} of {n:.0f} by more than {self._largest(view):g} nats, as none may"
        else:
            return
        raise self.fault(
            view.step,
            f"the log-probs that the loss used differ from the engine's at {where}: {what}",
            "likely: positions, the cache or its blocks, a window, a scaling of long contexts, or "
            "another kernel, temperature or filter from some token on",
            switch="guards.parity.slope, k3 and max widen the bands, guards.parity: false turns "
            "it off",
        )

    def _bands(self, view: StepView) -> tuple[float, float]:
        """Return the bands of slope and k3."""
        band, section = band_of(view.trainer.model, compute_dtype(view.trainer)), self._section
        # whoever accepts a mean difference accepts the k3 and the slope that come of it
        slope = section.slope or section.mean or band.slope
        # what rounds is the logits, which are divided by the temperature, and k3 is a square
        k3 = section.k3 or section.mean or band.k3 / min(1.0, view.trainer.temperature) ** 2
        return slope, k3

    def _check(self, view: StepView, found: Fit, tilt: Fit, pooled: Fit, first: Sums) -> None:
        slope, k3 = self._bands(view)
        if _is_tilted(pooled, slope):
            tilt = pooled
        tilted = _is_tilted(tilt, slope)
        if pooled.deciding >= DECIDING and 8 * pooled.slope_error <= slope:
            self._pooled = Sums()
        apart = found.k3 - 4 * found.k3_error > k3 or found.k3 > 100 * k3
        if not (tilted or apart):
            self._check_bias(view, pooled)
            return
        found = tilt if tilted else found
        cause = self._cause(found, self._version, tilted=tilted)
        if first.n > 2 and fit(first).k3 < min(k3, found.k3 / 100):
            cause = (
                "the first micro-batch of the update agrees, and later ones do not: the optimizer "
                "steps between them, before the gradients of all are accumulated"
            )
        those = "that the loss used"
        if self._on_scores:
            those = "of the trainer without dropout"
        if self._earlier:
            those = "of the policy that sampled"
        raise self.fault(
            view.step,
            f"the log-probs {those} differ from the engine's at version {self._version}: "
            f"slope {found.slope:.4f} (band 1 +- {slope:g}), mean k3 {found.k3:.3g} (band {k3:g}), "
            f"bias {found.bias:+.3g} nats, over {found.tokens} tokens",
            f"likely: {cause}",
            switch="guards.parity.slope and k3 widen the band, guards.parity: false turns it off",
        )

    def _check_bias(self, view: StepView, found: Fit) -> None:
        """Raise if log-probs are off by about the same everywhere: slope and k3 hardly show it."""
        band, section = band_of(view.trainer.model, compute_dtype(view.trainer)), self._section
        bias = section.mean or max(
            section.k3 or 0.0, band.bias / min(1.0, view.trainer.temperature)
        )
        # a token is likelier to be sampled where rounding has raised its log-prob, by about k3
        if abs(found.bias) <= bias + 2 * found.k3 + 6 * found.bias_error:
            return
        raise self.fault(
            view.step,
            f"the log-probs that the loss used are {'above' if found.bias > 0 else 'below'} the "
            f"engine's by {abs(found.bias):.3g} nats on average, whatever the token (band "
            f"{bias:g}, standard error {found.bias_error:.2g}), over {found.tokens} tokens",
            "likely: the two sides divide by another sum of probabilities. Tokens are left out of "
            "the softmax, or come in, on one side alone: padding of the vocabulary, suppressed "
            "tokens, or a truncation (top_p, top_k, min_p)",
            switch="guards.parity.mean widens the band, guards.parity: false turns it off",
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
            "depths": [*self._depths.numbers()],
            "scored": self._n_scored,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore them."""
        if "slope" in state:  # not in checkpoints of 0.2.0, whose sums were fewer
            self._sums, self._for_slope = Sums(*state["sums"]), Sums(*state["slope"])
        self._pooled = Sums(*state["pooled"]) if "pooled" in state else Sums()
        self._n_scored = state.get("scored", 0)
        self._depths = ByDepth.from_numbers(state.get("depths", ()))
        counts = state.get("positions", ())
        if len(counts) == len(self._positions.counts):  # those of 0.2.0 lack the engine's side
            self._positions = Positions(counts)


def _is_tilted(found: Fit, band: float) -> bool:
    # the error keeps a few tokens from being taken for a trend
    far = abs(found.slope - 1) > band + 4 * found.slope_error
    return found.deciding >= DECIDING and far
