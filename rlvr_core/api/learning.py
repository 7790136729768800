"""Protocols of advantage estimators, losses, optimizers and schedules, and their data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from pathlib import Path

    import torch
    from numpy import bool_, float64, int64
    from numpy.typing import NDArray
    from torch import Tensor

    from rlvr_core.api.engines import WeightSource
    from rlvr_core.api.forward import MicroBatch
    from rlvr_core.api.rollouts import Group, Judged
    from rlvr_core.api.traits import AdvantageTraits, LossTraits


@dataclass(frozen=True, slots=True)
class JudgedStep:
    """The judged groups of one step, all ranks. N completions in the order of the groups.

    The arrays hold what most estimators need; everything else (verdicts with their parts and spans,
    problem ids and tags, policy versions) is in ``groups``.

    Attributes:
        groups: The groups that the step trains on. A conversation in branches is one sequence
            here: its own tokens, then those of its branches (``Completion.joined``).
        group_N: Place of each completion's group in ``groups``.
        reward_N: The weighted sum of each completion's scores; NaN if it could not be scored.
        score_NK: Score of each of K rewards; NaN where there is none.
        weights: Weight of each of the K rewards at this step.
        kl_N: Per completion, log policy - log reference of each of its tokens at the step's start,
            0 where the loss mask is off; None unless the estimator's traits ask for it.
    """

    groups: tuple[Group, ...]
    group_N: NDArray[int64]
    reward_N: NDArray[float64]
    score_NK: NDArray[float64]
    weights: tuple[float, ...]
    kl_N: tuple[NDArray[float64], ...] | None = None

    @property
    def members(self) -> list[Judged]:
        """The N judged completions, in the order of the arrays."""
        return [member for group in self.groups for member in group.members]

    @property
    def scorable_N(self) -> NDArray[bool_]:  # noqa: N802
        """True where a completion has a reward."""
        scorable: NDArray[bool_] = self.reward_N == self.reward_N
        return scorable


@dataclass(frozen=True, slots=True)
class AdvantageOutput:
    """The advantages of a step.

    Attributes:
        advantages: One number per completion, shape (N,); or, with ``traits.per_token``, N
            sequences of one number per token. Values for completions without a reward and for
            tokens outside the loss mask are ignored.
        metrics: Numbers for the step's line, recorded as ``advantage/<name>``.
    """

    advantages: Sequence[float] | Sequence[Sequence[float]] | NDArray[float64] | Any
    metrics: Mapping[str, float] = field(default_factory=dict)


@runtime_checkable
class AdvantageEstimator(Protocol):
    """A pure function of a step's judged groups; the same in every process."""

    @property
    def traits(self) -> AdvantageTraits:
        """The estimator's traits."""

    def __call__(self, step: JudgedStep) -> AdvantageOutput:
        """Return the advantages of every completion of the step."""


@dataclass(frozen=True, slots=True)
class Normalizer:
    """Denominators of one optimizer step, over all ranks and micro-batches.

    Attributes:
        rows: Completions with at least one loss token: the rows of a conversation that has branches
            count as one.
        tokens: Loss tokens.
        max_completion_tokens: The run's cap on completion length.
        world_size: Processes whose gradients are averaged; losses are multiplied by it.
        share_B: For the rows of the micro-batch at hand, the share that each has of its
            completion's loss tokens, by which a mean over the row's tokens is to be multiplied;
            None is 1 for all.
    """

    rows: int
    tokens: int
    max_completion_tokens: int
    world_size: int = 1
    share_B: Tensor | None = None


@dataclass(frozen=True, slots=True)
class LossBatch:
    """The micro-batch that a loss is given. B rows (completions), T completion positions.

    Attributes:
        logp_BT: Current log-probs of the sampled tokens at the sampling temperature; has a graph.
        old_logp_BT: The trainer's log-probs at the start of the step, before its first update (the
            proximal policy of decoupled PPO); no graph.
        behaviour_logp_BT: The engine's log-probs when it sampled the tokens, under whatever weights
            it then had; no graph.
        ref_logp_BT: The reference's, or None when no loss asked for it.
        mask_BT: True where the loss counts.
        advantage_B: One advantage a row; the mean over its completion's loss tokens where there is
            ``advantage_BT``.
        entropy_BT: Entropy of the policy's distribution at each token, in nats; has a graph. None
            when it is not known.
        entropy_mask_BT: True at the loss tokens of highest entropy, for a loss whose
            ``top_entropy`` is below 1; else None.
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
    entropy_mask_BT: Tensor | None = None
    teacher_logp_BTK: Tensor | None = None
    student_logp_BTK: Tensor | None = None
    entropy_bonus: float | None = None
    advantage_BT: Tensor | None = None
    group_B: Tensor | None = None

    def detached(self) -> LossBatch:
        """Return the same numbers without graphs."""
        known = {
            name: tensor.detach()
            for name in ("logp_BT", "entropy_BT", "student_logp_BTK")
            if (tensor := getattr(self, name)) is not None
        }
        return replace(self, **known)


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


@dataclass(frozen=True, slots=True)
class LossComputed:
    """The losses of one micro-batch, with their inputs, before the backward pass.

    Attributes:
        micro_batch: The rows of the forward pass.
        normalizer: Denominators of the update.
        losses: Each loss with the batch it was given and what it returned.
        given: Whether the rows are given answers, not completions.
    """

    micro_batch: MicroBatch
    normalizer: Normalizer
    losses: Sequence[tuple[Loss, LossBatch, LossOutput]]
    given: bool


class StepObserver:
    """Sees what a step computes, in every process; an exception ends the run before the update.

    Each method does nothing unless overridden.
    """

    def step_begins(self, groups: Sequence[Group], step: int, version: int) -> None:
        """The step is about to train on these groups."""

    def loss_computed(self, event: LossComputed) -> None:
        """A micro-batch that counts has its losses; its backward pass comes next."""

    def update_begins(self) -> None:
        """The gradient of an update is complete, and the weights are still the old ones."""

    def update_ended(self, grad_norm: float, *, applied: bool) -> None:
        """The update was applied, or skipped because the gradient was not finite."""

    def weights_loaded(self, version: int, source: WeightSource) -> None:
        """The engine of this process says that it took the weights of this version."""

    def checkpoint_written(self, folder: Path) -> None:
        """The files of a checkpoint are written, and not sealed yet.

        Called in the process that writes them, in a thread beside the steps that follow.
        """

    def step_ends(self) -> Mapping[str, float]:
        """Called after all updates of the step; returns numbers for its metrics."""
        return {}


@runtime_checkable
class Loss(Protocol):
    """A pure tensor function; it never sees gradient accumulation or other ranks."""

    @property
    def traits(self) -> LossTraits:
        """The loss's traits."""

    def __call__(self, batch: LossBatch, normalizer: Normalizer) -> LossOutput:
        """Return loss and metrics of one micro-batch."""


@dataclass(frozen=True, slots=True)
class TrainedParameter:
    """A parameter that an optimizer is to update.

    Attributes:
        name: Its name in the model.
        tensor: The parameter, float32.
        hidden_matrix: Whether it is a matrix between two hidden layers: two-dimensional, and
            neither an embedding nor the LM head.
    """

    name: str
    tensor: Tensor
    hidden_matrix: bool


@runtime_checkable
class OptimizerBuilder(Protocol):
    """A component of kind ``optimizer``: makes a torch optimizer. Its traits: ``OptimizerTraits``.

    Everything around an update is the step's, whatever the optimizer: float32 master weights, the
    loss scale of float16, the norm that the whole gradient is clipped to, the update that is
    skipped when a gradient is not finite, and the learning rate of each step.
    """

    def build(self, parameters: Sequence[TrainedParameter], lr: float) -> torch.optim.Optimizer:
        """Make the optimizer.

        Before each step ``lr`` of every parameter group is set to the scheduled learning rate,
        times ``lr_scale`` of the group where it has one. All that it remembers must be in
        ``state[parameter]``, as tensors and whole numbers: this is what a checkpoint holds.

        Args:
            parameters: What is trained, in a fixed order.
            lr: The peak learning rate.

        Raises:
            MachineError: If a package that it needs is missing.
        """


@runtime_checkable
class Schedule(Protocol):
    """A component of kind ``schedule``: how the learning rate goes on after the warm-up.

    A pure function, so that resuming needs no state and a run can be lengthened.
    """

    def __call__(self, progress: float) -> float:
        """Return the learning rate as a share of its peak.

        Args:
            progress: 0 at the first step after the warm-up, 1 at the last step of the run.
        """
