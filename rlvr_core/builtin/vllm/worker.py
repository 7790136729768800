"""What runs inside a vLLM server: how its workers take weights, and tell about themselves.

A server is started with ``--worker-extension-cls rlvr_core.builtin.vllm.worker.Extension`` and
``--weight-transfer-config '{"backend": "rlvr"}'``. Its workers then import this module, which makes
the backend known to them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from vllm.distributed.weight_transfer.base import WeightTransferUpdateInfo
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.distributed.weight_transfer.nccl_common import (
    NCCLWeightTransferInitInfo,
    worker_init_process_group,
)
from vllm.platforms import current_platform

from rlvr_core.builtin.vllm.process import adapt_cpu_build
from rlvr_core.builtin.vllm.server_lora import load
from rlvr_core.builtin.vllm.transfer import InProcessTransfer
from rlvr_core.engines.fingerprint import Fingerprint

BACKEND = "rlvr"


@dataclass
class Update(WeightTransferUpdateInfo):  # type: ignore[misc]
    """One update: safetensors files, or what the trainer is about to broadcast over NCCL."""

    files: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    dtype_names: list[str] = field(default_factory=list)
    shapes: list[list[int]] = field(default_factory=list)


class ServerTransfer(InProcessTransfer):
    """Takes weights from files or over NCCL; remembers what came."""

    init_info_cls = NCCLWeightTransferInitInfo
    update_info_cls = Update

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.received: Fingerprint | None = None
        self._group: Any = None
        self._wire: Any = None

    def init_transfer_engine(self, init_info: Any) -> None:
        """Join the trainer's NCCL group."""
        self.shutdown()
        self._wire = init_info
        self._group = worker_init_process_group(init_info, self.parallel_config)

    @torch.no_grad()
    def receive_weights(self, update_info: Update) -> None:
        """Load the weights.

        Raises:
            ValueError: If some of the model's parameters were not among them.
            RuntimeError: If they are to come over NCCL, and nobody has connected.
        """
        self.received = Fingerprint()
        if update_info.files:
            loaded = self.model.load_weights(self._noted(_from_files(update_info.files)))
        else:
            loaded = self._from_nccl(update_info)
        self._check_whole(loaded)

    def _noted(
        self, weights: Iterable[tuple[str, torch.Tensor]]
    ) -> Iterator[tuple[str, torch.Tensor]]:
        assert self.received is not None
        for name, tensor in weights:
            self.received.add(name, tensor)
            yield name, tensor

    def _from_nccl(self, update: Update) -> set[str] | None:
        from vllm.distributed.weight_transfer.packed_tensor import packed_nccl_broadcast_consumer
        from vllm.model_executor.model_loader.mtp_validation import disable_mtp_completeness_check

        if self._group is None:
            raise RuntimeError("weights are to come over NCCL, and no trainer has connected")
        loaded: set[str] = set()
        told = True

        def load(weights: list[tuple[str, torch.Tensor]]) -> None:
            nonlocal told
            some = self.model.load_weights(self._noted(weights))
            told = told and some is not None
            loaded.update(some or ())

        announced = (
            (name, (shape, getattr(torch, dtype)))
            for name, dtype, shape in zip(
                update.names, update.dtype_names, update.shapes, strict=True
            )
        )
        with disable_mtp_completeness_check():  # they come in parts
            packed_nccl_broadcast_consumer(
                iterator=announced,
                group=self._group,
                src=0,
                post_unpack_func=load,
                buffer_size_bytes=self._wire.packed_buffer_size_bytes,
                num_buffers=self._wire.packed_num_buffers,
                device=self.device,
            )
        return loaded if told else None

    def shutdown(self) -> None:
        """Leave the trainer's NCCL group."""
        group, self._group = self._group, None
        if group is not None:
            group.destroy()


def _from_files(files: Iterable[str]) -> Iterator[tuple[str, torch.Tensor]]:
    from safetensors import safe_open

    for file in files:
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118
                yield name, tensors.get_tensor(name)


class Extension:
    """Methods every worker of a server gets, for ``/collective_rpc``."""

    def rlvr_describe(self) -> dict[str, Any]:
        """What the trainer has to know, and to check."""
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
        """Put an adapter in the place of the one before; the layers that vLLM's model lacks."""
        self.rlvr_adapter, unused = load(self, Path(folder))
        return {"unused": unused}

    def rlvr_received(self) -> dict[str, Any]:
        """What the last update brought to this worker; nothing if there was none."""
        if self.rlvr_adapter:
            return {"tensors": 0, "fingerprint": self.rlvr_adapter}
        found = self.weight_transfer_engine.received  # type: ignore[attr-defined]
        if found is None:
            return {"tensors": 0, "fingerprint": None}
        return {"tensors": len(found), "fingerprint": found.digest()}


if BACKEND not in WeightTransferEngineFactory._registry:
    WeightTransferEngineFactory.register_engine(BACKEND, ServerTransfer)
if current_platform.is_cpu():
    adapt_cpu_build()
