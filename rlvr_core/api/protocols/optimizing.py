"""What changes the weights: optimizers and learning-rate schedules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import torch
    from torch import Tensor


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
        """Share of the peak learning rate.

        Args:
            progress: 0 at the first step after the warm-up, 1 at the last step of the run.
        """
