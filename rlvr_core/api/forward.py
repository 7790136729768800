"""Faster ways to compute models of some architecture, and which part of a policy is trained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from rlvr_core.api.engines import Adapter


class Decoder(Protocol):
    """A model with a key-value cache."""

    vocabulary: int
    device: torch.device

    def prefill(
        self, prompts: Sequence[tuple[int, ...]], counts: Sequence[int], max_new_tokens: int
    ) -> Tensor:
        """Run each prompt once and give it ``counts`` rows of cache.

        Returns:
            (B, V) logits of each row's first token; the caller may overwrite them.
        """

    def step(self, token_B: Tensor) -> Tensor:
        """Append a token to every row; (B, V) logits of the next."""

    def select(self, rows_K: Tensor) -> None:
        """Keep only these rows."""

    def renew(self) -> None:
        """Take the model's weights as they are now; the cache stays."""


class PackedAttention(Protocol):
    """Causal attention of packed tokens: each completion sees its prompt and itself."""

    def forward(
        self, q_NhD: Tensor, k_NhD: Tensor, v_NhD: Tensor, scale: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Output (N, h, D), and log-sum-exp of the prompts (S, h, P) and completions (B, h, T)."""

    def backward(
        self,
        grad_NhD: Tensor,
        heads: tuple[Tensor, Tensor, Tensor],
        out_NhD: Tensor,
        prompt_lse: Tensor,
        lse: Tensor,
        scale: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of query, key and value, from what ``forward`` was given and returned."""


@dataclass(frozen=True, slots=True)
class PackedTokens:
    """A micro-batch as one sequence without padding: the prompts, then the completions.

    Attributes:
        ids_N: Token ids.
        position_N: Position of each token in the text that its row is.
        predictors_M: Place of the token before each of the M loss tokens.
        attention: Which token attends to which.
    """

    ids_N: Tensor
    position_N: Tensor
    predictors_M: Tensor
    attention: PackedAttention


class FastModel(Protocol):
    """A model that was recognised, with its own parameters."""

    def hidden_states(self, packed: PackedTokens) -> Tensor:
        """(M, H) last hidden states that predict the loss tokens; differentiable."""

    def decoder(self) -> Decoder:
        """The decoding loop's cache and step, over the weights of this moment."""


class ForwardPath(Protocol):
    """Recognises models that it computes faster than their own forward does."""

    def __call__(self, model: Any, adapter: ModelAdapter) -> FastModel | None:
        """The model on this path, or None unless it is certain to give the same numbers.

        Args:
            model: The Hugging Face model.
            adapter: What is known of its linear layers.
        """


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
