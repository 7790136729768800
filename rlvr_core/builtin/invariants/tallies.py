"""What a step's line must say of its updates, computed again from what the losses were given."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.api.services import RatioConfig
from rlvr_core.builtin.invariants.loss_oracles import known

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr_core.api import LossBatch
    from rlvr_core.builtin.invariants.check import StepView

ROUNDING = 1e-4
"""Share of a mean that is rounding in float32."""

LEAST = 2e-6
"""Difference that always is."""

EDGE = 1e-4
"""Distance from a clip's bound within which rounding decides on which side a ratio is."""

ENTROPY = 0.05
"""Nats, and share, by which half precision may differ between the pass that chose tokens by their
entropy and the one that is trained on."""

SQUARE = "mismatch/weight_square"
"""What losses count and the line gives as ``mismatch/ess``."""

ALWAYS = {
    *("kl/mean", "kl/max", "ratio/mean", "ratio/max", "entropy/mean"),
    *("clip_fraction/low", "clip_fraction/high", "off_policy/dropped", "off_policy/drift_max"),
    *("mismatch/abs_mean", "mismatch/abs_max", "mismatch/k3"),
    *("mismatch/weight", "mismatch/truncated", SQUARE),
}
"""What a built-in loss reports wherever its options have it: that it is missing is a fault."""

OF_LOG_RATIOS = {"GMPO"}
"""Losses whose clips bound the logarithm of a ratio."""

ITERATION = ("ratio/", "clip_fraction/")
"""Beginnings of what the line gives by iteration, too."""


@dataclass(slots=True)
class Tallied:
    """Sums of an update, or of several.

    Attributes:
        losses: By term, sum over micro-batches.
        sums: By metric, the sum over loss tokens, their number, and how much of it is unsure.
        most: By metric, the largest value.
        threshold: Least entropy of the tokens that were chosen by it.
        left: Greatest entropy of the tokens of an update that were not.
    """

    losses: dict[str, float] = field(default_factory=dict)
    sums: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    most: dict[str, float] = field(default_factory=dict)
    threshold: float = math.inf
    left: float = -math.inf

    def add(self, other: Tallied) -> None:
        """Add the sums of another process, or of another update."""
        for name, loss in other.losses.items():
            self.losses[name] = self.losses.get(name, 0.0) + loss
        for name, more in other.sums.items():
            sums = self.sums.get(name, (0.0, 0.0, 0.0))
            self.sums[name] = (sums[0] + more[0], sums[1] + more[1], sums[2] + more[2])
        for name, value in other.most.items():
            self.most[name] = max(value, self.most.get(name, -math.inf))
        self.threshold = min(self.threshold, other.threshold)
        self.left = max(self.left, other.left)

    def figures(self) -> tuple[dict[str, float], dict[str, float]]:
        """Return each mean and maximum by name, and what of it may be rounding."""
        due: dict[str, float] = {}
        bands: dict[str, float] = {}
        for name, (total, count, unsure) in self.sums.items():
            if count:
                due[name] = total / count
                bands[name] = ROUNDING * abs(due[name]) + LEAST + unsure / count
        for name, value in self.most.items():
            if value > -math.inf:
                due[name], bands[name] = value, ROUNDING * abs(value) + 10 * LEAST
        if self.threshold < math.inf:
            # a quantile: it lies anywhere between two tokens, which are far apart if they are few
            gap = max(0.0, self.threshold - self.left) if self.left > -math.inf else 0.0
            due["entropy/threshold"] = self.threshold - gap / 2
            bands["entropy/threshold"] = gap / 2 + ENTROPY * (1 + self.threshold)
        square = due.pop(SQUARE, 0.0)
        if square > 0:
            # effective sample size, as a share of the tokens: (sum w)^2 / (n sum w^2)
            due["mismatch/ess"] = due["mismatch/weight"] ** 2 / square
            bands["mismatch/ess"] = 4 * ROUNDING * due["mismatch/ess"] + bands.pop(SQUARE) / square
        return due, bands

    def figures_of_iteration(self, number: int) -> tuple[dict[str, float], dict[str, float]]:
        """Return what the line gives of one iteration, counted from 1, and its rounding."""
        due, bands = self.figures()
        longer = {name: f"iteration/{number}/{name}" for name in due if name.startswith(ITERATION)}
        return (
            {full: due[name] for name, full in longer.items()},
            {full: bands[name] for name, full in longer.items()},
        )


def tally(view: StepView) -> Tallied:
    """Sum up the current update in this process."""
    terms = {id(term.loss): term for term in view.trainer.objective.terms}
    first = view.trainer.objective.terms[0]
    found = Tallied()
    for seen in view.seen:
        one = Tallied()
        for loss, batch, output in seen.losses:
            term = terms.get(id(loss))
            if term is None:
                continue
            share = float(output.loss.detach()) / seen.normalizer.world_size
            one.losses[term.name] = one.losses.get(term.name, 0.0) + share
            if batch.entropy_BT is not None and batch.entropy_mask_BT is not None:
                entropy_BT, chosen_BT = batch.entropy_BT.detach().float(), batch.entropy_mask_BT
                chosen_N = entropy_BT[batch.mask_BT & chosen_BT]
                left_N = entropy_BT[batch.mask_BT & ~chosen_BT]
                one.threshold = min([one.threshold, *chosen_N.tolist()])
                one.left = max([one.left, *left_N.tolist()])
            if term is first:  # metrics of others may be under longer names
                _of_output(output, one)
                if known(loss):
                    _of_batch(loss, batch, one)
        found.add(one)
    return found


def _of_output(output: Any, found: Tallied) -> None:
    for name, (total, count) in output.sums.items():
        found.sums[name] = (float(total), float(count), 0.0)
    found.most.update({name: float(value) for name, value in output.maxima.items()})


def _of_batch(loss: Any, batch: LossBatch, found: Tallied) -> None:
    """Put in the place of what a loss has counted what its batch says."""
    options, mask_BT = loss.options, batch.mask_BT
    logp_BT, old_BT = batch.logp_BT.detach().double(), batch.old_logp_BT.detach().double()
    x_BT = torch.where(mask_BT, logp_BT - old_BT, 0.0)
    if isinstance(options, RatioConfig) and options.ratio == "sequence":
        x_BT = (x_BT.sum(1, keepdim=True) / mask_BT.sum(1, keepdim=True).clamp(min=1)).expand_as(
            x_BT
        )
    gap_BT = torch.where(mask_BT, old_BT - batch.behaviour_logp_BT.double(), 0.0)
    means: dict[str, Tensor] = {"mismatch/abs_mean": gap_BT.abs()}
    most: dict[str, Tensor] = {"mismatch/abs_max": gap_BT.abs()}
    unsure: dict[str, Tensor] = {}
    if bool((gap_BT.abs() < 20).all()):
        means["mismatch/k3"] = gap_BT.exp() - 1 - gap_BT
        _weights(options, batch, gap_BT, means, unsure)
    if bool((x_BT.abs() < 20).all()):
        means["ratio/mean"] = most["ratio/max"] = r_BT = x_BT.exp()
        if "gate/mean" in found.sums:
            # 4 s (1 - s), s the sigmoid of tau (r - 1)
            tau_BT = torch.where(_advantages(batch) > 0, options.tau_pos, options.tau_neg)
            means["gate/mean"] = torch.cosh(tau_BT.double() * (r_BT - 1) / 2) ** -2
        if "clip_low" in type(options).model_fields:
            _clips(loss, batch, r_BT, means, unsure)
    if batch.entropy_BT is not None:
        means["entropy/mean"] = batch.entropy_BT.detach().double()
    if batch.entropy_mask_BT is not None:
        means["entropy/chosen"] = batch.entropy_mask_BT.double()
    means["entropy/bonus"] = torch.full_like(gap_BT, batch.entropy_bonus or 0.0)
    if isinstance(options, RatioConfig) and options.off_policy_mask is not None:
        _drift(options.off_policy_mask, batch, means, most, unsure)
    kl_BT = _kl(options, batch, logp_BT)
    if kl_BT is not None:
        means["kl/mean"] = most["kl/max"] = kl_BT
    count = float(mask_BT.sum())
    for name, value_BT in means.items():
        if name in found.sums or name in ALWAYS:
            doubt = float(unsure[name].sum()) if name in unsure else 0.0
            found.sums[name] = (float(value_BT[mask_BT].sum()), count, doubt)
    for name, value_BT in most.items():
        if name in found.most or name in ALWAYS:
            found.most[name] = float(value_BT[mask_BT].max()) if count else -math.inf


def _weights(
    options: Any,
    batch: LossBatch,
    gap_BT: Tensor,
    means: dict[str, Tensor],
    unsure: dict[str, Tensor],
) -> None:
    """Weigh each token by trainer over engine, as ``importance_correction`` says."""
    rule = options.importance_correction if isinstance(options, RatioConfig) else None
    if rule is None or rule.mode == "off":
        return
    log_BT, mask_BT = gap_BT, batch.mask_BT
    if not rule.mode.startswith("token_"):
        n_B1 = mask_BT.sum(1, keepdim=True).clamp(min=1) if rule.mode == "sequence_geo" else 1
        log_BT = (gap_BT.sum(1, keepdim=True) / n_B1).expand_as(gap_BT)
    raw_BT = log_BT.exp()
    outside_BT = (raw_BT > rule.cap) | (raw_BT < rule.floor)
    kept_BT = raw_BT.clamp(rule.floor, rule.cap)
    if rule.mode.endswith("_mask"):
        kept_BT = raw_BT.masked_fill(outside_BT, 0.0)
    edge_BT = ((raw_BT - rule.cap).abs() < EDGE) | ((raw_BT - rule.floor).abs() < EDGE)
    means["mismatch/truncated"] = outside_BT.double()
    means["mismatch/weight"], means[SQUARE] = kept_BT, kept_BT.square()
    largest = {"mismatch/truncated": 1.0, "mismatch/weight": rule.cap, SQUARE: rule.cap**2}
    for name, most in largest.items():
        unsure[name] = most * (edge_BT & mask_BT).double()


def _clips(
    loss: Any,
    batch: LossBatch,
    r_BT: Tensor,
    means: dict[str, Tensor],
    unsure: dict[str, Tensor],
) -> None:
    a_BT, options = _advantages(batch), loss.options
    low, high = 1 - options.clip_low, 1 + options.clip_high
    if type(loss).__name__ in OF_LOG_RATIOS:
        low, high = math.exp(-options.clip_low), math.exp(options.clip_high)
    for name, bound, live_BT in (
        ("clip_fraction/low", low, a_BT < 0),
        ("clip_fraction/high", high, a_BT > 0),
    ):
        beyond_BT = r_BT < bound if name.endswith("low") else r_BT > bound
        means[name] = (live_BT & beyond_BT).double()
        unsure[name] = live_BT & batch.mask_BT & ((r_BT - bound).abs() < EDGE)


def _advantages(batch: LossBatch) -> Tensor:
    given = batch.advantage_BT
    return batch.advantage_B[:, None].expand_as(batch.mask_BT) if given is None else given


def _drift(
    most_drift: float,
    batch: LossBatch,
    means: dict[str, Tensor],
    most: dict[str, Tensor],
    unsure: dict[str, Tensor],
) -> None:
    """Mean drop of a row's log-probs since it was sampled; who fell too far may be left out."""
    fall_BT = batch.behaviour_logp_BT.double() - batch.logp_BT.detach().double()
    n_B1 = batch.mask_BT.sum(1, keepdim=True).clamp(min=1)
    drift_BT = torch.where(batch.mask_BT, fall_BT, 0.0).sum(1, keepdim=True) / n_B1
    most["off_policy/drift_max"] = drift_BT = drift_BT.expand_as(batch.mask_BT)
    means["off_policy/dropped"] = ((_advantages(batch) < 0) & (drift_BT > most_drift)).double()
    edge_BT = (drift_BT - most_drift).abs() < EDGE
    unsure["off_policy/dropped"] = (edge_BT & batch.mask_BT).double()


def _kl(options: Any, batch: LossBatch, logp_BT: Tensor) -> Tensor | None:
    """Return the estimate of the KL at each token; None where the loss has none."""
    if not options.beta > 0 or batch.ref_logp_BT is None:
        return None
    d_BT = torch.where(batch.mask_BT, batch.ref_logp_BT.double() - logp_BT, 0.0)
    if options.kl_estimator == "k1":
        return -d_BT
    if options.kl_estimator == "k2":
        return d_BT.square() / 2
    return d_BT.exp() - 1 - d_BT if bool((d_BT < 20).all()) else None


def losses_of(updates: Sequence[Tallied], weights: dict[str, float]) -> dict[str, float]:
    """Return the loss of a step, and that of each term where there are several.

    Args:
        updates: What each update that counts was given.
        weights: The factor of each term.
    """
    if not updates:
        return {}
    given = [sum(weights[n] * loss for n, loss in one.losses.items()) for one in updates]
    due = {"loss": sum(given) / len(given)}
    for name in weights:
        values = [one.losses[name] for one in updates if name in one.losses]
        if values and len(weights) > 1:
            due[f"loss/{name}"] = sum(values) / len(values)
    return due
