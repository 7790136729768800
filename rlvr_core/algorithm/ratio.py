"""Probability ratios of two policies, and quantities made of them.

Estimates of the KL divergence from the policy to the reference; and
importance weights from the policy that sampled to the trainer's policy at the step's start.

Those two differ because the same weights give slightly different log-probs in two implementations,
and, for rows sampled under older weights, because the policy has moved since. The surrogate's ratio
starts from the trainer's log-probs (decoupled PPO: Hilton et al. 2021, arXiv:2110.00641; Fu et al.
2025, AReaL, arXiv:2505.24298); the rest is corrected by a weight without a gradient, bounded so
that a single token cannot dominate.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from rlvr_core.algorithm.reduce import Tally
from rlvr_core.api import ComponentConfig

MAX_EXPONENT = 30.0
"""Above it exp is continued by its tangent: exp(30) = 1e13 still has a finite square in float32."""


def log_ratio(logp_BT: Tensor, old_logp_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Return ``logp - old`` where the mask is set, else 0, even if a masked position holds NaN."""
    return torch.where(mask_BT, logp_BT - old_logp_BT, 0.0)


def row_mean_log_ratio(log_ratio_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """(B, 1) mean over the row's loss tokens of log-ratios that are 0 elsewhere.

    Its exp is the geometric mean of the tokens' ratios, the sequence ratio of Zheng et al. 2025,
    arXiv:2507.18071.
    """
    return log_ratio_BT.sum(dim=1, keepdim=True) / mask_BT.sum(dim=1, keepdim=True).clamp(min=1)


def exp_linear(x: Tensor) -> Tensor:
    """exp(x) up to ``MAX_EXPONENT`` and its tangent beyond: never infinite, nor is its gradient.

    A plain exp overflows to inf, and the zero gradient of a clipped token times inf is NaN.
    """
    bounded = x.clamp(max=MAX_EXPONENT)
    return torch.exp(bounded) * (1 + (x - bounded))


KlKind = Literal["k1", "k2", "k3"]


def kl_policy_ref(logp: Tensor, ref_logp: Tensor, kind: KlKind = "k3") -> Tensor:
    """Estimate KL(policy || reference) at each token, the token having come from the policy.

    With d = ref - policy: k1 = -d, k2 = d^2 / 2, k3 = exp(d) - d - 1 (Schulman 2020, "Approximating
    KL divergence"). k1 and k3 have the exact KL as their mean; k3 is never negative and grows
    linearly where the policy is far above the reference. Where the policy is more than 30 nats
    *below* it, k3 goes on along its tangent, so that value and gradient stay finite.

    Args:
        logp: Log-probs under the policy, any shape.
        ref_logp: Under the reference, same shape.
        kind: Which estimator.
    """
    d = ref_logp - logp
    if kind == "k1":
        return -d
    if kind == "k2":
        return d.square() / 2
    return k3(d)


def k3(d: Tensor) -> Tensor:
    """exp(d) - d - 1, accurate near 0 and finite for large ``d``."""
    bounded = d.clamp(max=MAX_EXPONENT)
    grown = torch.expm1(bounded)
    return grown - bounded + grown * (d - bounded)


CorrectionMode = Literal[
    "token_truncate", "token_mask", "sequence_truncate", "sequence_mask", "sequence_geo", "off"
]


class ImportanceCorrection(ComponentConfig):
    """How the gap between the sampling policy and the trainer is weighed."""

    mode: CorrectionMode = "token_truncate"
    """``token_*`` weighs each token by its own ratio, ``sequence_*`` by the product over the row,
    ``sequence_geo`` by its geometric mean; ``truncate`` (and ``geo``) cut the weight to
    [``floor``, ``cap``], ``mask`` drops what lies outside; ``off`` only measures."""
    cap: Annotated[float, Field(ge=1)] = 2.0
    """Largest weight."""
    floor: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Smallest weight."""

    @model_validator(mode="after")
    def _floor_is_used(self) -> ImportanceCorrection:
        if self.floor > 0 and self.mode == "off":
            raise ValueError("floor has no effect with mode off, which only measures")
        return self


def importance_weight(
    old_logp_BT: Tensor,
    behaviour_logp_BT: Tensor,
    mask_BT: Tensor,
    config: ImportanceCorrection,
    tally: Tally,
) -> Tensor | None:
    """Weights of the surrogate, and how far the sampling policy and the trainer are apart.

    With d = trainer - engine: the trainer's at the step's start, the engine's at sampling time, so
    for fresh rows d is the gap between two implementations alone. Truncation is Yao et al. 2025
    ("Your efficient RL framework secretly brings you off-policy RL training"), masking is IcePop of
    Ling Team 2025.

    Args:
        old_logp_BT: The trainer's log-probs at the start of the step.
        behaviour_logp_BT: The engine's when it sampled the tokens.
        mask_BT: True where the loss counts.
        config: Mode and bounds.
        tally: Gets ``mismatch/abs_mean``, ``abs_max`` and ``k3`` always, ``truncated`` and the
            weights unless the mode is ``off``.

    Returns:
        (B, T) or (B, 1) weights without a gradient, or None when the mode is ``off``.
    """
    with torch.no_grad():
        d_BT = log_ratio(old_logp_BT, behaviour_logp_BT, mask_BT)
        tally.mean("mismatch/abs_mean", d_BT.abs())
        tally.max("mismatch/abs_max", d_BT.abs())
        tally.mean("mismatch/k3", k3(d_BT))
        if config.mode == "off":
            return None

        raw = _log_weight(d_BT, mask_BT, config.mode).exp()
        outside = (raw > config.cap) | (raw < config.floor)
        if config.mode.endswith("_mask"):
            weight = raw.masked_fill(outside, 0.0)
        else:
            weight = raw.clamp(config.floor, config.cap)
        tally.mean("mismatch/truncated", outside.to(d_BT.dtype).expand_as(d_BT))
        tally.weights(weight.expand_as(d_BT))
        return weight


def _log_weight(d_BT: Tensor, mask_BT: Tensor, mode: CorrectionMode) -> Tensor:
    if mode.startswith("token_"):
        return d_BT
    if mode == "sequence_geo":
        return row_mean_log_ratio(d_BT, mask_BT)
    return d_BT.sum(dim=1, keepdim=True)
