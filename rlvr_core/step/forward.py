"""Log-probs of completions under the model that is trained, with a graph.

Only the hidden states that predict a loss token reach the LM head.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rlvr_core.step.batch import MicroBatch
from rlvr_core.step.forward_path import forward_path, plain_head
from rlvr_core.step.gather_logits import gather_logits, top_logprobs
from rlvr_core.step.logprobs import entropy, fused_logprobs

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def completion_logprobs(
    model: PreTrainedModel,
    batch: MicroBatch,
    *,
    temperature: float,
    autocast_dtype: torch.dtype | None = None,
    compiled: Any = None,
) -> Tensor:
    """Log-probs of the sampled tokens at the sampling temperature.

    Args:
        model: The unwrapped Hugging Face model.
        batch: Rows on the model's device.
        temperature: Of sampling; log-probs are of softmax(logits / temperature).
        autocast_dtype: Compute precision of the model, None for that of its parameters. The
            log-softmax is float32 at least in any case (T7).
        compiled: What ``compile_body`` gave, to be run in the place of the model's body.

    Returns:
        (B, T) log-probs, 0 where ``batch.mask_BT`` is False; differentiable.
    """
    predicted = _predict(model, batch, temperature, autocast_dtype, compiled)
    return predicted.unpack(predicted.logprobs())


def completion_scores(
    model: PreTrainedModel,
    batch: MicroBatch,
    *,
    temperature: float,
    autocast_dtype: torch.dtype | None = None,
    compiled: Any = None,
    others_NK: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """Log-probs as above, and entropies.

    Args:
        model: As above, like all that is not named here.
        batch: See there.
        temperature: See there.
        autocast_dtype: See there.
        compiled: See there.
        others_NK: Tokens at each loss token, in the order of ``batch.mask_BT``, whose log-probs
            are wanted too.

    Returns:
        (B, T) log-probs, (B, T) entropies in nats and, for ``others_NK``, (B, T, K) log-probs; all
        of them differentiable, and 0 where ``batch.mask_BT`` is False.
    """
    predicted = _predict(model, batch, temperature, autocast_dtype, compiled)
    logp_N, entropy_N = predicted.logprobs_and_entropy()
    found = [logp_N, entropy_N]
    if others_NK is not None:
        found.append(predicted.logprobs_of(others_NK, logp_N))
    return tuple(predicted.unpack(value) for value in found)


@torch.no_grad()
def top_tokens(
    model: PreTrainedModel,
    batch: MicroBatch,
    *,
    k: int,
    vocabulary: int,
    temperature: float,
    autocast_dtype: torch.dtype | None = None,
    compiled: Any = None,
) -> tuple[Tensor, Tensor]:
    """The ``k`` most likely tokens below ``vocabulary`` at each loss token; no gradient.

    Returns:
        (N, k) ids, and their (B, T, k) log-probs in the whole distribution.
    """
    predicted = _predict(model, batch, temperature, autocast_dtype, compiled)
    ids_Nk, logp_Nk = predicted.top(k, vocabulary)
    return ids_Nk, predicted.unpack(logp_Nk)


def _predict(
    model: PreTrainedModel,
    batch: MicroBatch,
    temperature: float,
    autocast_dtype: torch.dtype | None,
    compiled: Any,
) -> _Predicted:
    device = batch.completion_ids_BT.device
    autocast: Any = contextlib.nullcontext()
    if autocast_dtype is not None and autocast_dtype != torch.float32:
        autocast = torch.autocast(device.type, dtype=autocast_dtype)
    with autocast:
        head = plain_head(model)
        path = forward_path(model, head, autocast_dtype=autocast_dtype, compiled=compiled)
        states = path(batch)
    return _Predicted(states, head, batch, temperature, autocast)


@dataclass(frozen=True, slots=True)
class _Predicted:
    """The distributions at every loss token of a micro-batch, not computed yet.

    Attributes:
        states: Last hidden states (N, H), or logits (N, V) where there is no head.
        head: The LM head.
        batch: What it was made of.
        temperature: Of the distributions.
        autocast: The context to compute in.
    """

    states: Tensor
    head: torch.nn.Linear | None
    batch: MicroBatch
    temperature: float
    autocast: Any

    @property
    def targets(self) -> Tensor:
        """(N,) tokens that were sampled."""
        return self.batch.completion_ids_BT[self.batch.mask_BT]

    def unpack(self, value: Tensor) -> Tensor:
        """Values of the N loss tokens at their places in (B, T), 0 elsewhere."""
        mask_BT = self.batch.mask_BT
        out = torch.zeros(*mask_BT.shape, *value.shape[1:], dtype=value.dtype, device=value.device)
        return out.masked_scatter(mask_BT.view(*mask_BT.shape, *[1] * (value.ndim - 1)), value)

    def logprobs(self) -> Tensor:
        """(N,) log-probs of the sampled tokens."""
        if self.head is None:
            return self._whole().gather(-1, self.targets[:, None])[:, 0]
        with self.autocast:
            return fused_logprobs(
                self.states,
                self.head.weight,
                self.targets,
                temperature=self.temperature,
                bias_V=self.head.bias,
            )

    def logprobs_and_entropy(self) -> tuple[Tensor, Tensor]:
        """The same, and the (N,) entropies."""
        if self.head is None:
            logp_NV = self._whole()
            return logp_NV.gather(-1, self.targets[:, None])[:, 0], entropy(logp_NV)
        with self.autocast:
            return fused_logprobs(
                self.states,
                self.head.weight,
                self.targets,
                temperature=self.temperature,
                bias_V=self.head.bias,
                with_entropy=True,
            )

    def logprobs_of(self, ids_NK: Tensor, logp_N: Tensor) -> Tensor:
        """(N, K) log-probs of other tokens, given those of the sampled ones."""
        if self.head is None:
            return self._whole().gather(-1, ids_NK)
        every_NK = torch.cat([self.targets[:, None], ids_NK], dim=1)
        with self.autocast:
            logits_NK = gather_logits(self.states, self.head.weight, every_NK, self.head.bias)
        return logp_N[:, None] + (logits_NK[:, 1:] - logits_NK[:, :1]) / self.temperature

    def top(self, k: int, vocabulary: int) -> tuple[Tensor, Tensor]:
        """(N, k) most likely tokens below ``vocabulary``, and their log-probs."""
        if self.head is None:
            logp_Nk, ids_Nk = self._whole()[:, :vocabulary].topk(k)
            return ids_Nk, logp_Nk
        with self.autocast:
            return top_logprobs(
                self.states, self.head.weight, k, vocabulary, self.temperature, self.head.bias
            )

    def _whole(self) -> Tensor:
        wide = torch.promote_types(self.states.dtype, torch.float32)
        return (self.states.to(wide) / self.temperature).log_softmax(-1)
