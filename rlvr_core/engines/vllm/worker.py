"""Code that runs inside vLLM's workers: loads the trainer's weights into vLLM's model.

For an engine in the trainer's own process, tensors are passed by reference: they are not
serialised, and are only copied into the engine's own storage. Imported only once vLLM itself has
been.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.model_executor.model_loader.reload import (
    finalize_layerwise_reload,
    initialize_layerwise_reload,
)
from vllm.model_executor.model_loader.reload.layerwise import get_layerwise_info

IN_PROCESS = "rlvr_inprocess"


@dataclass
class NoInit(WeightTransferInitInfo):  # type: ignore[misc]
    """Empty: there is no connection to set up."""


@dataclass
class Weights(WeightTransferUpdateInfo):  # type: ignore[misc]
    """One update: ``(Hugging Face name, tensor)`` pairs."""

    weights: Iterable[tuple[str, torch.Tensor]] = field(default_factory=tuple)


class InProcessTransfer(WeightTransferEngine):  # type: ignore[misc]
    """Loads weights layer by layer into an engine's model; an update must contain all of them."""

    init_info_cls = NoInit
    update_info_cls = Weights

    def init_transfer_engine(self, init_info: NoInit) -> None:
        """Do nothing: there is no connection."""

    def start_weight_update(self) -> None:
        """Put every layer into the state for loading checkpoint weights."""
        initialize_layerwise_reload(self.model)

    @torch.no_grad()
    def receive_weights(self, update_info: Weights) -> None:
        """Load the weights.

        Raises:
            ValueError: If some of the model's parameters were not among them. vLLM itself keeps
                the old values of such a layer and only logs a warning.
        """
        self.check_complete(self.model.load_weights(iter(update_info.weights)))

    def check_complete(self, loaded: set[str] | None) -> None:
        """Refuse an update that lacks parameters; ``loaded`` is the result of ``load_weights``."""
        expected = {name for name, _ in self.model.named_parameters()} - _tied_heads(self.model)
        missing = sorted(expected - (expected if loaded is None else loaded))
        if missing := missing + _half_loaded(self.model):
            raise ValueError(
                f"{len(missing)} of the model's {len(expected)} parameters did not arrive or not "
                f"wholly: {', '.join(missing[:3])}"
            )

    def finish_weight_update(self) -> None:
        """Make every layer usable again, including the packed copy of a tied head."""
        finalize_layerwise_reload(self.model, self.model_config)
        repack_tied_heads(self.model)

    def shutdown(self) -> None:
        """Do nothing: there is nothing to release."""


def repack_tied_heads(model: nn.Module) -> None:
    """Renew the packed weights of heads that share the embedding's.

    On a CPU vLLM 0.32 keeps a packed copy of every linear weight. A tied head receives no weight
    of its own, so no reload renews its copy and the head keeps the old weights forever, with
    only a warning. Does nothing if nothing is packed.
    """
    for head in _heads(model).values():
        if getattr(head, "cpu_linear", None) is not None and head.weight.numel():
            head.quant_method.process_weights_after_loading(head)


def _half_loaded(model: nn.Module) -> list[str]:
    """Return layers that still lack elements: one of several fused weights is missing.

    Embedding and head are padded to a round number of rows that no checkpoint has.
    """
    waiting = []
    for name, layer in model.named_modules():
        info = get_layerwise_info(layer)
        padded = type(layer).__name__ in ("VocabParallelEmbedding", "ParallelLMHead")
        if info.can_load() and not padded and 0 < info.load_numel < info.load_numel_total:
            waiting.append(f"{name}.weight")
    return waiting


def _heads(model: nn.Module) -> dict[str, Any]:
    return {
        name: module
        for name, module in model.named_modules()
        if type(module).__name__ == "ParallelLMHead"
    }


def _tied_heads(model: nn.Module) -> set[str]:
    config = getattr(model, "config", None)
    if not getattr(config, "tie_word_embeddings", False):
        return set()
    return {f"{name}.weight" for name in _heads(model)}


def register(
    name: str = IN_PROCESS, backend: type[WeightTransferEngine] = InProcessTransfer
) -> None:
    """Register a backend with vLLM; once per process."""
    if name not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(name, backend)
