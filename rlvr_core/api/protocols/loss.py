"""What a loss is given and gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor

    from rlvr_core.api.traits import LossTraits


@dataclass(frozen=True, slots=True)
class Normalizer:
    """Denominators of one optimizer step, over all ranks and micro-batches.

    Attributes:
        rows: Rows with at least one loss token.
        tokens: Loss tokens.
        max_completion_tokens: The run's cap on completion length.
        world_size: Processes whose gradients are averaged; losses are multiplied by it.
    """

    rows: int
    tokens: int
    max_completion_tokens: int
    world_size: int = 1


@dataclass(frozen=True, slots=True)
class LossBatch:
    """What a loss sees of one micro-batch. B rows (completions), T completion positions.

    Attributes:
        logp_BT: Current log-probs of the sampled tokens at the sampling temperature; has a graph.
        old_logp_BT: The trainer's log-probs at the start of the step, before its first update (the
            proximal policy of decoupled PPO); no graph.
        behaviour_logp_BT: The engine's log-probs when it sampled the tokens, under whatever weights
            it then had; no graph.
        ref_logp_BT: The reference's, or None when no loss asked for it.
        mask_BT: True where the loss counts.
        advantage_B: One advantage a row; the mean over its loss tokens where there is
            ``advantage_BT``.
        entropy_BT: Entropy of the policy's distribution at each token, in nats; has a graph. None
            when it is not known.
        chosen_BT: True at the loss tokens of highest entropy, for a loss whose ``top_entropy`` is
            below 1; else None.
        teacher_logp_BTK: The teacher's log-probs of its K most likely tokens; None when no loss
            learns from one.
        student_logp_BTK: The policy's log-probs of the same tokens; has a graph.
        entropy_bonus: Weight of this update's entropy bonus, for a loss whose bonus is steered;
            else None.
        advantage_BT: One advantage a token, 0 outside ``mask_BT``; None when the estimator gives
            one a completion.
        group_B: Place of each row's group in the step: rows of one problem have the same number.
    """

    logp_BT: Tensor
    old_logp_BT: Tensor
    behaviour_logp_BT: Tensor
    ref_logp_BT: Tensor | None
    mask_BT: Tensor
    advantage_B: Tensor
    entropy_BT: Tensor | None = None
    chosen_BT: Tensor | None = None
    teacher_logp_BTK: Tensor | None = None
    student_logp_BTK: Tensor | None = None
    entropy_bonus: float | None = None
    advantage_BT: Tensor | None = None
    group_B: Tensor | None = None


@dataclass(frozen=True, slots=True)
class LossOutput:
    """A micro-batch's share of the step's loss, and metrics.

    Attributes:
        loss: Scalar; summed over micro-batches and averaged over ranks it is the step's loss.
        sums: Metric name to (sum, count) over this micro-batch; the step's value is the ratio of
            the totals. A metric that was not computed is absent.
        maxima: Metric name to this micro-batch's maximum.
    """

    loss: Tensor
    sums: Mapping[str, tuple[Tensor, Tensor]]
    maxima: Mapping[str, Tensor]


@runtime_checkable
class Loss(Protocol):
    """A pure tensor function; it never sees gradient accumulation or other ranks."""

    @property
    def traits(self) -> LossTraits:
        """What it needs in its batch."""

    def __call__(self, batch: LossBatch, normalizer: Normalizer) -> LossOutput:
        """Loss and metrics of one micro-batch."""
