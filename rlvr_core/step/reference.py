"""The reference of the KL term: the model the run began with, or one that follows the policy.

It follows in one way: after every ``sync_every`` updates,
``reference = (1 - ema) * reference + ema * policy``. An ``ema`` of 1 copies; a smaller one makes it
a moving average.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rlvr_core.parallel.model_adapter import adapter_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from rlvr_core.config.model import ReferenceSection


class Reference(ABC):
    """The reference model of the KL term.

    Args:
        section: When the reference moves.

    Attributes:
        own_model: The model, if it is not the policy's own.
    """

    own_model: PreTrainedModel | None = None

    def __init__(self, section: ReferenceSection) -> None:
        self.section = section

    @abstractmethod
    def active(self) -> AbstractContextManager[PreTrainedModel]:
        """The model to run; it is the reference within the block, where no graph is alive."""

    @abstractmethod
    def named(self) -> dict[str, Tensor]:
        """Return the tensors of a checkpoint by name; none when the reference never moves."""

    @abstractmethod
    def _pairs(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Pairs of the reference's tensor and the policy's."""

    def follow(self, version: int) -> bool:
        """Sync if it is due after the update that made ``version``; return whether it did.

        Under LoRA, a moving average is one of the adapter's matrices.
        """
        due = self.section.sync_every is not None and version % self.section.sync_every == 0
        if due:
            for held, new in self._pairs():
                _mix(held, new, self.section.ema)
        return due

    def metrics(self, version: int) -> dict[str, float]:
        """Return metrics of the reference for the step that begins at ``version``."""
        every = self.section.sync_every
        return {} if every is None else {"reference/version": version - version % every}


class SeparateModel(Reference):
    """A model of its own: the reference of a policy that is trained as a whole.

    Args:
        model: It; no gradients.
        policy: The policy, the same architecture.
        section: When it moves.
    """

    def __init__(
        self, model: PreTrainedModel, policy: PreTrainedModel, section: ReferenceSection
    ) -> None:
        super().__init__(section)
        self.model, self.own_model, self.policy = model, model, policy

    @contextlib.contextmanager
    def active(self) -> Iterator[PreTrainedModel]:
        """See ``Reference``."""
        yield self.model

    def named(self) -> dict[str, Tensor]:
        """See ``Reference``."""
        return dict(self.model.named_parameters()) if self.section.sync_every else {}

    def _pairs(self) -> Iterator[tuple[Tensor, Tensor]]:
        return zip(self.model.parameters(), self.policy.parameters(), strict=True)


class UnderAdapter(Reference):
    """The policy's own weights without its adapter, or with a second one that follows it.

    Args:
        policy: The policy, with LoRA.
        section: When it moves.
    """

    def __init__(self, policy: PreTrainedModel, section: ReferenceSection) -> None:
        super().__init__(section)
        self.policy = policy
        self._adapter = adapter_of(policy)
        if section.sync_every:
            self._adapter.add_reference(policy)

    @contextlib.contextmanager
    def active(self) -> Iterator[PreTrainedModel]:
        """See ``Reference``."""
        with self._adapter.as_reference(self.policy, moving=bool(self.section.sync_every)):
            yield self.policy

    def named(self) -> dict[str, Tensor]:
        """See ``Reference``."""
        if not self.section.sync_every:
            return {}
        return {name: held for name, held, _ in self._adapter.reference_pairs(self.policy)}

    def _pairs(self) -> Iterator[tuple[Tensor, Tensor]]:
        return ((held, new) for _, held, new in self._adapter.reference_pairs(self.policy))


@torch.no_grad()
def _mix(held: Tensor, new: Tensor, mix: float) -> None:
    if mix == 1.0:
        held.copy_(new)
    else:
        held.lerp_(new.to(held.dtype), mix)
