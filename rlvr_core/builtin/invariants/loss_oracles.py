"""The built-in policy losses once more, token by token in float64, from their papers' formulas.

They share nothing with the code that computes the losses: values are sums of terms that are written
out here, gradients come of these. Beside them stands how large the terms are that a value is summed
of, for the band of rounding, and where a rounding decides which side of a clip or mask a token is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.api.services import RatioConfig

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr_core.api import Loss, LossBatch, Normalizer

_FAMILY = "rlvr_core.builtin.losses.policy_family:"
_USUAL = "rlvr_core.losses:"
_CLIPPED = frozenset(f"{_USUAL}{name}" for name in ("GRPO", "DAPO", "DrGRPO", "GSPO"))
_CLIPPED |= {f"{_FAMILY}LUSPO"}
_CAPPED = frozenset(f"{_FAMILY}{name}" for name in ("CISPO", "REINFORCE"))
_SAPO = f"{_FAMILY}SAPO"
_GMPO = "rlvr_core.builtin.losses.gmpo:GMPO"
_VESPO = "rlvr_core.builtin.losses.vespo:VESPO"
_KNOWN = _CLIPPED | _CAPPED | {_SAPO, _GMPO, _VESPO}
_BY_TOKEN = _CAPPED | {f"{_USUAL}DAPO", _VESPO}
_BY_ROW_SUM = frozenset({f"{_FAMILY}LUSPO"})
_CONSTANT = f"{_USUAL}DrGRPO"

FAR = 30.0
"""Exponents above it go on along the tangent, as docs/losses.md says."""

EDGE = 1e-5
"""Distance from a clip's or mask's edge, as a share of it, within which rounding decides."""


def known(loss: Loss) -> bool:
    """Whether a loss is one of those written down here."""
    return _name(loss) in _KNOWN


def _name(loss: object) -> str:
    return f"{type(loss).__module__}:{type(loss).__qualname__}"


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
        entropy_slope: Gradient with respect to the entropy of each loss token.
    """

    value: float
    size: float
    gradient_BT: Tensor
    size_BT: Tensor
    rounding_B1: Tensor
    cliff_BT: Tensor
    edge_BT: Tensor
    entropy_slope: float = 0.0


def expected(loss: Any, batch: LossBatch, normalizer: Normalizer) -> Expected:
    """Compute what one of the known losses must be on a micro-batch."""
    with torch.enable_grad():
        return _Formula(_name(loss), loss.options, batch, normalizer).expected()


class _Formula:
    """The quantities of one micro-batch, float64 and 0 where the loss does not count."""

    def __init__(self, name: str, options: Any, batch: LossBatch, normalizer: Normalizer) -> None:
        self._name, self._options, self._batch, self._of = name, options, batch, normalizer
        self._mask = batch.mask_BT
        self._logp = batch.logp_BT.detach().double().requires_grad_()
        self._n = self._mask.sum(1, keepdim=True).clamp(min=1)
        self._x = self._inside(self._logp - batch.old_logp_BT.double())
        self._d = self._inside((batch.old_logp_BT - batch.behaviour_logp_BT).double())
        level = self._x
        if isinstance(options, RatioConfig) and options.ratio == "sequence":
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
        surrogate_BT = self._surrogate(weight_BT)
        if options.off_policy_mask is not None:
            drift_B1 = self._inside((batch.behaviour_logp_BT - batch.logp_BT).double())
            drift_B1 = drift_B1.sum(1, keepdim=True) / self._n
            kept_BT = (self._a >= 0) | (drift_B1 <= options.off_policy_mask)
            self._cliff |= (drift_B1 - options.off_policy_mask).abs() < 10 * EDGE
            surrogate_BT = torch.where(kept_BT, surrogate_BT, 0.0)
        if options.top_entropy < 1 and batch.entropy_mask_BT is not None:
            surrogate_BT = torch.where(batch.entropy_mask_BT, surrogate_BT, 0.0)
        kl_BT, kl_size_BT = self._kl()
        share_BT = self._share()
        loss = (share_BT * self._inside(surrogate_BT + kl_BT)).sum()
        (gradient_BT,) = torch.autograd.grad(loss, self._logp)
        slope, entropy = self._entropy()
        # where a weight or a gate is nearly shut, rounding is that of an open one
        steep_BT = self._a.abs() * (1 + weight_BT) * (1 + self._r)
        size_BT = self._inside(share_BT * (gradient_BT.abs() / share_BT + steep_BT + kl_size_BT))
        sizes_BT = self._inside(share_BT * (surrogate_BT.abs() + steep_BT + kl_size_BT))
        summed_B1 = (self._d.abs() + self._x.abs()).sum(1, keepdim=True)
        return Expected(
            value=float(loss.detach()) - entropy,
            size=float(sizes_BT.detach().sum()) + abs(entropy),
            gradient_BT=gradient_BT,
            size_BT=size_BT.detach(),
            rounding_B1=2e-6 * summed_B1.detach(),
            cliff_BT=self._cliff & self._mask,
            edge_BT=(self._cliff | self._edge) & self._mask,
            entropy_slope=-slope,
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

    def _surrogate(self, weight_BT: Tensor) -> Tensor:
        name, options = self._name, self._options
        if name in _CLIPPED:
            return weight_BT * self._clipped()
        if name in _CAPPED:
            return -weight_BT * self._r.detach().clamp(max=options.cap) * self._a * self._logp
        if name == _SAPO:
            tau = torch.where(self._a > 0, options.tau_pos, options.tau_neg).double()
            return -weight_BT * self._a * 4 / (tau * (1 + torch.exp(-tau * (self._r - 1))))
        if name == _GMPO:
            return weight_BT * self._geometric()
        return -self._phi(weight_BT) * self._a * self._logp

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

    def _geometric(self) -> Tensor:
        """GMPO: the geometric mean of a row's clipped ratios, over its chosen tokens."""
        chosen = self._mask
        if self._options.top_entropy < 1 and self._batch.entropy_mask_BT is not None:
            chosen = chosen & self._batch.entropy_mask_BT
        high, low = self._options.clip_high, -self._options.clip_low
        bounded = torch.where(self._a > 0, self._x.clamp(max=high), self._x.clamp(min=low))
        near = torch.where(self._a > 0, self._x - high, self._x - low).abs()
        self._edge |= near <= 2 * EDGE
        n_B1 = chosen.sum(1, keepdim=True).clamp(min=1)
        mean_B1 = torch.where(chosen, bounded, 0.0).sum(1, keepdim=True) / n_B1
        return -self._a * _exp(mean_B1) * self._n / n_B1

    def _phi(self, weight_BT: Tensor) -> Tensor:
        """VESPO's weight of a row, w^k exp(lambda (1 - w)) of the product w of all its ratios."""
        options, least, most = self._options, math.log(1e-8), 20.0
        log_w = self._x.detach().clamp(-most, most).sum(1, keepdim=True)
        if options.importance_correction.mode != "off":
            weights = self._inside(weight_BT.log().clamp(least, most))
            log_w = log_w + weights.sum(1, keepdim=True)
        log_w = log_w.clamp(least, most)
        up = self._batch.advantage_B[:, None] >= 0
        k = torch.where(up, options.k_pos, options.k_neg).double()
        rate = torch.where(up, options.lambda_pos, options.lambda_neg).double()
        return (k * log_w + rate * (1 - log_w.exp())).exp()

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
        if self._name in _BY_TOKEN:
            divisor = torch.full_like(self._d, tokens)
        elif self._name in _BY_ROW_SUM:
            divisor = torch.full_like(self._d, rows)
        elif self._name == _CONSTANT:
            length = self._options.constant or of.max_completion_tokens
            divisor = torch.full_like(self._d, max(of.rows * length, 1))
        else:
            divisor = rows * self._n.double().expand_as(self._d)
            if of.share_B is not None:  # a branch has a share of its completion's tokens
                divisor = divisor / of.share_B.double()[:, None].clamp(min=1e-30)
        return of.world_size / divisor

    def _entropy(self) -> tuple[float, float]:
        """What the sum of the entropies is multiplied by, and the bonus that is subtracted."""
        steered = self._options.entropy_control is not None
        bonus = self._batch.entropy_bonus if steered else self._options.entropy_bonus
        entropy_BT = self._batch.entropy_BT
        if not bonus or entropy_BT is None:
            return 0.0, 0.0
        total = float(self._inside(entropy_BT.detach().double()).sum())
        slope = float(bonus) * self._of.world_size / max(self._of.tokens, 1)
        return slope, slope * total


def _exp(x: Tensor) -> Tensor:
    """exp(x), along its tangent beyond ``FAR``."""
    return torch.where(x > FAR, math.exp(FAR) * (1 + x - FAR), x.clamp(max=FAR).exp())
