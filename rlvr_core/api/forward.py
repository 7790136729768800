"""Faster ways to compute models of some architecture, and which part of a policy is trained."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from rlvr_core.api.engines import Adapter


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Rows of one forward pass; everything is padded on the right.

    Dimensions: S prompts, P prompt positions, B rows, T completion positions.

    Attributes:
        prompt_ids_SP: Distinct prompts.
        prompt_len_S: Their lengths.
        prompt_of_row_B: Index of each row's prompt.
        completion_ids_BT: Completions.
        completion_len_B: Their lengths.
        valid_BT: True where there is a token.
        mask_BT: True where the loss counts; implies ``valid_BT``.
        behaviour_logp_BT: Log-probs from sampling, 0 on padding.
        advantage_B: One a row.
        group_B: Place of each row's group in the step.
        row_index_B: Position of each row in what ``micro_batches`` was given.
        advantage_BT: One a token, 0 on padding; None where rows have one for all their tokens.
        share_B: The share that each row has of its completion's loss tokens; None is 1 for all.
        teacher_batch: The same completions behind the teacher's own prompts, where it has such.
        on_host: The same on the CPU; None where this is on the CPU.
    """

    prompt_ids_SP: Tensor
    prompt_len_S: Tensor
    prompt_of_row_B: Tensor
    completion_ids_BT: Tensor
    completion_len_B: Tensor
    valid_BT: Tensor
    mask_BT: Tensor
    behaviour_logp_BT: Tensor
    advantage_B: Tensor
    group_B: Tensor
    row_index_B: Tensor
    advantage_BT: Tensor | None = None
    share_B: Tensor | None = None
    teacher_batch: MicroBatch | None = None
    on_host: MicroBatch | None = None

    @property
    def host(self) -> MicroBatch:
        """This micro-batch on the CPU, where counting needs no wait for a device."""
        return self if self.on_host is None else self.on_host

    def prompt_places(self) -> Tensor:
        """(S, P), True where a prompt has a token."""
        return _before(self.prompt_len_S, self.prompt_ids_SP.shape[1])

    def fed_lengths(self) -> Tensor:
        """(B,) tokens of each completion that a model is given: the last predicts nothing."""
        return (self.completion_len_B - 1).clamp(min=0)

    def fed_places(self) -> Tensor:
        """(B, T - 1), True where there is such a token."""
        return _before(self.fed_lengths(), self.completion_ids_BT.shape[1] - 1)

    def loss_places(self) -> Tensor:
        """(N,) place of each loss token in the flat (B, T), on this micro-batch's device."""
        return self.send(self.host.mask_BT.flatten().nonzero()[:, 0])

    def send(self, tensor: Tensor) -> Tensor:
        """A tensor of the CPU on this micro-batch's device, which is not waited for."""
        sent: Tensor = _sent(tensor, self.mask_BT.device)
        return sent

    def to(self, device: torch.device | str) -> MicroBatch:
        """Return this micro-batch on another device."""
        parts: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        moved: dict[str, Any] = {
            name: None if part is None else _sent(part, device) for name, part in parts.items()
        }
        moved["on_host"] = None if moved["mask_BT"].device.type == "cpu" else self.host
        return MicroBatch(**moved)


def _sent(part: Any, device: torch.device | str) -> Any:
    """A tensor, or a micro-batch, on a device; a GPU copies from pinned memory by itself."""
    import torch

    if isinstance(part, MicroBatch) or torch.device(device).type != "cuda" or part.is_cuda:
        return part.to(device)
    return part.pin_memory().to(device, non_blocking=True)


def _before(length_B: Tensor, width: int) -> Tensor:
    """(B, width), True at the first ``length_B`` positions of each row."""
    import torch

    return torch.arange(width, device=length_B.device) < length_B[:, None]


class ForwardPath(Protocol):
    """A model on a faster path, with its own parameters."""

    def predict(
        self, batch: MicroBatch, module: Any, *, dtype: torch.dtype, compiled: bool
    ) -> Tensor | None:
        """Compute what predicts each loss token of a micro-batch; differentiable.

        Args:
            batch: The rows, on the model's device.
            module: The module to compute: the model's body without its LM head (hidden states), or
                the model itself (logits), if its head is more than a linear layer.
            dtype: Compute precision.
            compiled: Whether the body is to run under ``torch.compile``, and ``module`` does.

        Returns:
            (N, ...) in the order of ``batch.mask_BT``; None if this path cannot compute it.
        """


class ForwardPathFactory(Protocol):
    """Decides whether a model can take a forward path; registered by a plugin."""

    def __call__(self, model: Any, adapter: ModelAdapter) -> ForwardPath | None:
        """Return the model on this path, or None unless it is certain to give the same numbers.

        It is called before every pass, so cache expensive checks per model.

        Args:
            model: The Hugging Face model.
            adapter: How it is made trainable.
        """


@runtime_checkable
class RowSplit(Protocol):
    """Processes that compute each micro-batch together, every one its own tokens."""

    def connect(self) -> None:
        """Bring the processes of each group together. A collective, called once.

        Raises:
            ConfigError: If the processes do not divide into groups.
        """

    def admit(self, model: Any) -> None:
        """Let a model be computed so; before it is sharded.

        Raises:
            ConfigError: If it cannot.
        """

    def shared(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of ``rlvr_core.step.forward`` as the group computes it together.

        Each process gets what ``compute`` would return by itself. Floating-point results are (B, T)
        or (B, T, K), and of loss tokens; others are returned as they are in each process.
        """


class ModelAdapter(Protocol):
    """How a policy is made trainable, saved, loaded and shown to engines.

    Where its tensors are sharded (FSDP), ``merged_tensors`` and ``adapter`` are collectives: every
    process has to call them.
    """

    @property
    def keeps_base(self) -> bool:
        """Whether the base model stays in memory unchanged, as below a LoRA adapter."""

    def check_installed(self) -> None:
        """Raise before the run starts if a library that this needs is missing.

        Raises:
            MachineError: If it does not import.
        """

    def lines(self, section: Any) -> list[str]:
        """Return lines for the overview at the start of a run, given the config's section."""

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
        """Add the trained parameters to a model, in place, and freeze the rest.

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
        """Return the tensors of a checkpoint by name; they share the model's memory."""

    def merged_tensors(self, model: Any) -> Iterator[tuple[str, Tensor]]:
        """Yield full tensors of the policy by Hugging Face name, a tied one once; no graph."""

    def adapter(self, model: Any) -> Adapter:
        """Return the adapter alone, for engines that compute it beside the base model.

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
        """Read what ``save`` wrote, by the names of ``trained_tensors``.

        Raises:
            ValueError: If it was trained on top of other weights.
        """

    def dropout(self, model: Any, *key: int) -> AbstractContextManager[None]:
        """Enable the adapter's dropout within the block, with random numbers seeded by ``key``."""

    def add_reference(self, model: Any) -> None:
        """Add tensors for a reference that moves; only where ``keeps_base``."""

    def as_reference(self, model: Any, *, moving: bool) -> AbstractContextManager[None]:
        """Make the model the reference within the block: that of ``add_reference``, or the base.

        No graph of the policy may be alive. Only where ``keeps_base``.
        """

    def reference_pairs(self, model: Any) -> Iterator[tuple[str, Tensor, Tensor]]:
        """Return (name, tensor of the moving reference, tensor of the policy) for each tensor."""
