"""Code that runs inside a server's workers: takes weights by a transport, reports what they hold.

A server is started with ``--worker-extension-cls rlvr_servers.worker.Extension`` and
``--weight-transfer-config '{"backend": "rlvr"}'``: its workers import this module, which makes the
backend known to them. Imported only once vLLM itself has been.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from vllm.distributed.weight_transfer.base import WeightTransferUpdateInfo
from vllm.platforms import current_platform

from rlvr_core.api import NamedTensors, WeightTransport
from rlvr_core.engines.transport import ChosenTransport
from rlvr_core.engines.vllm.process import adapt_cpu_build
from rlvr_core.engines.vllm.readback import fingerprint, whole
from rlvr_core.engines.vllm.worker import InProcessTransfer, register
from rlvr_servers.fingerprint import Fingerprint

BACKEND = "rlvr"


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
        self.check_complete(self._loaded)
        super().finish_weight_update()

    def shutdown(self) -> None:
        """Release this end of the transport."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()


class Extension:
    """Methods added to every worker of a server, for ``/collective_rpc``."""

    def rlvr_describe(self) -> dict[str, Any]:
        """Return facts about this server that the trainer needs and checks."""
        config = self.vllm_config  # type: ignore[attr-defined]
        model, scheduler = config.model_config, config.scheduler_config
        transfer = config.weight_transfer_config
        return {
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
        received = self.weight_transfer_engine.received  # type: ignore[attr-defined]
        if received is None:
            return {"tensors": 0, "fingerprint": None}
        return {"tensors": len(received), "fingerprint": received.digest()}


register(BACKEND, ServerTransfer)
if current_platform.is_cpu():
    adapt_cpu_build()
