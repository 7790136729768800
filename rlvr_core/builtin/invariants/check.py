"""What every invariant is: a measured value with a band, and the remedy for its causes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from rlvr_core.api import Metric, RunError
from rlvr_core.api.services import print_line

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import torch
    from torch import Tensor

    from rlvr_core.api import (
        EvalFinished,
        Group,
        GroupsScored,
        Json,
        Loss,
        LossBatch,
        LossComputed,
        LossOutput,
        MicroBatch,
        Normalizer,
        RunStarted,
        StepFinished,
        WeightSource,
    )


PRINTED = partial(print_line, stderr=True)
"""Tells the user where nothing records it: outside of a run."""


class Trainer(Protocol):
    """The parts of the policy's trainer that invariants look at."""

    model: Any
    reference: Any
    objective: Any
    optimizer: Any
    precision: Any
    train: Any
    ranks: Any
    parallel: Any
    entropy: Mapping[str, Any]
    advantage_scale: Mapping[str, float]
    temperature: float

    @property
    def reward_weights(self) -> Callable[[int], Sequence[float]]:
        """The weight of each reward at a step."""

    def token_scores(
        self, groups: Sequence[Group], compute: Callable[..., tuple[Tensor, ...]]
    ) -> Tensor:
        """See ``PolicyTrainer.token_scores``."""


@dataclass(slots=True)
class Seen:
    """A micro-batch as its losses saw it, without graphs.

    Attributes:
        micro_batch: The rows of the forward pass.
        normalizer: Denominators of the update.
        losses: Each loss with its batch and output.
        gradient_BT: Gradient that arrived at the log-probs; None before the backward pass.
        entropy_gradient_BT: The same at the entropies; None where none arrived.
        student_gradients: The same at the log-probs beside a teacher's, by place of the loss.
    """

    micro_batch: MicroBatch
    normalizer: Normalizer
    losses: list[tuple[Loss, LossBatch, LossOutput]]
    gradient_BT: Tensor | None = None
    entropy_gradient_BT: Tensor | None = None
    student_gradients: dict[int, Tensor] = field(default_factory=dict)

    @property
    def batch(self) -> LossBatch:
        """What the first loss was given."""
        return self.losses[0][1]


@dataclass(slots=True)
class StepView:
    """The step in progress, as this process sees it.

    Attributes:
        trainer: The policy's trainer.
        groups: The groups that the step trains on.
        step: The step, from 0.
        version: Policy version at its start.
        update: Updates before the current one.
        seen: Micro-batches of completions of the current update.
        first_pass: Whether the current update reads its rows for the first time in the step.
        places: Places of the groups that earlier updates of the step have read.
        known_fresh: What ``fresh`` found, by place.
        known_rows: What ``rows_of`` found in the micro-batches of the current update.
        told: What the invariants measured, for the step's line.
    """

    trainer: Trainer
    groups: Sequence[Group]
    step: int
    version: int
    update: int = 0
    seen: list[Seen] = field(default_factory=list)
    first_pass: bool = True
    places: set[int] = field(default_factory=set)
    known_fresh: dict[int, bool] = field(default_factory=dict)
    known_rows: Any = None
    told: Mapping[str, float] = field(default_factory=dict)

    def fresh(self, place: int) -> bool:
        """Whether all completions of a group were sampled under the weights of the step's start."""
        if place not in self.known_fresh:
            group = self.groups[place]
            self.known_fresh[place] = group.version == self.version and not any(
                set(member.completion.token_versions) - {self.version} for member in group.members
            )
        return self.known_fresh[place]


class Invariant:
    """One invariant; each method does nothing unless overridden.

    ``share`` returns what a process contributes to an update's check, ``judge`` is called with the
    contributions of all processes, in each of them.
    """

    id: ClassVar[str]
    phase: ClassVar[str]
    reports: ClassVar[tuple[Metric, ...]] = ()

    def run_started(self, event: RunStarted) -> None:
        """The first step is about to be taken, or the first after a resume."""

    def on_groups(self, event: GroupsScored) -> None:
        """The groups of a step, dropped ones included, have their rewards."""

    def begin(self, view: StepView) -> None:
        """The step is about to train."""

    def computed(self, view: StepView, event: LossComputed) -> None:
        """The losses of a micro-batch of completions have their graph; raises ``RunError``."""

    def given(self, view: StepView, event: LossComputed) -> None:
        """The losses of a micro-batch of given answers have their graph; raises ``RunError``."""

    def share(self, view: StepView) -> object:
        """Return this process's contribution, just before an update."""
        return None

    def judge(self, view: StepView, shares: Sequence[Any]) -> None:
        """Check an update before it is applied; raises ``RunError``."""

    def updated(self, view: StepView, grad_norm: float, *, applied: bool) -> None:
        """An update was applied or skipped; raises ``RunError``."""

    def end(self, view: StepView) -> Mapping[str, float]:
        """All updates of the step are done; returns numbers for its metrics."""
        return {}

    def finished(self, event: StepFinished) -> None:
        """The line of the step is complete; raises ``RunError``."""

    def evaluated(self, event: EvalFinished) -> None:
        """An evaluation is over, and recorded in process 0; raises ``RunError``."""

    def weights_loaded(self, step: int, version: int, source: WeightSource) -> None:
        """The engine says that it took the weights of this version; raises ``RunError``."""

    def checkpoint_written(self, folder: Path) -> None:
        """The files of a checkpoint are written, and not sealed yet; raises ``RunError``."""

    def state_dict(self) -> dict[str, Json]:
        """Return what a checkpoint must hold."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""

    def fault(self, step: int, what: str, *remedy: str, switch: str = "") -> RunError:
        """Return the error of this invariant.

        Args:
            step: The step, from 0.
            what: What was measured, with its band.
            remedy: What to do, by the likely cause.
            switch: What turns the guard off or widens it, if not ``guards.ID: false``.
        """
        off = switch or f"guards.{self.id}: false turns the guard off"
        return RunError(
            f"guard {self.id}: {what}",
            where=f"step {step + 1}",
            remedy=(*remedy, f"see rlvr docs guards#{self.id}; {off}"),
        )


def compute_dtype(trainer: Trainer) -> torch.dtype:
    """Return the dtype of the trainer's forward pass."""
    dtype: torch.dtype = trainer.precision.compute
    return dtype
