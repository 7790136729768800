"""A faster way to compute models of some architecture, beside the ways that serve every model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from rlvr_core.api.protocols.model_adapter import ModelAdapter


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
