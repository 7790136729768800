"""What of the policy is trained: all of it, or matrices put beside weights that stay."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from rlvr_core.api.protocols.engine import Adapter


class ModelAdapter(Protocol):
    """How a policy is made trainable, saved, loaded and shown to engines.

    Where its tensors are sharded (FSDP), ``merged_tensors`` and ``adapter`` are collectives: every
    process has to call them.
    """

    @property
    def keeps_base(self) -> bool:
        """Whether the model that the run began with is still there, below what is trained."""

    def check_installed(self) -> None:
        """Refuse early what a library is missing for.

        Raises:
            MachineError: If it does not import.
        """

    def install(
        self,
        model: Any,
        section: Any,
        *,
        seed: int,
        compute: torch.dtype,
        path: str,
        revision: str | None,
        where: str,
    ) -> None:
        """Put what is trained into a model, in place, and freeze the rest.

        Args:
            model: The policy, float32.
            section: The config's section for it.
            seed: Of what begins at random.
            compute: Dtype that frozen weights are kept in.
            path: Where the model came from, for the file that is saved.
            revision: Its hub revision.
            where: Where the section was written, for messages.

        Raises:
            ConfigError: If the section does not fit the model.
        """

    def trained_tensors(self, model: Any) -> dict[str, Tensor]:
        """What a checkpoint holds, by name; the tensors share the model's memory."""

    def merged_tensors(self, model: Any) -> Iterator[tuple[str, Tensor]]:
        """Full tensors of the whole policy by Hugging Face name, a tied one once; no graph."""

    def adapter(self, model: Any) -> Adapter:
        """What is trained as a file of its own, for engines that take it beside the base.

        Raises:
            ValueError: If there is no such thing: the policy is trained whole.
        """

    def save(
        self, folder: Path, model: Any, tensors: dict[str, Tensor], dtype: torch.dtype
    ) -> None:
        """Write the policy into a checkpoint's folder.

        Args:
            folder: An existing folder.
            model: The policy.
            tensors: Its ``trained_tensors``, whole.
            dtype: Of exported weights.
        """

    def load(self, folder: Path, model: Any) -> dict[str, Tensor]:
        """What ``save`` wrote, by the names of ``trained_tensors``.

        Raises:
            ValueError: If it was trained on top of other weights.
        """

    def dropout(self, model: Any, *key: int) -> AbstractContextManager[None]:
        """Within it the dropout of what is trained is at work, drawing what ``key`` decides."""

    def add_reference(self, model: Any) -> None:
        """Make room for a reference that moves; only where ``keeps_base``."""

    def as_reference(self, model: Any, *, moving: bool) -> AbstractContextManager[None]:
        """Within it the model is the reference: the one of ``add_reference``, or the base.

        No graph of the policy may be alive. Only where ``keeps_base``.
        """

    def reference_pairs(self, model: Any) -> Iterator[tuple[str, Tensor, Tensor]]:
        """Name, the moving reference's tensor and the policy's."""

    def is_linear(self, module: nn.Module) -> bool:
        """Whether a module computes a linear layer of ``weight_of``, and nothing besides."""

    def weight_of(self, module: Any) -> Tensor:
        """The weight that such a layer computes with; differentiable."""
