"""What all policy-gradient losses share: batch in, surrogate + KL, reduction, metrics out.

A new loss says what is different about it: its ``surrogate`` per token and its ``reduce``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from rlvr_core.algorithm.ratio import (
    ImportanceCorrection,
    KlKind,
    clipped_surrogate,
    exp_linear,
    importance_weight,
    kl_policy_ref,
    log_ratio,
    row_mean_log_ratio,
)
from rlvr_core.algorithm.reduce import Tally, token_mean
from rlvr_core.api import (
    ComponentConfig,
    EntropyTraits,
    LossBatch,
    LossOutput,
    LossTraits,
    Normalizer,
)

Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class EntropyControl(ComponentConfig):
    """How ``entropy_bonus`` follows the entropy, He et al. 2025 (Skywork-OR1), arXiv:2505.22312."""

    target: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    """Mean entropy of the loss tokens, in nats, that is to be kept: the bonus is applied while the
    update before was at it or below."""
    step: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.005
    """What each update adds to the weight where its entropy is at the target or below, and takes
    from it where it is above."""
    min: Weight = 0.0
    """Least weight."""
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


class RatioConfig(PolicyConfig):
    """Options of losses made of the probability ratio."""

    ratio: Literal["token", "sequence"] = "token"
    """Each token has its own, or the geometric mean over its row."""


class ClipConfig(RatioConfig):
    """Options of losses with a clipped ratio."""

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


@dataclass(frozen=True, slots=True)
class PolicyTerms:
    """Tensors that a surrogate is computed from.

    Attributes:
        logp_BT: Current log-probs; has a graph.
        log_ratio_BT: Current minus old log-probs of each token; 0 where masked.
        ratio_BT: Its exp, or that of its mean over the row, as ``ratio`` says.
        advantage_BT: The advantage of each token: that of its row unless the estimator gives one
            per token.
        mask_BT: True where the loss counts.
        entropy_mask_BT: True where the surrogate counts: ``mask_BT``, or less with ``top_entropy``.
        advantage_B1: The advantage of each row, for a loss with ``whole_rows``.
    """

    logp_BT: Tensor
    log_ratio_BT: Tensor
    ratio_BT: Tensor
    advantage_BT: Tensor
    mask_BT: Tensor
    entropy_mask_BT: Tensor
    advantage_B1: Tensor


class PolicyLoss(ABC):
    """``reduce(weight * surrogate + beta * KL) - entropy_bonus * entropy``.

    The importance weight, the off-policy mask and the choice of tokens by entropy act on the
    surrogate alone. On-policy,
    where ``old`` is ``logp`` detached, the ratio is 1 and carries the gradient of ``logp``: no case
    of its own is needed.

    Attributes:
        options: Those of the config.
    """

    advantage = "group"
    """The advantage estimator of ``advantage: auto``."""
    whole_rows = False
    """Whether the surrogate takes one advantage a row, so that an estimator with one advantage per
    token is refused."""

    def __init__(self, config: PolicyConfig) -> None:
        self._policy = self.options = config
        self._by_row = isinstance(config, RatioConfig) and config.ratio == "sequence"

    @property
    def traits(self) -> LossTraits:
        """Traits that follow from the options."""
        options, control = self._policy, self._policy.entropy_control
        steered = None
        if control is not None:
            steered = EntropyTraits(
                control.target, control.step, control.min, control.max, options.entropy_bonus
            )
        return LossTraits(
            advantage=self.advantage,
            per_token_advantages=not (self.whole_rows or self._by_row),
            needs_reference=options.beta > 0,
            needs_untruncated=None if options.off_policy_mask is None else "off_policy_mask",
            top_entropy=options.top_entropy,
            entropy=steered,
            kl_estimator=options.kl_estimator if options.beta > 0 else None,
        )

    @abstractmethod
    def surrogate(self, terms: PolicyTerms, tally: Tally) -> Tensor:
        """Return the (B, T) loss per token, without KL; may add metrics of its own."""

    def weighed(
        self, loss_BT: Tensor, terms: PolicyTerms, weight_BT: Tensor | None, tally: Tally
    ) -> Tensor:
        """Multiply the surrogate by the importance weights, (B, T) or (B, 1), if there are any."""
        return loss_BT if weight_BT is None else weight_BT * loss_BT

    @abstractmethod
    def reduce(self, loss_BT: Tensor, mask_BT: Tensor, normalizer: Normalizer) -> Tensor:
        """The micro-batch's share of the step's loss, see ``rlvr_core.algorithm.reduce``."""

    def __call__(self, batch: LossBatch, normalizer: Normalizer) -> LossOutput:
        """Return loss and metrics of one micro-batch.

        Args:
            batch: The micro-batch; at least float32 is used inside, whatever its dtype.
            normalizer: Denominators of the whole optimizer step.

        Raises:
            ValueError: If shapes disagree, or something the options need is absent.
        """
        _check_shapes(batch)
        mask_BT = batch.mask_BT
        terms = self._terms(batch)
        tally = Tally(mask_BT)
        tally.mean("ratio/mean", terms.ratio_BT)
        tally.max("ratio/max", terms.ratio_BT)

        loss_BT = self.surrogate(terms, tally)
        old_BT = batch.old_logp_BT.to(terms.logp_BT.dtype)
        behaviour_BT = batch.behaviour_logp_BT.to(terms.logp_BT.dtype)
        weight = importance_weight(
            old_BT, behaviour_BT, mask_BT, self._policy.importance_correction, tally
        )
        loss_BT = self.weighed(loss_BT, terms, weight, tally)
        if self._policy.off_policy_mask is not None:
            kept_BT = self._near(terms, behaviour_BT, self._policy.off_policy_mask, tally)
            loss_BT = torch.where(kept_BT, loss_BT, 0.0)
        if self._policy.top_entropy < 1:
            loss_BT = torch.where(terms.entropy_mask_BT, loss_BT, 0.0)
            tally.mean("entropy/chosen", terms.entropy_mask_BT.to(loss_BT.dtype))
        if self._policy.beta > 0:
            loss_BT = loss_BT + self._policy.beta * self._kl(batch, terms, tally)
        loss = self.reduce(loss_BT, mask_BT, normalizer)
        if batch.entropy_BT is not None:
            tally.mean("entropy/mean", batch.entropy_BT)
        bonus = self._bonus(batch, tally)
        if bonus > 0:
            loss = loss - bonus * _mean_entropy(batch, normalizer)
        return LossOutput(loss, tally.sums, tally.maxima)

    def _terms(self, batch: LossBatch) -> PolicyTerms:
        mask_BT, entropy_mask_BT = batch.mask_BT, batch.mask_BT
        if self._policy.top_entropy < 1:
            if batch.entropy_mask_BT is None:
                raise ValueError("top_entropy is below 1, but the batch has no chosen tokens")
            entropy_mask_BT = batch.entropy_mask_BT & mask_BT
        dtype = torch.promote_types(batch.logp_BT.dtype, torch.float32)
        logp_BT, old_BT = batch.logp_BT.to(dtype), batch.old_logp_BT.detach().to(dtype)
        log_ratio_BT = log_ratio(logp_BT, old_BT, mask_BT)
        level_BT = log_ratio_BT
        if self._by_row:
            level_BT = row_mean_log_ratio(log_ratio_BT, mask_BT).expand_as(log_ratio_BT)
        advantage_BT = batch.advantage_BT
        if advantage_BT is None:
            advantage_BT = batch.advantage_B[:, None].expand_as(logp_BT)
        elif not self.traits.per_token_advantages:
            raise ValueError("the loss takes one advantage a row, and the batch has one a token")
        return PolicyTerms(
            logp_BT=logp_BT,
            log_ratio_BT=log_ratio_BT,
            ratio_BT=exp_linear(level_BT),
            advantage_BT=torch.where(mask_BT, advantage_BT, 0.0).to(dtype),
            mask_BT=mask_BT,
            entropy_mask_BT=entropy_mask_BT,
            advantage_B1=batch.advantage_B.to(dtype)[:, None],
        )

    @torch.no_grad()
    def _near(
        self, terms: PolicyTerms, behaviour_BT: Tensor, threshold: float, tally: Tally
    ) -> Tensor:
        """Off-policy mask (B, T), True for tokens that are kept.

        DeepSeek-AI 2025 (V3.2, equation 9), arXiv:2512.02556. The engine's log-probs are what a
        token was sampled with, so the mean drift of a row has both the updates since then in it
        and the gap between engine and trainer.
        """
        drift_BT = log_ratio(behaviour_BT, terms.logp_BT, terms.mask_BT)
        drift_B1 = row_mean_log_ratio(drift_BT, terms.mask_BT)
        kept_BT = (terms.advantage_BT >= 0) | (drift_B1 <= threshold)
        tally.mean("off_policy/dropped", (~kept_BT).to(drift_BT))
        tally.max("off_policy/drift_max", drift_B1.expand_as(drift_BT))
        return kept_BT

    def _bonus(self, batch: LossBatch, tally: Tally) -> float:
        """Weight of the entropy bonus: the option, or the value of its controller in the batch."""
        if self._policy.entropy_control is None:
            return self._policy.entropy_bonus
        if batch.entropy_bonus is None:
            raise ValueError("entropy_control is set, but the batch has no entropy_bonus")
        weight = torch.tensor(batch.entropy_bonus, dtype=torch.float64)
        tally.mean("entropy/bonus", weight.to(batch.mask_BT.device).expand(batch.mask_BT.shape))
        return batch.entropy_bonus

    def _kl(self, batch: LossBatch, terms: PolicyTerms, tally: Tally) -> Tensor:
        if batch.ref_logp_BT is None:
            raise ValueError("beta is above 0, but the batch has no reference log-probs")
        # A masked position may hold anything: compare the policy with itself there.
        ref_BT = batch.ref_logp_BT.detach().to(terms.logp_BT.dtype)
        d_BT = log_ratio(ref_BT, terms.logp_BT, terms.mask_BT)
        kl_BT = kl_policy_ref(torch.zeros_like(d_BT), d_BT, self._policy.kl_estimator)
        tally.mean("kl/mean", kl_BT)
        tally.max("kl/max", kl_BT)
        return kl_BT * terms.ratio_BT if self._policy.kl_ratio_corrected else kl_BT


class ClippedPolicyLoss(PolicyLoss):
    """A policy loss whose surrogate is PPO's clipped one."""

    def __init__(self, config: ClipConfig) -> None:
        super().__init__(config)
        self._clip = config

    def surrogate(self, terms: PolicyTerms, tally: Tally) -> Tensor:
        """-min(min(r, delta) A, clip(r) A)."""
        clipped = clipped_surrogate(
            terms.ratio_BT,
            terms.advantage_BT,
            low=self._clip.clip_low,
            high=self._clip.clip_high,
            delta=self._clip.delta,
        )
        tally.mean("clip_fraction/low", clipped.low_BT.to(terms.ratio_BT.dtype))
        tally.mean("clip_fraction/high", clipped.high_BT.to(terms.ratio_BT.dtype))
        return clipped.loss_BT


def _mean_entropy(batch: LossBatch, normalizer: Normalizer) -> Tensor:
    if batch.entropy_BT is None:
        raise ValueError("entropy_bonus is above 0, but the batch has no entropy")
    return token_mean(batch.entropy_BT, batch.mask_BT, normalizer)


def _check_shapes(batch: LossBatch) -> None:
    rows_tokens = batch.logp_BT.shape
    shapes = {
        "old_logp_BT": batch.old_logp_BT.shape,
        "behaviour_logp_BT": batch.behaviour_logp_BT.shape,
        "mask_BT": batch.mask_BT.shape,
    }
    for name in ("ref_logp_BT", "entropy_BT", "entropy_mask_BT", "advantage_BT"):
        if getattr(batch, name) is not None:
            shapes[name] = getattr(batch, name).shape
    wrong = [f"{name} {tuple(shape)}" for name, shape in shapes.items() if shape != rows_tokens]
    if batch.advantage_B.shape != rows_tokens[:1]:
        wrong.append(f"advantage_B {tuple(batch.advantage_B.shape)}")
    if wrong:
        raise ValueError(f"does not fit logp_BT {tuple(rows_tokens)}: {', '.join(wrong)}")
