"""Distillation on the policy's own completions: towards a teacher's most likely next tokens."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from rlvr_core.algorithm.reduce import Tally, row_mean
from rlvr_core.api import (
    ComponentConfig,
    LossBatch,
    LossOutput,
    LossTraits,
    Metric,
    Normalizer,
    TeacherTraits,
)

_LEAST = -1e4


class DistillConfig(ComponentConfig):
    """Options of every distillation."""

    top_k: Annotated[int, Field(gt=0)] = 20
    """Number of the teacher's most likely tokens to compare at each position."""
    divergence: Literal["jsd", "kl"] = "jsd"
    """``jsd``: with M = alpha q + (1 - alpha) p, alpha KL(q || M) + (1 - alpha) KL(p || M), q the
    teacher and p the policy; ``kl``: KL(q || p), q brought to sum 1 over its tokens."""
    alpha: Annotated[float, Field(gt=0, lt=1)] = 0.9
    """Share of the teacher in ``jsd``'s mixture."""


class Distillation:
    """A divergence over the teacher's ``top_k`` tokens, mean over rows of the mean over tokens."""

    reports = (
        Metric(
            "distill/divergence", "Mean divergence from the teacher at the loss tokens.", "nats"
        ),
        Metric("distill/covered", "Mean probability of the teacher's compared tokens.", "share"),
    )

    def __init__(self, config: DistillConfig, teacher: TeacherTraits) -> None:
        self._distill = config
        self.traits = LossTraits(needs_old=False, teacher=teacher)

    def __call__(self, batch: LossBatch, normalizer: Normalizer) -> LossOutput:
        """Loss and metrics of one micro-batch.

        Raises:
            ValueError: If the batch lacks the teacher's log-probs or the policy's beside them.
        """
        if batch.teacher_logp_BTK is None or batch.student_logp_BTK is None:
            raise ValueError("the batch holds no teacher to learn from")
        # a token that cannot occur has -inf, which times its probability is NaN
        teacher_BTK = batch.teacher_logp_BTK.detach().clamp(min=_LEAST)
        student_BTK = batch.student_logp_BTK.clamp(min=_LEAST)
        if self._distill.divergence == "kl":
            loss_BT = kl_over_top(teacher_BTK, student_BTK)
        else:
            loss_BT = jsd_over_top(teacher_BTK, student_BTK, self._distill.alpha)
        tally = Tally(batch.mask_BT)
        tally.mean("distill/divergence", loss_BT)
        tally.mean("distill/covered", teacher_BTK.exp().sum(-1))
        loss = row_mean(loss_BT, batch.mask_BT, normalizer)
        return LossOutput(loss, tally.sums, tally.maxima)


def kl_over_top(teacher_K: Tensor, student_K: Tensor) -> Tensor:
    """Sum over K of q (log q - log p), q brought to sum 1, p as it is; log-probs in, (...) out."""
    log_q_K = teacher_K.log_softmax(-1)
    return (log_q_K.exp() * (log_q_K - student_K)).sum(-1)


def jsd_over_top(teacher_K: Tensor, student_K: Tensor, alpha: float) -> Tensor:
    """The generalised Jensen-Shannon divergence over K, Agarwal et al. 2023, arXiv:2306.13649.

    Both are left as they are, so that it is 0 exactly where they agree on the K tokens, and never
    negative.
    """
    q_K, p_K = teacher_K.exp(), student_K.exp()
    # of the log-probs: where both probabilities are below the least number, M would be 0
    log_m_K = torch.logaddexp(teacher_K + math.log(alpha), student_K + math.log1p(-alpha))
    of_teacher = (q_K * (teacher_K - log_m_K)).sum(-1)
    return alpha * of_teacher + (1 - alpha) * (p_K * (student_K - log_m_K)).sum(-1)


class GKD(Distillation):
    """On-policy distillation from a frozen, usually larger model of the same vocabulary."""

    class Config(DistillConfig):
        """Options of GKD."""

        teacher: str
        """Folder or hub id of the teacher."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, TeacherTraits(config.top_k, model=config.teacher))


class OPSD(Distillation):
    """On-policy self-distillation: the policy itself is the teacher, with a prompt that tells more.

    The teacher has the current weights and no gradient.
    """

    class Config(DistillConfig):
        """Options of OPSD."""

        prompt: str
        """The teacher's prompt, as text with ``{prompt}`` and ``{field}`` of the problem's spec in
        it; ``{{`` and ``}}`` are braces."""
        top_k: Annotated[int, Field(gt=0)] = 32
        """Number of the teacher's most likely tokens to compare at each position."""
        divergence: Literal["jsd", "kl"] = "kl"
        """``jsd`` or ``kl``, as in ``gkd``."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, TeacherTraits(config.top_k, prompt=config.prompt))
