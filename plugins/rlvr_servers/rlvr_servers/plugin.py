"""Registers what rlvr-servers offers."""

from __future__ import annotations

from rlvr_core.api import Registrar, hookimpl


@hookimpl
def register_engines(registrar: Registrar) -> None:
    """Add the engines."""
    registrar.add(
        "vllm-server",
        "rlvr_servers.engine:VllmServerEngine",
        summary="vLLM servers in processes of their own, one or many, on GPUs of their own.",
    )
    registrar.add(
        "vllm-shared",
        "rlvr_servers.shared.engine:SharedVllmEngine",
        summary="vLLM in the processes that train, one engine for several of them.",
    )


@hookimpl
def register_transports(registrar: Registrar) -> None:
    """Add the transports."""
    registrar.add(
        "cuda-ipc",
        "rlvr_servers.cuda_ipc:CudaIpc",
        summary="Memory of the GPU that trainer and engine share; the engine has its own process.",
    )
    registrar.add(
        "nccl",
        "rlvr_servers.nccl:Nccl",
        summary="A broadcast over NCCL to the GPUs of vLLM servers.",
    )
