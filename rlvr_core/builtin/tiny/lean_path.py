"""Hidden states of a micro-batch under a lean model, with a graph: every prompt computed once."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from rlvr_core.builtin.tiny.lean import LeanModel
from rlvr_core.builtin.tiny.lean_layer import LeanLayer
from rlvr_core.step.batch import MicroBatch
from rlvr_core.step.joined_attention import Layout
from rlvr_core.step.packed import packed_tokens, predictors


def lean_hidden(lean: LeanModel, batch: MicroBatch) -> Tensor:
    """Last hidden states, after the final norm, that predict each loss token.

    Padding is left out of everything but attention.

    Returns:
        (M, H), in the order of ``batch.completion_ids_BT[batch.mask_BT]``.
    """
    ids_N, position_N = packed_tokens(batch)
    layout = Layout.of(batch)
    x_NH = F.embedding(ids_N, lean.embedding, lean.padding_id)
    rotation_N1d = lean.rotation(position_N)
    for weights in lean.weights():
        x_NH = LeanLayer.apply(  # type: ignore[no-untyped-call]
            x_NH,
            weights.qkv_QH,
            weights.qkv_bias_Q,
            weights.qk_norm_hD,
            weights.out_HA,
            weights.gate_up_IH,
            weights.down_HI,
            rotation_N1d,
            layout,
            lean.kv_heads,
            lean.head_dim,
            lean.eps,
        )
    chosen_MH = x_NH[predictors(batch)]
    return F.rms_norm(chosen_MH, chosen_MH.shape[1:], lean.final_norm, lean.eps)
