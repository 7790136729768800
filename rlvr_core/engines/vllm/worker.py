"""Code that runs inside vLLM's workers: receives weights, and reports facts and fingerprints.

For an engine in the trainer's own process, tensors are passed by reference: they are not
serialised, and are only copied into the engine's own storage. A server is started with
``--worker-extension-cls rlvr_core.engines.vllm.worker.Extension`` and
``--weight-transfer-config '{"backend": "rlvr"}'``: its workers import this module, which makes the
backend known to them, and take weights by a transport. Imported only once vLLM itself has been.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
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
from vllm.platforms import current_platform

from rlvr_core.api import NamedTensors, WeightTransport
from rlvr_core.engines.transport import ChosenTransport
from rlvr_core.engines.vllm.adapter import load_into
from rlvr_core.engines.vllm.process import adapt_cpu_build
from rlvr_core.engines.vllm.readback import fingerprint, whole
from rlvr_core.engines.vllm.transports import Fingerprint

IN_PROCESS = "rlvr_inprocess"
SERVER = "rlvr"


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
        self._check_complete(self.model.load_weights(iter(update_info.weights)))

    def _check_complete(self, loaded: set[str] | None) -> None:
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


@dataclass
class Update(WeightTransferUpdateInfo):  # type: ignore[misc]
    """A message of the trainer's end of a transport.

    Attributes:
        transport: The transport, as ``ChosenTransport`` has it.
        message: For its other end.
        first_worker: Number of this server's first worker among the receivers.
    """

    transport: dict[str, Any] = field(default_factory=dict)
    message: Any = None
    first_worker: int = 0


class ServerTransfer(InProcessTransfer):
    """Receives weights by a transport, and fingerprints them."""

    init_info_cls = NoInit
    update_info_cls = Update

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.received: Fingerprint | None = None
        self._loaded: set[str] | None = set()
        self._transport: WeightTransport | None = None
        self._chosen: Mapping[str, Any] = {}

    def start_weight_update(self) -> None:
        """Begin an update with an empty fingerprint."""
        self.received, self._loaded = Fingerprint(), set()
        super().start_weight_update()

    @torch.no_grad()
    def receive_weights(self, update_info: Update) -> None:
        """Take one message of an update."""
        from vllm.model_executor.model_loader.mtp_validation import disable_mtp_completeness_check

        parallel = self.parallel_config
        worker = parallel.data_parallel_index * parallel.world_size + parallel.rank
        if self._transport is None or update_info.transport != self._chosen:
            self.shutdown()
            self._chosen = update_info.transport
            self._transport = ChosenTransport(**update_info.transport).make()
        with disable_mtp_completeness_check():  # weights may come in parts
            self._transport.receive(
                update_info.message, self._load, update_info.first_worker + worker
            )

    def _load(self, weights: NamedTensors) -> None:
        some = self.model.load_weights(self._fingerprinted(weights))
        if self._loaded is not None:
            self._loaded = None if some is None else self._loaded | some

    def _fingerprinted(self, weights: NamedTensors) -> Iterator[tuple[str, torch.Tensor]]:
        assert self.received is not None
        for name, tensor in weights:
            self.received.add(name, tensor)
            yield name, tensor

    def finish_weight_update(self) -> None:
        """Put the new weights to use.

        Raises:
            ValueError: If some of the model's parameters were not among them.
        """
        self._check_complete(self._loaded)
        super().finish_weight_update()

    def shutdown(self) -> None:
        """Release this end of the transport."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()


def register() -> None:
    """Register the backends with vLLM; once per process."""
    for name, backend in ((IN_PROCESS, InProcessTransfer), (SERVER, ServerTransfer)):
        if name not in WeightTransferEngineFactory._registry:
            WeightTransferEngineFactory.register_engine(name, backend)


class Extension:
    """Methods added to every worker of a server, for ``/collective_rpc``."""

    def rlvr_describe(self) -> dict[str, Any]:
        """Return facts about this server that the trainer needs and checks."""
        config = self.vllm_config  # type: ignore[attr-defined]
        model, scheduler = config.model_config, config.scheduler_config
        transfer = config.weight_transfer_config
        return {
            "pid": os.getpid(),
            "model": model.model,
            "architectures": list(model.hf_config.architectures or []),
            "vocab_size": model.get_vocab_size(),
            "dtype": str(model.dtype).removeprefix("torch."),
            "max_model_len": model.max_model_len,
            "logprobs_mode": str(model.logprobs_mode),
            "device": config.device_config.device_type,
            "block_size": config.cache_config.block_size,
            "chunked_prefill": bool(scheduler.enable_chunked_prefill),
            "world": config.parallel_config.world_size_across_dp,
            "backend": None if transfer is None else transfer.backend,
        }

    rlvr_adapter = ""

    def rlvr_load_adapter(self, folder: str) -> dict[str, Any]:
        """Replace the adapter; return the layers that vLLM's model lacks."""
        self.rlvr_adapter, unused = load_into(self, Path(folder))
        return {"unused": unused}

    def rlvr_fingerprint(self) -> dict[str, str]:
        """Return checksums of the weights as decimal text: they exceed 64 bits.

        Nothing where the model is split over several workers: each has a part.
        """
        parallel = self.vllm_config.parallel_config  # type: ignore[attr-defined]
        if parallel.tensor_parallel_size * parallel.pipeline_parallel_size > 1:
            return {}
        return {name: str(checksum) for name, checksum in whole([fingerprint(self)]).items()}

    def rlvr_received(self) -> dict[str, Any]:
        """Return what this worker received in the last update; empty if there was none."""
        if self.rlvr_adapter:
            return {"tensors": 0, "fingerprint": self.rlvr_adapter}
        received = self.weight_transfer_engine.received  # type: ignore[attr-defined]
        if received is None:
            return {"tensors": 0, "fingerprint": None}
        return {"tensors": len(received), "fingerprint": received.digest()}


register()
if current_platform.is_cpu():
    adapt_cpu_build()
