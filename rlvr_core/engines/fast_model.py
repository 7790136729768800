"""A model on the fast path of its architecture, where there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from rlvr_core.api.forward import FastModel
from rlvr_core.host import parts
from rlvr_core.parallel.model_adapter import adapter_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def fast_model(model: PreTrainedModel) -> FastModel | None:
    """The model on its fast path, or None if it has to run through its own forward.

    Fast paths are for float32 on a CPU.
    """
    if model.device.type != "cpu" or model.dtype != torch.float32:
        return None
    path = parts.forward_path(type(model).__name__)
    found: FastModel | None = None if path is None else path(model, adapter_of(model))
    return found
