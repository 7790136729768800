"""Importance weights from the policy that sampled to the trainer's policy at the step's start.

The two differ because the same weights give slightly different log-probs in two implementations,
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

from rlvr_core.algorithm.kl import k3
from rlvr_core.algorithm.metrics import Tally
from rlvr_core.algorithm.ratio import log_ratio
from rlvr_core.api import ComponentConfig

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
    total_B1 = d_BT.sum(dim=1, keepdim=True)
    if mode == "sequence_geo":
        return total_B1 / mask_BT.sum(dim=1, keepdim=True).clamp(min=1)
    return total_B1
