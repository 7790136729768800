"""The ways to compute a micro-batch's hidden states, and which of them a model takes.

In this order: the fast path of its architecture, where it is float32 on a CPU; all rows packed into
one sequence without padding; each row whole, padded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from rlvr_core.engines.fast_model import fast_model
from rlvr_core.step.batch import MicroBatch
from rlvr_core.step.packed import heads_of, pack, packed_rows
from rlvr_core.step.packed_attention import attention_mask_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ForwardPath = Callable[[MicroBatch], Tensor]
"""Gives the hidden states (N, H) that predict each loss token of a micro-batch, in the order of its
mask; logits (N, V) of a model without a plain head."""


def forward_path(
    model: PreTrainedModel,
    head: torch.nn.Linear | None,
    *,
    autocast_dtype: torch.dtype | None,
    compiled: Any,
) -> ForwardPath:
    """The fastest path that gives the model's own numbers.

    Args:
        model: The unwrapped Hugging Face model.
        head: What ``plain_head`` gave.
        autocast_dtype: Compute precision, None for that of the parameters.
        compiled: What ``compile_body`` gave, to be run in the place of the model's body.
    """
    own_precision = autocast_dtype in (None, torch.float32)
    if head is not None and own_precision and compiled is None and not _recomputes(model):
        fast = fast_model(model)
        if fast is not None:
            return lambda batch: fast.hidden_states(pack(batch))
    body = _body(model) if compiled is None else compiled
    body = model if head is None else body
    heads = heads_of(model, whole_rows)
    if not heads:
        return lambda batch: whole_rows(body, batch)
    dtype = autocast_dtype or model.dtype

    def packed(batch: MicroBatch) -> Tensor:
        mask = attention_mask_of(batch, dtype, heads, compiled=compiled is not None)
        return packed_rows(body, batch, mask)

    return packed


def _recomputes(model: PreTrainedModel) -> bool:
    recomputes: bool = model.is_gradient_checkpointing
    return recomputes


def whole_rows(module: Any, batch: MicroBatch) -> Tensor:
    """Run each row's prompt and completion as one sequence.

    Returns:
        The module's output (hidden states or logits) that predicts each loss token, (N, ...).
    """
    prompt_len_B = batch.prompt_len_S[batch.prompt_of_row_B]
    length_B = prompt_len_B + batch.completion_len_B
    position_L = torch.arange(int(length_B.max()), device=length_B.device)
    offset_BL = position_L - prompt_len_B[:, None]
    prompt_BP = batch.prompt_ids_SP[batch.prompt_of_row_B]
    ids_BL = torch.where(
        offset_BL < 0,
        prompt_BP.gather(1, position_L.clamp(max=prompt_BP.shape[1] - 1).expand_as(offset_BL)),
        batch.completion_ids_BT.gather(1, offset_BL.clamp(0, batch.completion_ids_BT.shape[1] - 1)),
    )
    output = module(
        input_ids=ids_BL,
        attention_mask=(position_L < length_B[:, None]).long(),
        position_ids=position_L.expand_as(ids_BL),
        use_cache=False,
    )
    predicted_BL: Tensor = output[0]
    row_N, t_N = batch.mask_BT.nonzero(as_tuple=True)
    return predicted_BL[row_N, prompt_len_B[row_N] + t_N - 1]


_LOGIT_OPTIONS = ("final_logit_softcapping", "logit_scale", "logits_scaling")
_HEADS: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


def _body(model: PreTrainedModel) -> Any:
    return getattr(model, model.base_model_prefix)


def compile_body(model: PreTrainedModel) -> Any:
    """The model without its LM head, compiled for training; the model itself stays as it is.

    Generation goes on uncompiled: its shapes change with every token.
    """
    return torch.compile(_body(model), dynamic=True)


def probe_forward_path(model: PreTrainedModel) -> None:
    """Find out now, by a forward pass, which path the model takes: a sharded one cannot be asked.

    What is found is remembered for as long as the model lives.
    """
    fast_model(model)
    plain_head(model)
    heads_of(model, whole_rows)


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
