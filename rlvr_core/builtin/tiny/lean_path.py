"""A lean model as the forward path of its architecture: trained on, and sampled from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from rlvr_core.api import MicroBatch, ModelAdapter
from rlvr_core.api.services import pack
from rlvr_core.builtin.tiny.lean import LeanModel, recognise
from rlvr_core.builtin.tiny.lean_decode import LeanDecoder
from rlvr_core.builtin.tiny.lean_layer import LeanLayer

if TYPE_CHECKING:
    from rlvr_core.api.services import PackedTokens


def find_lean(model: Any, adapter: ModelAdapter) -> LeanPath | None:
    """See ``ForwardPathFactory``."""
    if model.device.type != "cpu" or model.dtype != torch.float32:
        return None
    lean = recognise(model, adapter)
    return None if lean is None else LeanPath(lean)


@dataclass(frozen=True, slots=True)
class LeanPath:
    """See ``ForwardPath``."""

    lean: LeanModel
    decodes = True

    def predict(
        self, batch: MicroBatch, module: Any, *, dtype: torch.dtype, compiled: bool
    ) -> Tensor | None:
        """Hidden states in float32; neither logits, nor activations that are made again later."""
        model = self.lean.model
        if module is model or dtype != torch.float32 or compiled:
            return None
        return None if model.is_gradient_checkpointing else lean_hidden(self.lean, pack(batch))

    def decoder(self) -> LeanDecoder:
        """See ``ForwardPath``."""
        return LeanDecoder(self.lean)


def lean_hidden(lean: LeanModel, packed: PackedTokens) -> Tensor:
    """Last hidden states, after the final norm, that predict each loss token.

    Padding is left out of everything but attention, and every prompt is computed once.

    Returns:
        (M, H), in the order of ``packed.predictors_M``.
    """
    x_NH = F.embedding(packed.ids_N, lean.embedding, lean.padding_id)
    rotation_N1d = lean.rotation(packed.position_N)
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
            packed.attention,
            lean.kv_heads,
            lean.head_dim,
            lean.eps,
        )
    chosen_MH = x_NH[packed.predictors_M]
    return F.rms_norm(chosen_MH, chosen_MH.shape[1:], lean.final_norm, lean.eps)
