"""The forward paths that a model may take beside its own forward, as ``model.forward_paths`` says.

The trainer and the engine that samples from the trainer's model ask here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch

from rlvr_core.api import ForwardPath
from rlvr_core.api.forward import ForwardPathFactory
from rlvr_core.config.model import ModelSection
from rlvr_core.parallel.model_adapter import adapter_of
from rlvr_core.plugins.host import load_host

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_FACTORIES: WeakKeyDictionary[Any, list[ForwardPathFactory]] = WeakKeyDictionary()
"""The paths of each model; a model that is not here has the default ones."""


def choose_forward_paths(model: PreTrainedModel, names: Sequence[str]) -> None:
    """Let a model take these forward paths, in this order.

    A path that is not registered for the model's class is not imported.

    Raises:
        ConfigError: If a name is misspelt.
        PluginError: If a path cannot be imported.
    """
    entries = [load_host().entry("forward_path", name, "model.forward_paths") for name in names]
    model_class = type(model).__name__
    _FACTORIES[model] = [e.load() for e in entries if not e.models or model_class in e.models]


def forward_paths(model: PreTrainedModel) -> Iterator[ForwardPath]:
    """The paths that give the model's own numbers, the fastest first."""
    if model not in _FACTORIES:
        choose_forward_paths(model, ModelSection.model_fields["forward_paths"].default)
    for factory in _FACTORIES[model]:
        # a factory tries out the model itself, not the precision that the caller computes in
        with torch.autocast(model.device.type, enabled=False):
            path = factory(model, adapter_of(model))
        if path is not None:
            yield path
