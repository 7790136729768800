"""VESPO: one smooth weight a completion, which falls off on both sides of the ratio 1."""

from __future__ import annotations

import math
from typing import Annotated

import torch
from pydantic import Field, model_validator
from torch import Tensor

from rlvr_core.algorithm.policy import PolicyConfig, PolicyLoss, PolicyTerms
from rlvr_core.algorithm.reduce import token_mean
from rlvr_core.api import LossBatch, LossOutput, Metric, Normalizer

LOG_LEAST, LOG_MOST = math.log(1e-8), 20.0
"""Bounds of the logarithm of a completion's ratio."""


class VESPO(PolicyLoss):
    """Variational sequence-level soft policy optimization, as TRL 1.16 has it.

    A completion's gradient is multiplied by phi(w) = w^k exp(lambda (1 - w)), where w is the
    product of its tokens' ratios and of their importance weights. phi(1) = 1, and it has its
    maximum at w = k / lambda.
    """

    reports = (Metric("loss/phi", "Mean weight phi of a completion.", "factor"),)

    whole_rows = True

    class Config(PolicyConfig):
        """Options of VESPO."""

        k_pos: Annotated[float, Field(ge=0)] = 2.0
        """k of completions with an advantage of 0 or more: how fast the weight falls towards 0."""
        lambda_pos: Annotated[float, Field(gt=0)] = 3.0
        """lambda of these: how fast it falls towards infinity."""
        k_neg: Annotated[float, Field(ge=0)] = 3.0
        """k of the others."""
        lambda_neg: Annotated[float, Field(gt=0)] = 2.0
        """lambda of the others."""

        @model_validator(mode="after")
        def _weights_by_token(self) -> VESPO.Config:
            mode = self.importance_correction.mode
            if mode.startswith("sequence"):
                raise ValueError(
                    f"importance_correction.mode {mode}: the ratio of a completion is made of its "
                    "tokens here, so the mode must be token_truncate, token_mask or off"
                )
            return self

    options: Config

    def __call__(self, batch: LossBatch, normalizer: Normalizer) -> LossOutput:
        """Mean over all loss tokens of -phi A logp, phi with the importance weights in it."""
        terms = self.terms(batch)
        phi_B1 = self._phi(terms, terms.importance_weight())
        terms.tally.mean("loss/phi", phi_B1.expand_as(terms.logp_BT))
        loss_BT = terms.masked(phi_B1 * (-terms.advantage_BT * terms.logp_BT))
        return terms.output(token_mean(loss_BT, batch.mask_BT, normalizer), normalizer)

    def _phi(self, terms: PolicyTerms, weight_BT: Tensor | None) -> Tensor:
        """(B, 1) weight of each completion."""
        config = self.options
        with torch.no_grad():
            log_w_B1 = terms.log_ratio_BT.clamp(-LOG_MOST, LOG_MOST).sum(dim=1, keepdim=True)
            if weight_BT is not None:
                log_BT = weight_BT.log().clamp(LOG_LEAST, LOG_MOST)
                log_w_B1 = log_w_B1 + log_BT.where(terms.mask_BT, 0.0).sum(dim=1, keepdim=True)
            log_w_B1 = log_w_B1.clamp(LOG_LEAST, LOG_MOST)
            above_B1 = terms.advantage_B1 >= 0
            k_B1 = torch.where(above_B1, config.k_pos, config.k_neg)
            lambda_B1 = torch.where(above_B1, config.lambda_pos, config.lambda_neg)
            return (k_B1 * log_w_B1 + lambda_B1 * (1 - log_w_B1.exp())).exp()
