"""Guard ``guards/loss``: a loss of the core and its gradient are those of its formula.

From what a loss was given (log-probs, advantages, mask, denominators of the update) its value and
the gradient that must arrive at the log-probs are computed once more in float64, of one micro-batch
of each update. The formula shares nothing with the code that computes the losses. Beside it stands
how large its terms are, for the band of rounding, and where a rounding decides on which side of a
clip or mask a token is. A loss, or an option, that has no formula here is not looked at.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.api import BaseGuard, Metric
from rlvr_core.losses import DAPO, GRPO, GSPO, DrGRPO

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from rlvr_core.api import Group, LossBatch, Normalizer, RunStarted, SeenMicroBatch

KNOWN = (GRPO, DAPO, DrGRPO, GSPO)
"""Losses that have a formula here; one that inherits from them computes something else."""

WITHOUT_FORMULA = {"entropy_bonus": 0.0, "entropy_control": None, "off_policy_mask": None}
"""Options that have none unless they are at these values."""

ROUNDING, TINY = 1e-4, 1e-30
"""Share of the terms of a loss that is rounding in float32; what float32 may flush to 0."""

FAR = 30.0
"""Exponents above it go on along the tangent, as docs/losses.md says."""

EDGE = 1e-5
"""Distance from a clip's or mask's edge, as a share of it, within which rounding decides."""


class LossValues(BaseGuard):
    """Losses are what the config says."""

    name = "guards/loss"
    reports = (
        Metric(
            "loss/error",
            "Largest difference of a loss, or of its gradient with respect to a log-prob, from "
            "its formula, as a share of what it is made of; the band for rounding is 1e-4.",
            "share",
        ),
    )

    def run_started(self, event: RunStarted) -> None:
        """Compare weights and options of the losses with the config's."""
        terms, refs = self.context.trainer.objective.terms, self.context.config.losses.values()
        for term, ref in zip(terms, refs, strict=False):
            if term.weight != ref.weight:
                raise self.fault(
                    event.step,
                    f"the loss {term.name} has weight {term.weight:g}, and the config makes it "
                    f"{ref.weight:g}",
                    "look at what makes the loss of its options",
                )
            if not known(term.loss):
                self.say_once(f"does not look at {term.name}: it has no formula here")
                continue
            options = term.loss.options.model_dump()
            wanted = type(term.loss.options).model_validate(ref.with_).model_dump()
            for name, value in wanted.items():
                if options[name] != value:
                    raise self.fault(
                        event.step,
                        f"the loss {term.name} has {name} {options[name]}, and the config makes it "
                        f"{value}",
                        "look at what makes the loss of its options",
                    )

    def step_begins(self, groups: Sequence[Group], step: int, version: int) -> None:
        """Note whether the step is looked at."""
        self.begin(step)

    def update_begins(self) -> None:
        """Compute the losses of one micro-batch of this process again."""
        view, fault = self.view, ""
        if not self.due:
            return
        if view.seen:
            fault = self._wrong(view.seen[(view.step + view.update) % len(view.seen)])
        self.raise_first(
            view.step,
            fault,
            "look at what differs from the loss's options in the config: ratio and clip, "
            "importance weights, KL term, denominators of the whole update, weights of the losses "
            "in their sum, and at whatever multiplies the loss or the log-probs, or stops a "
            "gradient",
        )

    def _wrong(self, seen: SeenMicroBatch) -> str:
        """Say what of a micro-batch is not as the formulas give it; empty if nothing is."""
        terms = {id(term.loss): term for term in self.context.trainer.objective.terms}
        gradient_BT = torch.zeros_like(seen.batch.logp_BT).double()
        band_BT = torch.full_like(gradient_BT, TINY)
        sure_BT, whole, worst = torch.ones_like(seen.batch.mask_BT), True, 0.0
        for loss, batch, output in seen.losses:
            term = terms.get(id(loss))
            if term is None or not known(loss):
                whole = False
                continue
            with torch.enable_grad():
                due = _Formula(loss, batch, seen.normalizer).expected()
            share_B1 = ROUNDING + due.rounding_B1
            if not bool(due.cliff_BT.any()):
                band = float(share_B1.amax() if len(share_B1) else ROUNDING) * due.size + TINY
                value = float(output.loss.detach())
                worst = max(worst, abs(value - due.value) / band)
                if not abs(value - due.value) <= band:
                    return (
                        f"loss {term.name} is {value:.6g}, and its formula gives {due.value:.6g} "
                        f"for what it was given (band: {band:.2g})"
                    )
            gradient_BT = gradient_BT + term.weight * due.gradient_BT
            band_BT = band_BT + abs(term.weight) * share_B1 * due.size_BT
            sure_BT = sure_BT & ~due.edge_BT
        if whole and seen.gradient_BT is not None:
            scale = float(self.context.trainer.optimizer.scaler.get_scale())
            arrived_BT = seen.gradient_BT.double() / scale
            if seen.gradient_BT.dtype != torch.float32:
                band_BT = band_BT + 4 * torch.finfo(seen.gradient_BT.dtype).eps * gradient_BT.abs()
            if bool(torch.isfinite(arrived_BT).all()):  # else the update will be skipped
                apart_N = ((arrived_BT - gradient_BT).abs() / band_BT)[sure_BT]
                worst = max(worst, float(apart_N.max()) if len(apart_N) else 0.0)
                if (outside := int((apart_N > 1).sum())) > 1:
                    return (
                        f"the gradient that arrives at the log-probs is not that of the loss's "
                        f"formula at {outside} of {len(apart_N)} tokens"
                    )
        self.numbers["loss/error"] = max(self.numbers.get("loss/error", 0.0), ROUNDING * worst)
        return ""


def known(loss: Any) -> bool:
    """Whether a loss is one of those written down here, with options that are."""
    if type(loss) not in KNOWN:
        return False
    options = loss.options.model_dump()
    return all(options.get(name, value) == value for name, value in WITHOUT_FORMULA.items())


@dataclass(slots=True)
class Expected:
    """What a loss must be.

    Attributes:
        value: The micro-batch's share of the loss.
        size: Sum of the absolute terms of the value.
        gradient_BT: With respect to the log-probs.
        size_BT: Sum of the absolute terms of each gradient.
        rounding_B1: What is added to the share of rounding, for rows that are summed up.
        cliff_BT: Tokens where rounding may change value and gradient.
        edge_BT: Tokens where it may change the gradient.
    """

    value: float
    size: float
    gradient_BT: Tensor
    size_BT: Tensor
    rounding_B1: Tensor
    cliff_BT: Tensor
    edge_BT: Tensor


class _Formula:
    """One of the known losses on a micro-batch: float64, and 0 where the loss does not count."""

    def __init__(self, loss: Any, batch: LossBatch, normalizer: Normalizer) -> None:
        self._loss, self._options = type(loss), loss.options
        self._batch, self._of = batch, normalizer
        self._mask = batch.mask_BT
        self._logp = batch.logp_BT.detach().double().requires_grad_()
        self._n = self._mask.sum(1, keepdim=True).clamp(min=1)
        self._x = self._inside(self._logp - batch.old_logp_BT.double())
        self._d = self._inside((batch.old_logp_BT - batch.behaviour_logp_BT).double())
        level = self._x
        if self._options.ratio == "sequence":
            level = (self._x.sum(1, keepdim=True) / self._n).expand_as(self._x)
        self._r = _exp(level)
        given = batch.advantage_BT
        row = batch.advantage_B.double()[:, None].expand_as(self._x)
        self._a = self._inside(row if given is None else given.double())
        self._cliff = torch.zeros_like(self._mask)
        self._edge = torch.zeros_like(self._mask)

    def _inside(self, values_BT: Tensor) -> Tensor:
        return torch.where(self._mask, values_BT, 0.0)

    def expected(self) -> Expected:
        """Put surrogate, weights, masks, KL, entropy and denominators together."""
        options, batch = self._options, self._batch
        weight_BT = self._weights()
        surrogate_BT = weight_BT * self._clipped()
        if options.top_entropy < 1 and batch.entropy_mask_BT is not None:
            surrogate_BT = torch.where(batch.entropy_mask_BT, surrogate_BT, 0.0)
        kl_BT, kl_size_BT = self._kl()
        share_BT = self._share()
        loss = (share_BT * self._inside(surrogate_BT + kl_BT)).sum()
        (gradient_BT,) = torch.autograd.grad(loss, self._logp)
        # where a weight or a gate is nearly shut, rounding is that of an open one
        steep_BT = self._a.abs() * (1 + weight_BT) * (1 + self._r)
        size_BT = self._inside(share_BT * (gradient_BT.abs() / share_BT + steep_BT + kl_size_BT))
        sizes_BT = self._inside(share_BT * (surrogate_BT.abs() + steep_BT + kl_size_BT))
        summed_B1 = (self._d.abs() + self._x.abs()).sum(1, keepdim=True)
        return Expected(
            value=float(loss.detach()),
            size=float(sizes_BT.detach().sum()),
            gradient_BT=gradient_BT,
            size_BT=size_BT.detach(),
            rounding_B1=2e-6 * summed_B1.detach(),
            cliff_BT=self._cliff & self._mask,
            edge_BT=(self._cliff | self._edge) & self._mask,
        )

    def _weights(self) -> Tensor:
        """Importance weights from the engine's policy to that of the step's start."""
        how = self._options.importance_correction
        if how.mode == "off":
            return torch.ones_like(self._d)
        total_B1 = self._d.sum(1, keepdim=True)
        level = self._d
        if how.mode.startswith("sequence"):
            level = (total_B1 / self._n if how.mode == "sequence_geo" else total_B1).expand_as(
                level
            )
        raw = level.exp()
        if not how.mode.endswith("mask"):
            return raw.clamp(how.floor, how.cap)
        near = EDGE + 2e-6 * self._d.abs().sum(1, keepdim=True)
        self._cliff |= (level - math.log(how.cap)).abs() < near
        if how.floor > 0:
            self._cliff |= (level - math.log(how.floor)).abs() < near
        return torch.where((raw > how.cap) | (raw < how.floor), 0.0, raw)

    def _clipped(self) -> Tensor:
        """PPO's surrogate: of a good token up to 1 + high, of a bad one from 1 - low to delta."""
        low, high = 1 - self._options.clip_low, 1 + self._options.clip_high
        most = math.inf if self._options.delta is None else self._options.delta
        good = self._r.clamp(max=high)
        bad = self._r.clamp(low, most)
        edges = [(low, self._a < 0), (high, self._a > 0), (most, self._a < 0)]
        for edge, where in edges:
            if math.isfinite(edge):
                self._edge |= where & ((self._r - edge).abs() <= 2 * EDGE * (1 + edge))
        return -self._a * torch.where(self._a > 0, good, bad)

    def _kl(self) -> tuple[Tensor, Tensor]:
        """The KL term of each token, and the size of what its gradient is made of."""
        beta, ref_BT = self._options.beta, self._batch.ref_logp_BT
        if not beta > 0 or ref_BT is None:
            return torch.zeros_like(self._d), torch.zeros_like(self._d)
        d = self._inside(ref_BT.double() - self._logp)
        kind = self._options.kl_estimator
        estimate = {
            "k1": lambda: -d,
            "k2": lambda: d * d / 2,
            "k3": lambda: _exp(d) - 1 - d,
        }[kind]()
        size = 1 + d.abs() + (d * d if kind == "k2" else _exp(d) if kind == "k3" else 0.0)
        if self._options.kl_ratio_corrected:
            estimate, size = estimate * self._r, size * (1 + self._r)
        return beta * estimate, (beta * size).detach()

    def _share(self) -> Tensor:
        """What each token's loss is divided by, as its factor."""
        of = self._of
        rows, tokens = max(of.rows, 1), max(of.tokens, 1)
        if self._loss is DAPO:
            divisor = torch.full_like(self._d, tokens)
        elif self._loss is DrGRPO:
            length = self._options.constant or of.max_completion_tokens
            divisor = torch.full_like(self._d, max(of.rows * length, 1))
        else:
            divisor = rows * self._n.double().expand_as(self._d)
            if of.share_B is not None:  # a branch has a share of its completion's tokens
                divisor = divisor / of.share_B.double()[:, None].clamp(min=1e-30)
        return of.world_size / divisor


def _exp(x: Tensor) -> Tensor:
    """exp(x), along its tangent beyond ``FAR``."""
    return torch.where(x > FAR, math.exp(FAR) * (1 + x - FAR), x.clamp(max=FAR).exp())
