"""A model's layers compiled, one graph for all, and its head."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from transformers.modeling_layers import GradientCheckpointingLayer

from rlvr_core.compiling.head import compiled_logprobs

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_GRAPHS = 64
"""Graphs that torch may make of one layer's code before it gives up and runs it as it is, with no
word but a warning. Training and scoring take one each, so does a single prompt, and each again
where a micro-batch crosses the size that its kernels were chosen for; torch's own limit is 8."""


@dataclass(frozen=True, slots=True)
class CompiledModel:
    """Stands for a model in training.

    Attributes:
        body: The model without its LM head, its layers compiled.
        logprobs: Takes what ``fused_logprobs`` takes, and gives what it gives.
    """

    body: Any
    logprobs: Callable[..., Any]


def compiled_model(model: PreTrainedModel) -> CompiledModel:
    """A model with its layers and head compiled for training; the model itself is unchanged.

    All layers share their code and therefore their graphs. Activations are recomputed outside of
    them, layer by layer, as without compilation. Generation goes on uncompiled: its shapes change
    with every token.
    """
    settings: Any = torch._dynamo.config
    settings.recompile_limit = max(settings.recompile_limit, _GRAPHS)
    body = _with_compiled_layers(getattr(model, model.base_model_prefix))
    return CompiledModel(body, compiled_logprobs)


def _with_compiled_layers(module: Any) -> Any:
    clone = copy.copy(module)  # it shares all parameters
    if isinstance(module, GradientCheckpointingLayer):
        clone.forward = torch.compile(module.forward, dynamic=True)
        return clone
    clone._modules = {name: _with_compiled_layers(m) for name, m in module.named_children()}
    return clone
