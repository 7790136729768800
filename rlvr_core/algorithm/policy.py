"""Shared parts of all policy-gradient losses: options, ratios, KL, entropy bonus and metrics.

A loss itself is a few lines, see ``rlvr_core.losses``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from rlvr_core.algorithm.ratio import (
    ImportanceCorrection,
    KlKind,
    exp_linear,
    importance_weight,
    kl_policy_ref,
    log_ratio,
    row_mean_log_ratio,
)
from rlvr_core.algorithm.reduce import Tally, token_mean
from rlvr_core.api import (
    ComponentConfig,
    LossBatch,
    LossOutput,
    LossTraits,
    Normalizer,
)
from rlvr_core.api.traits import EntropyTraits

Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class EntropyControl(ComponentConfig):
    """How ``entropy_bonus`` follows the entropy, He et al. 2025 (Skywork-OR1), arXiv:2505.22312."""

    target: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    """Mean entropy of the loss tokens, in nats, that is to be kept: the bonus is applied while the
    update before was at it or below."""
    step: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.005
    """Added to the weight after an update whose entropy is at the target or below, and subtracted
    after one above it."""
    min: Weight = 0.0
    """Smallest weight."""
    max: Weight = 1.0
    """Largest weight."""

    @model_validator(mode="after")
    def _range_is_one(self) -> EntropyControl:
        if self.min >= self.max:
            raise ValueError(f"min ({self.min}) must be below max ({self.max})")
        return self


class PolicyConfig(ComponentConfig):
    """Options of every policy-gradient loss."""

    beta: Annotated[float, Field(ge=0)] = 0.0
    """Weight of KL(policy || reference); 0 needs no reference model."""
    kl_estimator: KlKind = "k3"
    """Estimator of that KL. As a loss term on its own samples, ``k1`` has a zero mean gradient
    unless ``kl_ratio_corrected`` is on."""
    kl_ratio_corrected: bool = False
    """Multiply the KL by the probability ratio: with ``k3``, its gradient is then that of the true
    KL, off-policy too."""
    importance_correction: ImportanceCorrection = ImportanceCorrection()
    """Importance weights from the policy that sampled a token (the engine's log-prob) to the
    trainer's at the start of the step."""
    off_policy_mask: Annotated[float, Field(gt=0)] | None = None
    """Completions with a negative advantage whose tokens became less likely since sampling by more
    than so many nats, in their mean, are left out of the surrogate; null is off."""
    entropy_bonus: Annotated[float, Field(ge=0)] = 0.0
    """Weight of the mean entropy of the step's loss tokens, which is subtracted from the loss; with
    ``entropy_control``, where that begins."""
    entropy_control: EntropyControl | None = None
    """Let the weight of the entropy bonus follow the entropy, towards a target; null is off."""
    top_entropy: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the step's loss tokens, those of highest entropy, that the surrogate acts on; below
    1 it costs another forward pass."""

    @model_validator(mode="after")
    def _bonus_in_its_range(self) -> PolicyConfig:
        control = self.entropy_control
        if control is not None and not control.min <= self.entropy_bonus <= control.max:
            raise ValueError(
                f"entropy_bonus ({self.entropy_bonus}) is where entropy_control begins, and must "
                f"be within its min ({control.min}) and max ({control.max})"
            )
        return self


class ClipConfig(PolicyConfig):
    """Options of losses with a clipped probability ratio."""

    ratio: Literal["token", "sequence"] = "token"
    """Each token has its own, or the geometric mean over its row."""
    clip_low: Annotated[float, Field(gt=0, le=1)] = 0.2
    """The ratio counts down to ``1 - clip_low``."""
    clip_high: Annotated[float, Field(gt=0)] = 0.2
    """The ratio counts up to ``1 + clip_high``."""
    delta: float | None = None
    """Largest ratio where the advantage is negative; null is off."""

    @model_validator(mode="after")
    def _delta_above_range(self) -> ClipConfig:
        if self.delta is not None and self.delta < 1 + self.clip_high:
            raise ValueError(
                f"delta ({self.delta}) must be at least 1 + clip_high ({1 + self.clip_high}): "
                f"a smaller one would cut positive advantages too"
            )
        return self


class PolicyLoss:
    """A loss made of the policy's log-probs: its options, and the traits that follow from them.

    A loss defines ``__call__``; see ``rlvr_core.losses``. At least float32 is used inside.
    """

    advantage = "group"
    """The advantage estimator of ``advantage: auto``."""

    def __init__(self, config: PolicyConfig) -> None:
        self.options = config

    @property
    def by_row(self) -> bool:
        """Whether the ratio is that of a whole completion."""
        return getattr(self.options, "ratio", "token") == "sequence"

    @property
    def traits(self) -> LossTraits:
        """Traits that follow from the options."""
        options, control = self.options, self.options.entropy_control
        steered = None
        if control is not None:
            steered = EntropyTraits(
                control.target, control.step, control.min, control.max, options.entropy_bonus
            )
        return LossTraits(
            advantage=self.advantage,
            per_token_advantages=not self.by_row,
            needs_reference=options.beta > 0,
            needs_untruncated=None if options.off_policy_mask is None else "off_policy_mask",
            top_entropy=options.top_entropy,
            entropy=steered,
            kl_estimator=options.kl_estimator if options.beta > 0 else None,
        )

    def terms(self, batch: LossBatch) -> PolicyTerms:
        """The tensors that a surrogate of the batch is made of; ratio metrics are gathered."""
        mask_BT, entropy_mask_BT = batch.mask_BT, batch.mask_BT
        if self.options.top_entropy < 1:
            assert batch.entropy_mask_BT is not None, "the traits ask for chosen tokens"
            entropy_mask_BT = batch.entropy_mask_BT & mask_BT
        dtype = torch.promote_types(batch.logp_BT.dtype, torch.float32)
        logp_BT, old_BT = batch.logp_BT.to(dtype), batch.old_logp_BT.detach().to(dtype)
        log_ratio_BT = log_ratio(logp_BT, old_BT, mask_BT)
        level_BT = log_ratio_BT
        if self.by_row:
            level_BT = row_mean_log_ratio(log_ratio_BT, mask_BT).expand_as(log_ratio_BT)
        advantage_BT = batch.advantage_BT
        if advantage_BT is None:
            advantage_BT = batch.advantage_B[:, None].expand_as(logp_BT)
        ratio_BT = exp_linear(level_BT)
        tally = Tally(mask_BT)
        tally.mean("ratio/mean", ratio_BT)
        tally.max("ratio/max", ratio_BT)
        return PolicyTerms(
            batch=batch,
            options=self.options,
            tally=tally,
            logp_BT=logp_BT,
            log_ratio_BT=log_ratio_BT,
            ratio_BT=ratio_BT,
            advantage_BT=torch.where(mask_BT, advantage_BT, 0.0).to(dtype),
            mask_BT=mask_BT,
            entropy_mask_BT=entropy_mask_BT,
        )


@dataclass(frozen=True, slots=True)
class PolicyTerms:
    """The tensors of a surrogate, and the steps before and after it is averaged.

    On-policy, where ``old`` is ``logp`` detached, the ratio is 1 and carries the gradient of
    ``logp``: no case of its own is needed.

    Attributes:
        batch: The micro-batch.
        options: Of the loss.
        tally: Gathers metrics.
        logp_BT: Current log-probs; has a graph.
        log_ratio_BT: Current minus old log-probs of each token; 0 where masked.
        ratio_BT: Its exp, or that of its mean over the row, as ``ratio`` says.
        advantage_BT: The advantage of each token: that of its row unless the estimator gives one
            per token.
        mask_BT: True where the loss counts.
        entropy_mask_BT: True where the surrogate counts: ``mask_BT``, or less with ``top_entropy``.
    """

    batch: LossBatch
    options: PolicyConfig
    tally: Tally
    logp_BT: Tensor
    log_ratio_BT: Tensor
    ratio_BT: Tensor
    advantage_BT: Tensor
    mask_BT: Tensor
    entropy_mask_BT: Tensor

    def corrected(self, surrogate_BT: Tensor) -> Tensor:
        """``weight * surrogate + beta * KL``; importance weights and masks spare the KL."""
        weight = self.importance_weight()
        return self.masked(surrogate_BT if weight is None else weight * surrogate_BT)

    def importance_weight(self) -> Tensor | None:
        """Weights, (B, T) or (B, 1), from the policy that sampled to that of the step's start."""
        correction = self.options.importance_correction
        old_BT = self.batch.old_logp_BT.to(self.logp_BT.dtype)
        return importance_weight(old_BT, self._behaviour, self.mask_BT, correction, self.tally)

    def masked(self, surrogate_BT: Tensor) -> Tensor:
        """The surrogate where the options let it count, plus beta times the KL everywhere."""
        options, loss_BT = self.options, surrogate_BT
        if options.off_policy_mask is not None:
            loss_BT = torch.where(self._near(options.off_policy_mask), loss_BT, 0.0)
        if options.top_entropy < 1:
            loss_BT = torch.where(self.entropy_mask_BT, loss_BT, 0.0)
            self.tally.mean("entropy/chosen", self.entropy_mask_BT.to(loss_BT.dtype))
        return loss_BT + options.beta * self._kl() if options.beta > 0 else loss_BT

    def output(self, loss: Tensor, normalizer: Normalizer) -> LossOutput:
        """The averaged loss minus the entropy bonus, with the metrics."""
        batch = self.batch
        if batch.entropy_BT is not None:
            self.tally.mean("entropy/mean", batch.entropy_BT)
        if (bonus := self._bonus()) > 0:
            assert batch.entropy_BT is not None, "the trainer always has entropies"
            loss = loss - bonus * token_mean(batch.entropy_BT, self.mask_BT, normalizer)
        return LossOutput(loss, self.tally.sums, self.tally.maxima)

    @property
    def _behaviour(self) -> Tensor:
        return self.batch.behaviour_logp_BT.to(self.logp_BT.dtype)

    @torch.no_grad()
    def _near(self, threshold: float) -> Tensor:
        """Off-policy mask (B, T), True for tokens that are kept.

        DeepSeek-AI 2025 (V3.2, equation 9), arXiv:2512.02556. The engine's log-probs are what a
        token was sampled with, so the mean drift of a row has both the updates since then in it
        and the gap between engine and trainer.
        """
        drift_BT = log_ratio(self._behaviour, self.logp_BT, self.mask_BT)
        drift_B1 = row_mean_log_ratio(drift_BT, self.mask_BT)
        kept_BT = (self.advantage_BT >= 0) | (drift_B1 <= threshold)
        self.tally.mean("off_policy/dropped", (~kept_BT).to(drift_BT))
        self.tally.max("off_policy/drift_max", drift_B1.expand_as(drift_BT))
        return kept_BT

    def _kl(self) -> Tensor:
        assert self.batch.ref_logp_BT is not None, "the traits ask for a reference"
        # a masked position may hold anything: compare the policy with itself there
        ref_BT = self.batch.ref_logp_BT.detach().to(self.logp_BT.dtype)
        d_BT = log_ratio(ref_BT, self.logp_BT, self.mask_BT)
        kl_BT = kl_policy_ref(torch.zeros_like(d_BT), d_BT, self.options.kl_estimator)
        self.tally.mean("kl/mean", kl_BT)
        self.tally.max("kl/max", kl_BT)
        return kl_BT * self.ratio_BT if self.options.kl_ratio_corrected else kl_BT

    def _bonus(self) -> float:
        """Weight of the entropy bonus: the option, or the value of its controller in the batch."""
        if self.options.entropy_control is None:
            return self.options.entropy_bonus
        bonus = self.batch.entropy_bonus
        assert bonus is not None, "the traits ask for an entropy bonus"
        weight = torch.tensor(bonus, dtype=torch.float64)
        self.tally.mean("entropy/bonus", weight.to(self.mask_BT.device).expand(self.mask_BT.shape))
        return bonus
