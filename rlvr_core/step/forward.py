"""Log-probs of completions under the model that is trained, with a graph.

Hidden states come from the first of the model's forward paths that can compute them
(``rlvr_core.step.forward_paths``), else from each row whole and padded. Only those that predict
a loss token reach the LM head.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from rlvr_core.api import MicroBatch
from rlvr_core.step.forward_paths import forward_paths
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
            log-softmax is float32 at least in any case.
        compiled: What ``compiled_model`` gave: a body and a head to be run in place of
            the model's.

    Returns:
        (B, T) log-probs, 0 where ``batch.mask_BT`` is False; differentiable.
    """
    predicted = predict(model, batch, temperature, autocast_dtype, compiled)
    return predicted.unpack(predicted.logprobs())


def completion_scores(
    model: PreTrainedModel,
    batch: MicroBatch,
    *,
    temperature: float,
    autocast_dtype: torch.dtype | None = None,
    compiled: Any = None,
    extra: Callable[[Predicted, Tensor], Tensor] | None = None,
) -> tuple[Tensor, ...]:
    """Log-probs as above, and entropies.

    Args:
        model: As above, like all that is not named here.
        batch: See there.
        temperature: See there.
        autocast_dtype: See there.
        compiled: See there.
        extra: Gives what else is wanted of the distributions, (N, K), from them and the (N,)
            log-probs of the sampled tokens.

    Returns:
        (B, T) log-probs, (B, T) entropies in nats and, with ``extra``, its (B, T, K) values; all of
        them differentiable, and 0 where ``batch.mask_BT`` is False.
    """
    predicted = predict(model, batch, temperature, autocast_dtype, compiled)
    logp_N, entropy_N = predicted.logprobs_and_entropy()
    per_token = [logp_N, entropy_N]
    if extra is not None:
        per_token.append(extra(predicted, logp_N))
    return tuple(predicted.unpack(value) for value in per_token)


def predict(
    model: PreTrainedModel,
    batch: MicroBatch,
    temperature: float,
    autocast_dtype: torch.dtype | None,
    compiled: Any,
) -> Predicted:
    """The distributions at the loss tokens; arguments as of ``completion_logprobs``."""
    device = batch.completion_ids_BT.device
    autocast: Any = contextlib.nullcontext()
    if autocast_dtype is not None and autocast_dtype != torch.float32:
        # each weight is used once: its cast copy must not live until the end of the pass
        autocast = torch.autocast(device.type, dtype=autocast_dtype, cache_enabled=False)
    with autocast:
        head = plain_head(model)
        body = _body(model) if compiled is None else compiled.body
        module = model if head is None else body
        dtype = autocast_dtype or model.dtype
        computed = (
            path.predict(batch, module, dtype=dtype, compiled=compiled is not None)
            for path in forward_paths(model)
        )
        states = next((hidden for hidden in computed if hidden is not None), None)
        if states is None:
            states = whole_rows(module, batch)
    return Predicted(states, head, batch, temperature, autocast, compiled)


@dataclass(frozen=True, slots=True)
class Predicted:
    """The distributions at every loss token of a micro-batch, not computed yet.

    Attributes:
        states: Last hidden states (N, H), or logits (N, V) where there is no head.
        head: The LM head.
        batch: What it was made of.
        temperature: Of the distributions.
        autocast: The context to compute in.
        compiled: As of ``predict``.
    """

    states: Tensor
    head: torch.nn.Linear | None
    batch: MicroBatch
    temperature: float
    autocast: Any
    compiled: Any = None

    @property
    def targets(self) -> Tensor:
        """(N,) tokens that were sampled."""
        return self.batch.completion_ids_BT.flatten()[self.batch.loss_places()]

    def unpack(self, value: Tensor) -> Tensor:
        """Values of the N loss tokens at their places in (B, T), 0 elsewhere."""
        mask_BT = self.batch.mask_BT
        out = torch.zeros(*mask_BT.shape, *value.shape[1:], dtype=value.dtype, device=value.device)
        return out.masked_scatter(mask_BT.view(*mask_BT.shape, *[1] * (value.ndim - 1)), value)

    def logprobs(self) -> Tensor:
        """(N,) log-probs of the sampled tokens."""
        return self._scores(with_entropy=False)[0]

    def logprobs_and_entropy(self) -> tuple[Tensor, Tensor]:
        """Return (N,) log-probs of the sampled tokens and (N,) entropies."""
        logp_N, entropy_N = self._scores(with_entropy=True)
        assert entropy_N is not None
        return logp_N, entropy_N

    def _scores(self, *, with_entropy: bool) -> tuple[Tensor, Tensor | None]:
        if self.head is None:
            logp_NV = self.whole()
            logp_N = logp_NV.gather(-1, self.targets[:, None])[:, 0]
            return logp_N, entropy(logp_NV) if with_entropy else None
        compute = fused_logprobs if self.compiled is None else self.compiled.logprobs
        with self.autocast:
            return compute(
                self.states,
                self.head.weight,
                self.targets,
                temperature=self.temperature,
                bias_V=self.head.bias,
                with_entropy=with_entropy,
            )

    def whole(self) -> Tensor:
        """(N, V) log-probs of a model without a plain head."""
        wide = torch.promote_types(self.states.dtype, torch.float32)
        return (self.states.to(wide) / self.temperature).log_softmax(-1)


def whole_rows(module: Any, batch: MicroBatch) -> Tensor:
    """Run each row's prompt and completion as one sequence.

    Returns:
        The module's output (hidden states or logits) that predicts each loss token, (N, ...).
    """
    host = batch.host  # lengths are known there, and no device is waited for
    prompt_len_B = host.prompt_len_S[host.prompt_of_row_B]
    length_B = prompt_len_B + host.completion_len_B
    position_L = torch.arange(int(length_B.max()))
    offset_BL = position_L - prompt_len_B[:, None]
    prompt_BP = host.prompt_ids_SP[host.prompt_of_row_B]
    ids_BL = torch.where(
        offset_BL < 0,
        prompt_BP.gather(1, position_L.clamp(max=prompt_BP.shape[1] - 1).expand_as(offset_BL)),
        host.completion_ids_BT.gather(1, offset_BL.clamp(0, host.completion_ids_BT.shape[1] - 1)),
    )
    row_N, t_N = host.mask_BT.nonzero(as_tuple=True)
    # padding is behind a row, where causal attention does not look: to make a mask for it,
    # transformers would wait for the device twice
    predicted_BL: Tensor = module(input_ids=batch.send(ids_BL), use_cache=False)[0]
    places_N = row_N * predicted_BL.shape[1] + prompt_len_B[row_N] + t_N - 1
    return predicted_BL.flatten(0, 1)[batch.send(places_N)]


_LOGIT_OPTIONS = ("final_logit_softcapping", "logit_scale", "logits_scaling")
_HEADS: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


def _body(model: PreTrainedModel) -> Any:
    return getattr(model, model.base_model_prefix)


def probe_forward_path(model: PreTrainedModel) -> None:
    """Find out now, by a forward pass, which paths the model takes: a sharded one cannot be asked.

    What is found is remembered for as long as the model lives.
    """
    plain_head(model)
    list(forward_paths(model))


def plain_head(model: PreTrainedModel) -> torch.nn.Linear | None:
    """The LM head, if the model's logits are nothing but it applied to its last hidden states.

    Models that scale, cap or otherwise treat their logits are found out by trying, once.
    """
    head = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    if not isinstance(head, torch.nn.Linear) or not hasattr(model, model.base_model_prefix):
        return None
    if any(getattr(model.config, name, None) not in (None, 1.0) for name in _LOGIT_OPTIONS):
        return None  # a cap on logits does not show while they are small
    if model not in _HEADS:
        was_training = [module for module in model.modules() if module.training]
        model.train(False)
        ids = torch.arange(4, device=head.weight.device)[None] % head.weight.shape[0]
        try:
            with torch.no_grad():
                logits = model(input_ids=ids, use_cache=False).logits
                plain = head(_body(model)(input_ids=ids, use_cache=False)[0])
        finally:
            for module in was_training:
                module.training = True
        close = torch.allclose(logits.float(), plain.float(), rtol=1e-3, atol=1e-3)
        _HEADS[model] = logits.shape == plain.shape and close
    return head if _HEADS[model] else None
